"""Every shipped config of detection: it loads, builds, and trains on the loss that its name says."""

from __future__ import annotations

import copy
import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.models.losses import CrossEntropyLoss
from mmdet.registry import DATASETS, MODELS
from mmdet.structures import DetDataSample
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.runner import Runner
from mmengine.structures import InstanceData

from mmseg_nondecomp.datasets.shape_boxes import ShapeBoxes
from mmseg_nondecomp.heads.all_levels_retina_head import AllLevelsRetinaHead
from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss

ROOT = Path(__file__).resolve().parents[2] / 'configs'
FOLDERS = ('coco', 'shape_boxes', 'voc_detection')
ALL = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob('*.py'))
SHAPES = [path for path in ALL if path.parent.name == 'shape_boxes']
LARGE = [path for path in ALL if path not in SHAPES]
AP = [path for path in ALL if 'ap' in path.stem.replace('_', '-').split('-')]
LOSS = dict(type='DirectAPLoss', use_sigmoid=True)
STOCK = {
    'coco': {'faster-rcnn': 'faster_rcnn', 'retinanet': 'retinanet'},
    'voc_detection': {'faster-rcnn': 'pascal_voc'},
}
"""The folders of MMDetection's own configs."""
SIZE = 64


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize('path', paths, ids=[path.relative_to(ROOT).as_posix() for path in paths])


@pytest.fixture(autouse=True)
def _scope():
    register_all_modules(init_default_scope=True)


@functools.cache
def parsed(path: Path) -> Config:
    return Config.fromfile(path)


def load(path: Path) -> Config:
    return copy.deepcopy(parsed(path))


def box_head(model: Any) -> Any:
    """The head that classifies, or its config."""
    return model.roi_head.bbox_head if 'roi_head' in model else model.bbox_head


def thresholds(model: Any) -> Any:
    return model.test_cfg.rcnn if 'roi_head' in model else model.test_cfg


def stock(path: Path, folder: Path) -> Config:
    """The config of MMDetection that a config of ours is named after, by way of a file in the folder."""
    name = path.name.partition('_')[2]
    directory = STOCK[path.parent.name][name.partition('_')[0]]
    unchanged = folder / 'unchanged.py'
    unchanged.write_text(f"_base_ = ['mmdet::{directory}/{name}']")
    return Config.fromfile(unchanged)


def build(path: Path) -> Any:
    """The model without pretrained weights. Large backbones get few channels, and their heads stay as they are."""
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


def batch(model: Any, n_objects: tuple[int, ...]) -> dict:
    """Images of noise in which objects are bright."""
    generator = torch.Generator().manual_seed(0)
    images, samples = [], []
    for n in n_objects:
        image = torch.randint(0, 100, (3, SIZE, SIZE), generator=generator)
        corners = torch.randint(0, SIZE // 2, (n, 2), generator=generator)
        for x, y in corners.tolist():
            image[:, y : y + 28, x : x + 28] = 250
        boxes = torch.cat([corners, corners + 28], 1).float()
        sample = DetDataSample(gt_instances=InstanceData(bboxes=boxes, labels=torch.arange(n)))
        shape = (SIZE, SIZE)
        sample.set_metainfo(dict(img_shape=shape, ori_shape=shape, batch_input_shape=shape, scale_factor=(1.0, 1.0)))
        images.append(image.to(torch.uint8))
        samples.append(sample)
    return model.data_preprocessor(dict(inputs=images, data_samples=samples), training=True)


def test_there_are_configs():
    assert {path.parent.name for path in ALL} == set(FOLDERS)
    assert len(ALL) >= 6
    assert len(AP) == len(ALL) - 2
    assert all((ROOT / folder / 'README.md').exists() for folder in FOLDERS)


@each(ALL)
def test_the_loss_is_the_one_of_the_name(path: Path):
    model = build(path)
    loss = classifier(model).loss_cls
    assert type(loss) is (DirectAPLoss if path in AP else CrossEntropyLoss)
    if path in AP:
        assert (loss.epsilon, loss.mode, loss.scope, loss.per_class) == (0.1, 'positive', 'batch', True)
        assert thresholds(load(path).model).score_thr == 0.0
    if 'retinanet' in path.name:
        assert type(classifier(model)) is AllLevelsRetinaHead
    n_classes = {'coco': 80, 'shape_boxes': 5, 'voc_detection': 20}[path.parent.name]
    assert classifier(model).num_classes == n_classes


@each(LARGE)
def test_large_configs_differ_from_stock_in_what_the_readme_says(path: Path, tmp_path: Path):
    ours, theirs = load(path), stock(path, tmp_path)
    ours.pop('custom_imports', None)
    if path in AP:
        before, after = box_head(theirs.model), box_head(ours.model)
        loss = after.pop('loss_cls')
        assert loss == dict(LOSS, epsilon=0.1)
        assert before.pop('loss_cls').type == ('FocalLoss' if 'retinanet' in path.name else 'CrossEntropyLoss')
        assert thresholds(theirs.model).pop('score_thr') == 0.05
        assert thresholds(ours.model).pop('score_thr') == 0.0
        if 'retinanet' in path.name:
            assert after.pop('type') == 'AllLevelsRetinaHead'
            assert before.pop('type') == 'RetinaHead'
        if path.parent.name == 'voc_detection':
            number = ours.model.train_cfg.rcnn.sampler.pop('num')
            assert number * ours.train_dataloader.batch_size == 512
            theirs.model.train_cfg.rcnn.sampler.pop('num')
    assert ours.to_dict() == theirs.to_dict()


def test_shape_boxes_twins_differ_in_what_the_readme_says():
    ce, ap = (load(ROOT / 'shape_boxes' / f'tiny-faster-rcnn_{name}_shape-boxes.py') for name in ('ce', 'ap'))
    assert box_head(ce.model).pop('loss_cls').type == 'CrossEntropyLoss'
    loss = box_head(ap.model).pop('loss_cls')
    assert {key: loss[key] for key in LOSS} == LOSS
    assert ce.to_dict() == ap.to_dict()
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
    """Many boxes of several classes, whatever is added to all scores."""
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


@each(AP)
def test_loss_cls_does_not_depend_on_avg_factor(path: Path):
    model = build(path)
    loss = classifier(model).loss_cls
    scores = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.arange(64) % 6
    values, gradients = [], []
    for avg_factor in (None, 1.0, 1000.0):
        values.append(loss(scores, labels, torch.ones(64), avg_factor=avg_factor))
        gradients.append(torch.autograd.grad(values[-1], scores)[0])
    assert 0 < values[0].item() < loss.loss_weight
    assert values[0] == values[1] == values[2]
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)
    stock_loss = CrossEntropyLoss(use_sigmoid=False)
    assert stock_loss(scores, labels % 5, avg_factor=1.0) != stock_loss(scores, labels % 5, avg_factor=1000.0)


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
    """20 iterations on few images, with evaluation, as tools/train.py would."""
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
