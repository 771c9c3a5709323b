"""The table of LandCover, from trainings that have ended, and a short training on other data."""

import json
import sys
from pathlib import Path

import fill_tables
import pytest
import reproduce as tool
from comparison import search
from comparison.training import RESULT
from mmengine.config import Config
from reproductions import land_cover
from written_training import write_training

ROOT = Path(__file__).parents[2]
ON_SHAPES = 'configs/long_tail_shapes/{network}_{way}_lts.py'


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(land_cover, 'OUT', tmp_path / 'work_dirs')


def test_each_row_has_a_config_for_each_network():
    for network in land_cover.NETWORKS:
        for way in land_cover.WAYS:
            config = land_cover.Setting(network, 'short', way).config
            assert Config.fromfile(config).val_dataloader.dataset.split == 'val'


class TestFromTrainingsThatHaveEnded:
    """The second rate is the best for all rows but the first, for which it is the third; later rows are better."""

    @pytest.fixture(autouse=True)
    def jobs(self, monkeypatch, tmp_path):
        ways = ['ce', 'lovasz', 'lmp']
        monkeypatch.setattr(land_cover, 'CONFIG', ON_SHAPES)
        monkeypatch.setattr(land_cover, 'WAYS', {way: land_cover.WAYS[way] for way in ways})
        monkeypatch.setattr(land_cover, 'NETWORKS', {'tiny-unet': 'tiny U-Net'})
        monkeypatch.setattr(land_cover, 'rare_classes', lambda setting: {'bird': 1})
        jobs = []

        def train(some_jobs, n_at_a_time):
            jobs.extend(some_jobs)
            return [result_of(job) for job in some_jobs]

        def result_of(job):
            if not (job.work_dir / RESULT).exists():
                way = next(i for i, way in enumerate(ways) if f'tiny-unet_{way}_' in job.config)
                score = 40 + 10 * way + job.seed % 10 - abs(1000 * job.lr - (10 if way else 30))
                areas = [[[score, score / 2], [100, 100], [80, 90]]] * 3
                result = dict(config='a.py', schedule=job.schedule, seed=job.seed, lr=job.lr)
                made = write_training(job.work_dir, areas, ('sky', 'bird'), result, '# a config')
                (job.work_dir / RESULT).write_text(json.dumps(made.result))
            return json.loads((job.work_dir / RESULT).read_text())

        monkeypatch.setattr(search, 'train_missing', train)
        monkeypatch.setattr(land_cover, 'train_missing', train)
        return jobs

    def test_rates_are_searched_on_validation_tiles_and_used_on_test_tiles_seed_by_seed(self, jobs):
        done = land_cover.reproduce([1, 0])
        searching, told = jobs[:10], jobs[10:]
        assert {(job.seed, job.schedule, job.n_points) for job in searching} == {(land_cover.SEARCH_SEED, 'short', 1)}
        assert {job.settings().val_dataloader.dataset.split for job in searching} == {'val'}
        assert [job.seed for job in told] == [1] * 6 + [0] * 6
        assert [job.schedule for job in told] == 2 * (['short'] * 3 + ['long'] * 3)
        assert [job.lr for job in told] == 4 * [3e-2, 1e-2, 1e-2]
        assert {(job.settings().val_dataloader.dataset.split, job.n_points) for job in told} == {('test', 1)}
        assert [row['rate'] for row in done.results['rates']] == [3e-2, 1e-2, 1e-2]
        assert [len(row['val mIoU']) for row in done.results['rates']] == [4, 3, 3]
        assert '0 of the 3 searched learning rates are at the end of the range' in done.found

    def test_rows_have_all_measures_and_can_be_selected_for_a_page(self, tmp_path):
        tool.write('land-cover', land_cover.reproduce([0, 1]), [0, 1], tmp_path)
        where = 'where="network=tiny U-Net; schedule=long"'
        columns = 'columns="loss, iterations, mIoU, against cross-entropy, first, class accuracy, IoU of rare classes"'
        _, _, *lines = fill_tables.table_of(f'land-cover.json {columns} {where}', tmp_path).splitlines()
        assert lines == [
            '| cross-entropy | 10 | 30.4 ± 0.53 |  | 0 % | 36.6 ± 0.64 | 20.2 ± 0.35 |',
            '| Lovász-Softmax | 10 | 37.9 ± 0.53 | +7.5 [+7.5, +7.5], 2 of 2 | 0 % | 45.6 ± 0.64 | 25.2 ± 0.35 |',
            '| loss max-pooling | 10 | 45.4 ± 0.53 | +15.0 [+15.0, +15.0], 2 of 2 | 100 % | 54.6 ± 0.64 '
            '| 30.2 ± 0.35 |',
        ]
        results = json.loads((tmp_path / 'land-cover.json').read_text())['results']
        assert results['classes'][0] == {**first_columns(results['classes'][0]), 'sky': 40.5, 'bird': 20.25}
        assert len(results['runs']) == 12
        assert all(run['seconds'] == 3 for run in results['runs'])
        assert results['seconds of the search'] == 30
        assert results['seconds of all other runs'] == 36

    def test_the_sentence_and_the_picture_show_the_best_row(self):
        done = land_cover.reproduce([0])
        assert done.found.count('the highest mIoU has loss max-pooling, 45.0 (first in 100 % of the') == 2
        assert done.found.count('ahead of cross-entropy: Lovász-Softmax +7.5, loss max-pooling +15.0;') == 2
        titles = [axis.get_title() for axis in done.figure.axes]
        assert titles[:4] == ['satellite image', 'labels', 'cross-entropy', 'loss max-pooling']
        assert titles[-2:] == ['tiny U-Net,\n10 iterations'] * 2

    def test_quick_trains_some_rows_without_a_search(self, jobs):
        done = land_cover.quick([0, 1])
        assert [job.lr for job in jobs] == [1e-2] * 6
        assert [row['loss'] for row in done.rows] == ['cross-entropy', 'Lovász-Softmax', 'loss max-pooling']
        assert done.results['rates'] == []

    def test_the_seed_of_the_search_is_refused(self):
        with pytest.raises(ValueError, match=r'should not contain 100.*Found \[0, 100\]'):
            land_cover.reproduce([0, land_cover.SEARCH_SEED])


def first_columns(row):
    return {name: row[name] for name in ('network', 'schedule', 'loss')}


def test_a_short_training_on_other_data_gives_a_table(monkeypatch, tmp_path, capsys):
    """Two rows of the short version, five iterations each."""
    options = {'train_cfg.max_iters': 5, 'param_scheduler.0.end': 5, 'train_dataloader.batch_size': 2}
    for part in ('train', 'val'):
        options[f'{part}_dataloader.dataset.data_root'] = str(tmp_path / 'data')
        options[f'{part}_dataloader.dataset.num_images'] = 4
        options |= {f'{part}_dataloader.num_workers': 0, f'{part}_dataloader.persistent_workers': False}
    monkeypatch.setattr(land_cover, 'CONFIG', ON_SHAPES)
    monkeypatch.setattr(land_cover, 'OPTIONS', options)
    monkeypatch.setattr(land_cover, 'QUICK', ('ce', 'lovasz'))
    monkeypatch.setattr(sys, 'argv', ['reproduce.py', 'land-cover', '--quick', '--seeds', '0', '--out', str(tmp_path)])
    tool.main()
    assert '2 runs, 0 of them finished before' in capsys.readouterr().out
    report = json.loads((tmp_path / 'land-cover.json').read_text())
    assert [row['loss'] for row in report['table']] == ['cross-entropy', 'Lovász-Softmax']
    assert len(report['results']['rare classes']) == 5
    assert (tmp_path / 'land-cover.png').stat().st_size > 10_000
    [trained, _] = (tmp_path / 'work_dirs').rglob('iter_5.pth')
    assert len(list(trained.parent.glob('*.pth'))) == 1
    tool.main()
    assert '2 runs, 2 of them finished before' in capsys.readouterr().out


def test_quick_is_refused_where_there_is_no_short_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['reproduce.py', 'land-cover', 'topk-noise', '--quick'])
    with pytest.raises(SystemExit, match='2'):
        tool.main()
    assert 'there is no --quick for topk-noise' in capsys.readouterr().err
