"""Stock segmentors trained on S-measures by MMEngine's Runner, of pixels and of images, in both kinds of loop."""

import json
import math
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

import mmseg_nondecomp.heads  # noqa: F401
from mmseg_nondecomp import SMeasureLoss
from mmseg_nondecomp.heads.s_measure_head import ids_of

ROOT = Path(__file__).parents[2]
N_IMAGES, BATCH_SIZE = 6, 2

BINARY = dict(
    num_classes=2,
    out_channels=1,
    threshold=0.5,
    loss_decode=[dict(type='CrossEntropyLoss', use_sigmoid=True), dict(type='SMeasureLoss', measure='f_beta')],
)
CLASSES = dict(
    loss_decode=[
        dict(type='CrossEntropyLoss'),
        dict(type='SMeasureLoss', measure='precision_at_recall', target=0.8, loss_weight=0.1),
    ]
)
HEAD = dict(type='SMeasureHead', in_channels=64, in_index=0, num_classes=16, dropout_ratio=0.0)
PER_EXAMPLE = dict(norm_cfg=dict(type='BN'), loss_decode=dict(type='SMeasureLoss', per_example=True, loss_weight=1e-2))
OF_SIZES = dict(loss_decode=dict(type='SMeasureLoss', measure='recall_at_precision', target=0.5, loss_weight=1e-2))
MODELS = {
    'pixels of one class': dict(decode_head=BINARY),
    'pixels of each class': dict(decode_head=CLASSES),
    'size of one class': dict(auxiliary_head=dict(**HEAD, group='size', of_class=0, size_threshold='mean')),
    'majority, per example': dict(auxiliary_head=dict(**HEAD, **PER_EXAMPLE, size_threshold=0.02, channels=4)),
    'sizes of each class': dict(auxiliary_head=[dict(**HEAD, **OF_SIZES, group='classes', size_threshold='mean')]),
}
LOOPS = {
    'iterations': dict(type='IterBasedTrainLoop', max_iters=6, val_interval=6),
    'epochs': dict(type='EpochBasedTrainLoop', max_epochs=2, val_interval=2),
}
every_model = pytest.mark.parametrize('model', MODELS)
every_loop = pytest.mark.parametrize('loop', LOOPS)


@pytest.fixture
def train(scenes, tmp_path, monkeypatch):
    """Trains a tiny U-Net of MMSegmentation, six iterations or two epochs of three unless told otherwise."""
    # MMEngine formats the config five times in a training, which takes longer than the training.
    monkeypatch.setattr(Config, 'pretty_text', '')

    def run(model, loop='iterations', name='through', hook=None, **options):
        cfg = Config.fromfile(ROOT / 'configs/long_tail_shapes/tiny-unet_ce_lts.py')
        rest = dict(metainfo=dict(classes=('rest', 'rows'), palette=[[0, 0, 0], [255, 255, 255]]))
        binary = model == 'pixels of one class'
        # Nothing is random but the order, which a resumed training goes on with.
        pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
        data = dict(data_root=str(scenes), image_size=32, num_images=N_IMAGES, pipeline=pipeline, serialize_data=False)
        loader = dict(batch_size=BATCH_SIZE, num_workers=0, persistent_workers=False)
        sampler = 'InfiniteSampler' if loop == 'iterations' else 'DefaultSampler'
        cfg.merge_from_dict(
            dict(
                model=MODELS[model],
                train_dataloader=dict(
                    **loader, sampler=dict(type=sampler), dataset=data | (rest if binary else {}) | dict(split='train')
                ),
                val_dataloader=dict(**loader, dataset=data | (rest if binary else {}) | dict(split='val')),
                default_hooks=dict(
                    logger=dict(interval=1),
                    checkpoint=dict(by_epoch=loop == 'epochs', interval=1 if loop == 'epochs' else 3),
                ),
                visualizer=dict(name=f'{tmp_path} {name}'),
                work_dir=str(tmp_path / name),
                experiment_name=f'{tmp_path.name} {name}',
                randomness=dict(seed=0),
                log_level='ERROR',
            )
        )
        cfg.model.data_preprocessor.size = (32, 32)
        cfg.train_cfg = LOOPS[loop]
        cfg.param_scheduler = []
        if hook is not None:
            cfg.custom_hooks = [dict(type='DualAscentHook', **hook)]
        cfg.merge_from_dict(options)
        runner = Runner.from_cfg(cfg)
        runner.train()
        return runner

    return run


def loss_of(runner):
    [loss] = [module for module in runner.model.modules() if isinstance(module, SMeasureLoss)]
    return loss


def logged(runner):
    [file] = Path(runner.work_dir).glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {name: [line[name] for line in lines if name in line] for line in lines for name in line}


@every_loop
@every_model
def test_trains_and_logs_the_measure(model, loop, train):
    runner = train(model, loop, hook=dict(by_epoch=True))
    log = logged(runner)
    prefix = 'decode' if 'pixels' in model else 'aux_0' if 'each' in model else 'aux'
    measure = loss_of(runner).measure
    assert len(log[f'{prefix}.loss_s_measure']) == 6
    for name in (f'{prefix}.loss_s_measure', 'loss_s_measure_violation'):
        assert all(map(math.isfinite, log[name]))
    for name in ['f_beta'] if measure == 'f_beta' else ['precision', 'recall']:
        assert all(0 <= value <= 1 for value in log[f'loss_s_measure_{name}'])
    assert 0 <= log['mIoU'][-1] <= 100
    state = loss_of(runner).state
    assert (state.mu != 1).any()
    assert not state.pending.any()
    n_parameters = sum(len(group['params']) for group in runner.optim_wrapper.param_groups)
    assert n_parameters == len(list(runner.model.parameters()))
    assert not list(loss_of(runner).parameters()), 'multipliers are no parameters'


def weights(path):
    return torch.load(path, weights_only=False)['state_dict']


@pytest.mark.parametrize(
    ('model', 'loop', 'hook'),
    [
        ('pixels of one class', 'iterations', None),
        ('pixels of one class', 'epochs', dict()),
        ('pixels of each class', 'iterations', dict(interval=2)),
        ('pixels of each class', 'epochs', None),
        ('size of one class', 'iterations', dict()),
        ('majority, per example', 'iterations', None),
        ('majority, per example', 'iterations', dict(interval=4)),
        ('majority, per example', 'epochs', dict(by_epoch=True)),
        ('sizes of each class', 'iterations', dict(by_epoch=True, interval=2)),
    ],
)
def test_n_and_n_equals_n_save_resume_n(model, loop, hook, train, tmp_path):
    middle, end = ('iter_3.pth', 'iter_6.pth') if loop == 'iterations' else ('epoch_1.pth', 'epoch_2.pth')
    train(model, loop, 'through', hook)
    start = dict(load_from=str(tmp_path / 'through' / middle), resume=True)
    train(model, loop, 'resumed', hook, **start)
    through, resumed = weights(tmp_path / 'through' / end), weights(tmp_path / 'resumed' / end)
    assert any(name.endswith('_extra_state') for name in through)
    torch.testing.assert_close(resumed, through, rtol=0, atol=0)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(weights(tmp_path / 'through' / middle), through, rtol=0, atol=0)


@pytest.mark.parametrize('hook', [None, dict()], ids=['without hook', 'with hook'])
@pytest.mark.parametrize('model', ['pixels of each class', 'size of one class', 'majority, per example'])
def test_load_from_begins_with_new_multipliers(model, hook, train, tmp_path):
    """A training without learning rate that begins with weights of another, and the same with its multipliers anew."""
    train(model, name='source', hook=hook)
    source = torch.load(tmp_path / 'source' / 'iter_6.pth', weights_only=False)
    stripped = {name: value for name, value in source['state_dict'].items() if not name.endswith(('state', 'drawn'))}
    torch.save(dict(state_dict=stripped), tmp_path / 'stripped.pth')
    begun = [
        train(model, name=f'begun {i}', hook=hook, load_from=str(path), train_cfg=dict(max_iters=2, val_interval=2))
        for i, path in enumerate([tmp_path / 'source' / 'iter_6.pth', tmp_path / 'stripped.pth'])
    ]
    torch.testing.assert_close(*(runner.model.state_dict() for runner in begun), rtol=0, atol=0)


@pytest.mark.parametrize('mode', [dict(mode='whole'), dict(mode='slide', crop_size=(16, 16), stride=(8, 8))])
def test_an_auxiliary_head_takes_no_part_in_predictions(mode, train):
    runner = train('size of one class', **{'model.test_cfg': mode})
    assert logged(runner)['mIoU']
    inputs = torch.randn(2, 3, 32, 32)
    before = runner.model.predict(inputs)[0].seg_logits.data
    del runner.model.auxiliary_head
    assert torch.equal(runner.model.predict(inputs)[0].seg_logits.data, before)


def test_images_of_joined_and_repeated_data_sets_stay_apart(train, scenes):
    """Their indices are not: each data set counts its own."""
    data = dict(type='LongTailShapes', data_root=str(scenes), image_size=32, num_images=4, split='train')
    data['pipeline'] = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
    joined = dict(type='ConcatDataset', datasets=[data, data | dict(seed=1)])
    repeated = dict(_delete_=True, type='RepeatDataset', times=2, dataset=joined)
    runner = train(
        'majority, per example', train_dataloader=dict(dataset=repeated), train_cfg=dict(max_iters=8, val_interval=8)
    )
    loss = loss_of(runner)
    loss.step()  # It waits for the iteration that never comes.
    dataset = runner.train_dataloader.dataset
    ids = ids_of([dataset[index]['data_samples'] for index in range(len(dataset))]).tolist()
    assert len(ids) == 16
    assert len(set(ids)) == 8
    assert len(loss.examples) > 3
    assert set(loss.examples.rows) < set(ids)  # those of big things


def test_mixed_precision(train):
    """As AmpOptimWrapper, which refuses the CPU, has it."""
    runner = train('majority, per example', train_cfg=dict(max_iters=1))
    batch = runner.model.data_preprocessor(next(iter(runner.train_dataloader)), True)
    with torch.autocast('cpu', torch.bfloat16):
        losses = runner.model.train()(**batch, mode='loss')
    assert losses['aux.loss_s_measure'].isfinite()
    sum(losses[name] for name in losses if 'loss' in name).backward()
    assert runner.model.auxiliary_head.conv_seg.weight.grad.isfinite().all()
