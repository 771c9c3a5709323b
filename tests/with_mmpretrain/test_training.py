"""Stock MMPretrain configs train with the top-k losses: on images in folders, by tools/train.py."""

import needs_mmpretrain  # noqa: F401  isort: skip

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.hub import get_config

ROOT = Path(__file__).parents[2]
N_CLASSES = 8


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """Images of one colour for each class, in one folder for each class."""
    folder = tmp_path_factory.mktemp('images')
    rng = np.random.default_rng(0)
    for c, color in enumerate(rng.integers(0, 256, (N_CLASSES, 3))):
        (folder / f'class_{c}').mkdir()
        for i in range(4):
            image = np.clip(color + rng.normal(0, 20, (48, 48, 3)), 0, 255).astype(np.uint8)
            cv2.imwrite(str(folder / f'class_{c}' / f'{i}.png'), image)
    return folder


def config(folder, model):
    """Return the stock ResNet-18 for ImageNet on a small data set, with other settings of its model."""
    cfg = get_config('mmpretrain::resnet/resnet18_8xb32_in1k.py')
    cfg.merge_from_dict(
        dict(
            custom_imports=dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False),
            model=model,
            train_cfg=dict(max_epochs=1),
            log_processor=dict(window_size=1),
            default_hooks=dict(logger=dict(interval=1)),
        )
    )
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.update(batch_size=8, num_workers=0, persistent_workers=False)
        for transform in loader.dataset.pipeline:
            transform.update({key: 64 for key in ('scale', 'crop_size') if key in transform})
        loader.dataset = dict(type='CustomDataset', data_root=str(folder), pipeline=loader.dataset.pipeline)
    cfg.model.head.num_classes = cfg.data_preprocessor.num_classes = N_CLASSES
    cfg.val_evaluator.topk = (1, 3)
    cfg.test_evaluator.topk = (1, 3)
    return cfg


def train(cfg, folder):
    cfg.dump(folder / 'config.py')
    command = [sys.executable, 'tools/train.py', str(folder / 'config.py'), '--work-dir', str(folder / 'run')]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    [scalars] = folder.glob('run/*/vis_data/scalars.json')
    return [json.loads(line) for line in scalars.read_text().splitlines()]


SMOOTH = dict(_delete_=True, type='SmoothTopKLoss', k=3)
MIXUP = dict(augments=[dict(type='Mixup', alpha=0.2), dict(type='CutMix', alpha=1.0)])


@pytest.mark.parametrize(
    'model',
    [
        dict(head=dict(loss=SMOOTH, topk=(1, 3))),
        dict(head=dict(loss=SMOOTH, topk=(1, 3)), train_cfg=MIXUP),
        dict(head=dict(type='TopKClsHead', loss=SMOOTH, topk=(1, 3), cal_acc=True)),
    ],
    ids=['smooth', 'smooth, mixup', 'TopKClsHead'],
)
def test_a_stock_resnet_trains(images, tmp_path, model):
    log = train(config(images, model), tmp_path)
    steps = [line for line in log if 'loss' in line]
    assert len(steps) == N_CLASSES * 4 // 8
    assert all(np.isfinite(line['loss']) for line in steps)
    for line in steps:
        assert 0 <= line['loss_topk_top3'] <= 1
    assert 0 <= log[-1]['accuracy/top1'] <= log[-1]['accuracy/top3'] <= 100
    if model['head'].get('cal_acc'):
        for line in steps:
            assert line['accuracy_top-3'] == pytest.approx(100 * line['loss_topk_top3'], abs=1e-3)
