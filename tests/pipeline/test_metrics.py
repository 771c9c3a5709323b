"""Torchmetrics metrics in a stock training of MMSegmentation, by one process and by two."""

import json
import re

import pytest

CONFIG = """
_base_ = '{root}/configs/long_tail_shapes/tiny-unet_ce_lts.py'
count = dict(num_classes=16, ignore_index=255)
jaccard = dict(type='torchmetrics.classification.MulticlassJaccardIndex', **count)
metrics = dict(
    mIoU=jaccard,
    IoU=dict(average=None, **jaccard),
    mAcc=dict(type='torchmetrics.classification.MulticlassAccuracy', **count),
    AP=dict(type='torchmetrics.classification.MulticlassAveragePrecision', thresholds=20, **count),
    lovasz=dict(type='LovaszJaccardIndex', **count),
)
val_evaluator = dict(_delete_=True, type='TorchMetricsEvaluator', metrics=metrics)
test_evaluator = [
    dict(type='IoUMetric', iou_metrics=['mIoU'], prefix='stock'),
    dict(type='TorchMetricsEvaluator', metrics=metrics),
]
default_hooks = dict(checkpoint=dict(save_best='mIoU'))
custom_hooks = [dict(type='TrainMetricsHook', metrics=metrics, interval=2)]
"""


@pytest.fixture
def config(tmp_path, request):
    file = tmp_path / 'metrics.py'
    file.write_text(CONFIG.format(root=request.config.rootpath))
    return file


def schedule(iters):
    return [f'train_cfg.max_iters={iters}', 'train_cfg.val_interval=2', f'default_hooks.checkpoint.interval={iters}']


def test_in_training_validation_and_test(tool, tmp_path, config):
    out = tmp_path / 'out'
    log = tool('train.py', config, '--work-dir', out, options=schedule(4))
    assert re.search(r'class +IoU\n-+\n', log)
    [scalars] = out.glob('*/vis_data/scalars.json')
    rows = [json.loads(line) for line in scalars.read_text().splitlines()]
    validations = [row for row in rows if 'mIoU' in row]
    best = max(range(2), key=lambda i: validations[i]['mIoU'])
    assert [file.name for file in out.glob('best_*.pth')] == [f'best_mIoU_iter_{2 * (best + 1)}.pth']
    of_classes = {name for name in validations[0] if name.startswith('IoU.')}
    assert len(of_classes) == 16
    assert all({'mAcc', 'AP', 'lovasz', *of_classes} < set(row) for row in validations)
    assert sum('train/mIoU' in row and 'train/lovasz' in row for row in rows) >= 2

    log = tool('test.py', config, out / 'iter_4.pth', '--work-dir', tmp_path / 'test')
    assert values(log)['mIoU'] == pytest.approx(validations[-1]['mIoU'], abs=1e-4)
    assert 100 * values(log)['mIoU'] == pytest.approx(values(log)['stock/mIoU'], abs=0.011)


def test_by_two_processes_of_which_one_repeats_an_image(tool, tmp_path, config):
    three = ['test_dataloader.dataset.num_images=3', 'val_dataloader.dataset.num_images=3']
    tool('train.py', config, '--work-dir', tmp_path / 'out', options=[*schedule(2), *three])
    checkpoint = tmp_path / 'out' / 'iter_2.pth'
    alone = values(tool('test.py', config, checkpoint, '--work-dir', tmp_path / 'one', options=three))
    both = values(tool('dist_test.sh', config, checkpoint, 2, '--work-dir', tmp_path / 'two', options=three))
    assert both == pytest.approx(alone, abs=1.1e-4)
    assert 100 * both['mIoU'] == pytest.approx(both['stock/mIoU'], abs=0.011)


def values(log):
    """Return the values in the last line of a test."""
    line = [line for line in log.splitlines() if 'stock/mIoU' in line][-1]
    return {name: float(value) for name, value in re.findall(r'([\w./]+): ([\d.]+)', line) if 'time' not in name}
