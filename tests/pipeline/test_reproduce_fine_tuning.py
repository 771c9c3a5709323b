"""Fine-tuning on few images, and its tables from trainings that have ended."""

import json
import math
from pathlib import Path

import fill_tables
import numpy as np
import pytest
import reproduce as tool
import torch
from comparison import search
from comparison.results import Trained
from comparison.statistics import Difference
from mmengine.registry import MODELS, init_default_scope
from reproductions import fine_tuned, fine_tuning
from reproductions.hinge_loss import hinge
from written_training import write_training

ROOT = Path(__file__).parents[2]
SHAPES = 'LongTailShapes'


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(fine_tuned, 'OUT', tmp_path / 'work_dirs')


@pytest.fixture
def use(monkeypatch):
    """Replace names in both modules."""

    def replace(**values):
        for name, value in values.items():
            for module in (fine_tuned, fine_tuning):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, value)

    return replace


class TestConfigs:
    def test_each_way_has_the_loss_of_one_config_and_the_sampling_of_another(self):
        for data in fine_tuned.DATA:
            for name, way in fine_tuned.WAYS.items():
                cfg = fine_tuned.Tuning(data, name).config()
                of_loss, of_sampling = (
                    fine_tuned.Config.fromfile(fine_tuned.DATA[data].config.format(way=part))
                    for part in (way.loss, way.sampling)
                )
                assert cfg.model == of_loss.model
                assert cfg.train_dataloader.sampler == of_sampling.train_dataloader.sampler
                assert cfg.get('custom_hooks') == of_sampling.get('custom_hooks')
                _, _, jitter, *others = cfg.train_dataloader.dataset.pipeline
                assert (jitter['type'], jitter['ratio_range']) == ('RandomResize', (0.5, 1.5))
                assert others == of_sampling.train_dataloader.dataset.pipeline[2:]
                assert cfg.optim_wrapper.optimizer.type == 'SGD'
                assert cfg.optim_wrapper.optimizer.momentum == cfg.param_scheduler[0].power == 0.9

    @pytest.mark.parametrize('loss', fine_tuned.ONE_CLASS_LOSSES)
    def test_one_class_has_one_score_and_its_loss_alone(self, loss):
        init_default_scope('mmseg')
        cfg = fine_tuned.Tuning(SHAPES, loss, 'saltire').config()
        head = cfg.model.decode_head
        assert head.loss_decode == fine_tuned.ONE_CLASS_LOSSES[loss]
        assert cfg.val_dataloader.dataset.metainfo.classes == ('rest', 'saltire')
        model = MODELS.build(cfg.model)
        assert model.decode_head.conv_seg.weight.shape[0] == 1
        label = torch.tensor([0, 1]).view(2, 1, 1).repeat(1, 4, 4)
        value = model.decode_head.loss_decode(torch.zeros(2, 1, 4, 4), label)
        assert value.isfinite()


def test_the_hinge_is_that_of_its_definition_over_the_valid_pixels():
    generator = torch.Generator().manual_seed(0)
    logits, label = torch.randn(3, 1, 5, 5, generator=generator), torch.randint(0, 2, (3, 5, 5), generator=generator)
    label[0, :2] = 255
    expected = [
        max(0.0, 1 - z * (1 if y == 1 else -1))
        for z, y in zip(logits.flatten().tolist(), label.flatten().tolist(), strict=True)
        if y != 255
    ]
    assert hinge(logits, label).item() == pytest.approx(sum(expected) / len(expected), rel=1e-6)
    assert hinge(logits, torch.full_like(label, 255)).item() == 0


def test_weights_of_one_class_do_not_depend_on_a_shift_of_all_scores(tmp_path):
    torch.manual_seed(0)
    weight, bias = torch.randn(3, 4, 1, 1), torch.randn(3)

    def of_class(shift):
        state = {'decode_head.conv_seg.weight': weight + shift, 'decode_head.conv_seg.bias': bias + shift}
        torch.save({'meta': {}, 'state_dict': {'other': torch.ones(2), **state}}, tmp_path / 'iter_1.pth')
        (tmp_path / 'last_checkpoint').write_text('iter_1.pth')
        start = Trained({'IoU': dict.fromkeys('abc', 0.0)}, tmp_path)
        return torch.load(fine_tuned.start_of_one_class(start, 'b'))['state_dict']

    plain, shifted = of_class(0.0), of_class(5.0)
    assert plain['other'].tolist() == [1, 1]
    for name, of_all in (('weight', weight), ('bias', bias)):
        found = plain[f'decode_head.conv_seg.{name}']
        torch.testing.assert_close(found[0], of_all[1] - (of_all[0] + of_all[2]) / 2)
        torch.testing.assert_close(found, shifted[f'decode_head.conv_seg.{name}'])


@pytest.mark.parametrize(
    ('low', 'high', 'sign', 'expected'),
    [
        (0.1, 2.0, 1, 'confirmed'),
        (0.1, 2.0, -1, 'refuted'),
        (-2.0, -0.1, -1, 'confirmed'),
        (-2.0, -0.1, 1, 'refuted'),
        (-1.0, 1.0, 1, 'open'),
        (-1.0, 1.0, -1, 'open'),
        (-1.0, 1.0, 0, 'the interval holds 0'),
        (0.1, 1.0, 0, 'the interval is without 0'),
    ],
)
def test_an_interval_decides_a_claim(low, high, sign, expected):
    assert fine_tuning.verdict(Difference((low + high) / 2, low, high, 1, 1), sign) == expected


def test_fine_tuning_on_few_images_starts_from_the_trained_network(use, monkeypatch, tmp_path):
    """Training of one way and one loss; with a learning rate of 0 the network is the starting one."""
    options = {'train_dataloader.batch_size': 2, 'param_scheduler.0.end': 10, 'train_cfg.max_iters': 10}
    for part in ('train', 'val'):
        options[f'{part}_dataloader.dataset.data_root'] = str(tmp_path / 'data')
        options[f'{part}_dataloader.dataset.num_images'] = 4
    data = fine_tuned.DATA[SHAPES]._replace(classes=('saltire',))
    monkeypatch.setattr(search, 'RATES', (0.0,))
    monkeypatch.setattr(search, 'FIRST_RATES', (0.0,))
    use(DATA={SHAPES: data}, OPTIONS=options)
    tunings = [fine_tuned.Tuning(SHAPES, 'ce'), fine_tuned.Tuning(SHAPES, 'hinge', 'saltire')]
    tuned = fine_tuned.tune(tunings, [0])
    [start], [of_all], [of_one] = tuned.starts[SHAPES], *tuned.runs.values()
    before, after, one = (
        torch.load(trained.checkpoint, weights_only=False)['state_dict'] for trained in (start, of_all, of_one)
    )
    for name, value in before.items():
        if 'running' not in name and 'num_batches' not in name:
            assert torch.equal(value, after[name])
            assert name.startswith('decode_head.conv_seg') or torch.equal(value, one[name])
    assert list(tuned.searched) == [tuning._replace(cls=None) for tuning in tunings]
    losses = fine_tuning.losses_of(of_one)
    assert set(losses) == {'cross-entropy', 'hinge', 'Lovász hinge'}
    assert all(math.isfinite(value) and value > 0 for value in losses.values())


class TestFromTrainingsThatHaveEnded:
    """Each way has its own score; the second of the three rates is the best one."""

    SCORES = dict(zip(fine_tuned.WAYS, (40, 42, 44, 30, 45, 48, 50, 46, 47, 49), strict=True)) | dict(
        zip(fine_tuned.ONE_CLASS_LOSSES, (60, 55, 70, 58), strict=True)
    )

    @pytest.fixture
    def jobs(self, monkeypatch, use):
        jobs = []

        def score_of(job):
            stem = Path(job.config).stem
            way = stem.removeprefix(f'{SHAPES}_').removesuffix('_bird')
            return self.SCORES.get(way, 20) + (job.lr == search.FIRST_RATES[1]) + job.seed % 10

        def train(some_jobs, n_at_a_time):
            jobs.extend(some_jobs)
            return [result_of(job) for job in some_jobs]

        def result_of(job):
            if not (job.work_dir / 'result.json').exists():
                score, n_classes = score_of(job), 2 if job.config.endswith('_bird.py') else 3
                areas = np.array([[[score] * n_classes, [100] * n_classes, [90] * n_classes]] * 2, float)
                points = [5 * i for i in range(11 - job.first_point)]
                curve = [{'iteration': i, 'data set': score + i / 100, 'image': 1.0} for i in points]
                settings = dict(schedule=job.schedule, seed=job.seed, lr=job.lr, fingerprint=str(job.work_dir))
                result = dict(config='a.py', curve=curve, **settings)
                made = write_training(job.work_dir, areas, ('sky', 'bird', 'sea')[:n_classes], result, '# a config')
                (job.work_dir / 'last_checkpoint').write_text('iter_1.pth')
                (job.work_dir / 'result.json').write_text(json.dumps(made.result))
            return json.loads((job.work_dir / 'result.json').read_text())

        monkeypatch.setattr(search, 'train_missing', train)
        monkeypatch.setattr(fine_tuned, 'train_missing', train)
        monkeypatch.setattr(fine_tuned, 'start_of_one_class', lambda start, cls: start.work_dir / f'{cls}.pth')
        monkeypatch.setattr(fine_tuned.Tuning, 'write_config', lambda tuning: f'{"_".join(filter(None, tuning))}.py')
        monkeypatch.setattr(
            fine_tuning, 'losses_of', lambda trained: dict.fromkeys(fine_tuning.LOSSES, trained['mIoU'])
        )
        use(DATA={SHAPES: fine_tuned.DATA[SHAPES]._replace(classes=('bird',))})
        return jobs

    def test_starts_come_first_then_the_search_then_the_seeds(self, jobs):
        fine_tuning.reproduce([1, 0])
        n = len(self.SCORES)
        starts, searching, told = jobs[:3], jobs[3 : 3 + 3 * n], jobs[3 + 3 * n :]
        assert [job.seed for job in starts] == [fine_tuned.SEARCH_SEED, 1, 0]
        assert {(job.seed, job.n_points) for job in searching} == {(fine_tuned.SEARCH_SEED, 1)}
        assert not any('val_dataloader.dataset.split' in job.options for job in searching)
        assert [job.seed for job in told] == [1] * n + [0] * n
        assert {job.lr for job in told} == {search.FIRST_RATES[1]}
        assert {job.options['val_dataloader.dataset.split'] for job in told} == {'test'}
        for job in searching + told:
            [start] = [start for start in starts if start.seed == job.seed]
            assert job.options['load_from'].startswith(str(start.work_dir))
            assert job.options['started_from'] == str(start.work_dir)
            assert job.options['load_from'].endswith('bird.pth') == job.config.endswith('_bird.py')

    def test_tables_of_both_experiments_and_claims_can_be_selected(self, jobs, tmp_path):
        tool.write('fine-tuning', fine_tuning.reproduce([0, 1]), [0, 1], tmp_path)

        def table(arguments):
            head, _, *lines = fill_tables.table_of(f'fine-tuning.json {arguments}', tmp_path).splitlines()
            return head, lines

        head, lines = table(
            f'where="experiment=all classes; data={SHAPES}" columns="loss, mIoU, against cross-entropy"'
        )
        assert head == '| loss | mIoU | against cross-entropy |'
        assert lines[:3] == [
            '| start: cross-entropy | 20.5 ± 0.71 |  |',
            '| cross-entropy | 41.6 ± 0.71 |  |',
            '| cross-entropy, sampling by IoU | 43.6 ± 0.71 | +2.0 [+2.0, +2.0], 2 of 2 |',
        ]
        head, lines = table('where="experiment=one class"')
        assert head.endswith('| value of cross-entropy | value of hinge | value of Lovász hinge |')
        assert len(lines) == 5
        assert '+10.0 [+10.0, +10.0], 2 of 2' in lines[3]
        _, lines = table(f'where="experiment=claims" columns="claim, paper, {SHAPES}"')
        by_claim = {claim: here for claim, _, here in (line.strip('| ').split(' | ') for line in lines)}
        assert by_claim['loss max-pooling is ahead of cross-entropy'].endswith(': confirmed')
        assert (
            by_claim['equibatch hardly changes Lovász-Softmax']
            == '+1.0 [+1.0, +1.0], 2 of 2: the interval is without 0'
        )
        assert by_claim['of both with sampling, loss max-pooling is ahead in most classes'] == '3 of 3'
        assert by_claim['the loss of Rahman and Wang is behind the Lovász hinge'].startswith('-12.0')
        report = json.loads((tmp_path / 'fine-tuning.json').read_text())
        assert '13 are confirmed, 0 refuted (none) and 0 open' in report['found']
        assert len(report['results']['runs']) == 2 * len(self.SCORES)

    def test_the_picture_has_a_panel_for_each_data_set_and_experiment(self, jobs):
        titles = [axis.get_title() for axis in fine_tuning.reproduce([0]).figure.axes]
        assert titles == [f'{SHAPES}: all classes', f'{SHAPES}: one class']

    def test_the_seed_of_the_search_is_refused(self):
        with pytest.raises(ValueError, match=r'should not contain 100.*Found \[100\]'):
            fine_tuning.reproduce([fine_tuned.SEARCH_SEED])
