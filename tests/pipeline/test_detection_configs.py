"""Every shipped config of detection loads, builds, and trains on the loss in its name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip('mmdet')

from detection_scenes import SIZE, batch
from mmdet.models.losses import CrossEntropyLoss
from mmdet.registry import DATASETS, MODELS
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.runner import Runner
from shipped_configs import CONFIGS, differences, each, load, stock

from mmseg_nondecomp import DirectAPLoss
from mmseg_nondecomp.datasets import ShapeBoxes
from mmseg_nondecomp.heads import AllLevelsRetinaHead

FOLDERS = ('coco', 'shape_boxes', 'voc_detection')
ALL = sorted(path for folder in FOLDERS for path in (CONFIGS / folder).glob('*.py'))
SHAPES = [path for path in ALL if path.parent.name == 'shape_boxes']
LARGE = [path for path in ALL if path not in SHAPES]
AP = [path for path in ALL if 'ap' in path.stem.replace('_', '-').split('-')]
LOSS = dict(type='DirectAPLoss', use_sigmoid=True)
STOCK = {
    'coco': {'faster-rcnn': 'faster_rcnn', 'retinanet': 'retinanet'},
    'voc_detection': {'faster-rcnn': 'pascal_voc'},
}
"""The folders of MMDetection's own configs."""


@pytest.fixture(autouse=True)
def _scope():
    register_all_modules(init_default_scope=True)


def stock_of(path: Path, folder: Path) -> Config:
    """Return the config of MMDetection that a config is named after."""
    name = path.name.partition('_')[2]
    return stock(f'mmdet::{STOCK[path.parent.name][name.partition("_")[0]]}/{name}', folder)


def build(path: Path) -> Any:
    """Build the model without pretrained weights. Large backbones get few channels."""
    config = load(path).model
    config.backbone.init_cfg = None
    if path in LARGE:
        config.backbone.update(depth=18, base_channels=8)
        config.neck.in_channels = [8, 16, 32, 64]
    torch.manual_seed(0)
    model = MODELS.build(config)
    model.init_weights()
    return model


def classifier(model: Any) -> Any:
    return model.roi_head.bbox_head if hasattr(model, 'roi_head') else model.bbox_head


def scores_weight(model: Any) -> torch.Tensor:
    head = classifier(model)
    return head.fc_cls.weight if hasattr(head, 'fc_cls') else head.retina_cls.weight


def test_there_are_configs():
    assert {path.parent.name for path in ALL} == set(FOLDERS)
    assert len(ALL) >= 6
    assert len(AP) == len(ALL) - 2
    assert all((CONFIGS / folder / 'README.md').exists() for folder in FOLDERS)


@each(ALL)
def test_the_loss_is_the_one_of_the_name(path: Path):
    model = build(path)
    loss = classifier(model).loss_cls
    assert type(loss) is (DirectAPLoss if path in AP else CrossEntropyLoss)
    if path in AP:
        assert (loss.epsilon, loss.mode, loss.scope, loss.per_class) == (0.1, 'positive', 'batch', True)
    if 'retinanet' in path.name:
        assert type(classifier(model)) is AllLevelsRetinaHead
    n_classes = {'coco': 80, 'shape_boxes': 5, 'voc_detection': 20}[path.parent.name]
    assert classifier(model).num_classes == n_classes


@each(LARGE)
def test_large_configs_differ_from_stock_as_the_readme_says(path: Path, tmp_path: Path):
    ours, theirs = load(path), stock_of(path, tmp_path)
    batch_size = ours.train_dataloader.batch_size
    found = differences(ours.to_dict(), theirs.to_dict())
    found.pop('custom_imports', None)
    head, test = ('roi_head.bbox_head', 'rcnn.') if 'faster' in path.name else ('bbox_head', '')
    expected = {}
    if path in AP:
        expected[f'model.test_cfg.{test}score_thr'] = (0.0, 0.05)
        if 'retinanet' in path.name:
            after, before = found.pop('model.bbox_head')
            assert (after.pop('type'), before.pop('type')) == ('AllLevelsRetinaHead', 'RetinaHead')
            loss = (after.pop('loss_cls'), before.pop('loss_cls'))
            assert after == before
        else:
            loss = found.pop(f'model.{head}.loss_cls')
        assert loss[0] == dict(LOSS, epsilon=0.1)
        assert loss[1]['type'] == ('FocalLoss' if 'retinanet' in path.name else 'CrossEntropyLoss')
        if path.parent.name == 'voc_detection':
            number, _ = found.pop('model.train_cfg.rcnn.sampler.num')
            assert number * batch_size == 512
    assert found == expected


def test_shape_boxes_twins_differ_in_the_loss_alone():
    ce, ap = (load(CONFIGS / 'shape_boxes' / f'tiny-faster-rcnn_{name}_shape-boxes.py') for name in ('ce', 'ap'))
    found = differences(ap.to_dict(), ce.to_dict())
    loss, base = found.pop('model.roi_head.bbox_head.loss_cls')
    assert not found
    assert base['type'] == 'CrossEntropyLoss'
    assert loss.items() >= LOSS.items()
    assert ce.train_dataloader.batch_size * ce.model.train_cfg.rcnn.sampler.num == 512


@each(ALL)
def test_trains_a_step(path: Path):
    model = build(path).train()
    before = scores_weight(model).detach().clone()
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    data = batch(model, (3, 0))
    losses = model(data['inputs'], data['data_samples'], mode='loss')
    total, shown = model.parse_losses(losses)
    total.backward()
    assert 0 < total.item() < math.inf
    assert shown['loss_cls'] > 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert scores_weight(model).grad.abs().sum() > 0
    optimiser.step()
    assert not torch.equal(scores_weight(model), before)
    if path in AP:
        assert losses['loss_cls'].shape == ()
        assert losses['loss_cls'] <= classifier(model).loss_cls.loss_weight


@each(AP)
def test_predicts_without_a_threshold(path: Path):
    """As many boxes, of several classes, whatever is added to all scores."""
    model = build(path).eval()
    counts = []
    for offset in (0.0, -15.0):
        with torch.no_grad():
            head = classifier(model)
            (head.fc_cls if hasattr(head, 'fc_cls') else head.retina_cls).bias.fill_(offset)
            data = batch(model, (2, 1))
            predicted = [sample.pred_instances for sample in model(**data, mode='predict')]
        assert all(len(found.scores) > 20 for found in predicted)
        assert all(len(found.labels.unique()) > 1 for found in predicted)
        counts.append([len(found.scores) for found in predicted])
    assert counts[0] == counts[1]


def test_retinanet_ranks_the_anchors_of_all_levels_at_once():
    [path] = [path for path in ALL if 'retinanet' in path.name]
    model = build(path).train()
    calls: list[int] = []
    classifier(model).loss_cls.register_forward_hook(lambda _, args, value: calls.append(len(args[0])))
    data = batch(model, (2, 1))
    model(data['inputs'], data['data_samples'], mode='loss')
    anchors = sum(9 * math.ceil(SIZE / stride) ** 2 for stride in (8, 16, 32, 64, 128))
    assert calls == [2 * anchors]


@each(SHAPES)
def test_shape_boxes_train_with_a_runner(path: Path, tmp_path: Path):
    """20 iterations on few images, with evaluation."""
    config = load(path)
    config.work_dir = str(tmp_path)
    config.visualizer.name = str(tmp_path)  # MMEngine keeps one of each name, with its folder
    config.randomness = dict(seed=0)
    config.train_dataloader.dataset.num_images = 20
    config.train_dataloader.batch_size = 2
    config.val_dataloader.dataset.num_images = 4
    for loader in (config.train_dataloader, config.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
    config.train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=2)
    config.default_hooks.logger.interval = 1
    config.default_hooks.checkpoint.interval = 2
    runner = Runner.from_cfg(config)
    runner.train()
    assert runner.iter == 20
    assert isinstance(runner.train_dataloader.dataset, ShapeBoxes)
    [scalars] = tmp_path.glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in scalars.read_text().splitlines()]
    losses = [line['loss'] for line in lines if 'loss' in line]
    assert len(losses) == 20
    assert all(math.isfinite(loss) for loss in losses)
    measured = [line['pascal_voc/mAP'] for line in lines if 'pascal_voc/mAP' in line]
    assert len(measured) == 1
    assert 0 <= measured[0] <= 1
    logged = [line['loss_ap_ap'] for line in lines if 'loss_ap_ap' in line]
    assert bool(logged) == (path in AP)
    assert (tmp_path / 'epoch_2.pth').exists()


@each(SHAPES)
def test_shape_boxes_are_evaluated_on_the_other_split(path: Path):
    config = load(path)
    train, val = (config[f'{part}_dataloader'].dataset for part in ('train', 'val'))
    assert (train.split, val.split) == ('train', 'val')
    assert config.test_dataloader == config.val_dataloader
    dataset = DATASETS.build(dict(val, num_images=2))
    sample = dataset[0]['data_samples']
    assert len(sample.gt_instances.bboxes) == len(sample.gt_instances.labels) > 0
    assert config.val_evaluator.type == 'VOCMetric'
