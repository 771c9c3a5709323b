"""Detection of trees: the configs, and the reproduction that compares them, in small."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip('mmdet')

from detection_scenes import batch
from mmdet.evaluation import VOCMetric
from mmdet.models.losses import CrossEntropyLoss, FocalLoss
from mmdet.registry import MODELS
from mmdet.utils import register_all_modules
from mmengine.config import Config
from packaged_data import needs_data_of
from reproductions import aerial_trees, tree_detectors
from reproductions.resampling import draw_weights
from reproductions.tree_detectors import Detected, Training
from shipped_configs import CONFIGS, differences, load

from mmseg_nondecomp import DirectAPLoss
from mmseg_nondecomp.datasets.aerial_trees import PHOTOGRAPHS

needs_data_of(*PHOTOGRAPHS['OSBS 029'])

ROOT = CONFIGS.parent
LOSSES = {'ce': CrossEntropyLoss, 'focal': FocalLoss, 'ap': DirectAPLoss}
FAST = {
    'train_cfg.max_epochs': 1,
    'train_dataloader.dataset.indices': 2,
    'train_dataloader.batch_size': 1,
    'model.backbone.pretrained': False,
}


@pytest.fixture(autouse=True)
def _scope():
    register_all_modules(init_default_scope=True)


def config(way: str) -> Config:
    return load(CONFIGS / 'aerial_trees' / f'lite0-retinanet_{way}_aerial-trees.py')


def build(way: str) -> torch.nn.Module:
    settings = config(way).model
    settings.backbone.pretrained = False
    torch.manual_seed(0)
    model = MODELS.build(settings)
    model.init_weights()
    return model


def test_there_are_no_other_configs():
    found = {path.name for path in (CONFIGS / 'aerial_trees').glob('*.py')}
    assert found == {f'lite0-retinanet_{way}_aerial-trees.py' for way in LOSSES}
    assert set(aerial_trees.WAYS) == set(LOSSES)


@pytest.mark.parametrize('way', LOSSES)
def test_the_configs_differ_in_the_loss_of_their_name(way: str):
    found = differences(config(way).to_dict(), config('focal').to_dict())
    if way == 'ap':
        found.pop('custom_imports.imports')
        head, base = found.pop('model.bbox_head')
        assert (head.pop('type'), base.pop('type')) == ('AllLevelsRetinaHead', 'RetinaHead')
        assert head.pop('loss_cls') != base.pop('loss_cls')
        assert head == base
    assert set(found) <= {'model.bbox_head.loss_cls'}
    assert type(build(way).bbox_head.loss_cls) is LOSSES[way]


@pytest.mark.parametrize('way', LOSSES)
def test_trains_a_step_and_predicts_without_a_threshold(way: str):
    model = build(way).train()
    data = batch(model, (3, 0))
    for sample in data['data_samples']:
        sample.gt_instances.labels.zero_()
    total, shown = model.parse_losses(model(data['inputs'], data['data_samples'], mode='loss'))
    total.backward()
    assert 0 < total.item() < math.inf
    assert shown['loss_cls'] > 0
    assert model.bbox_head.retina_cls.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in model.backbone.stem.parameters())
    model.eval()
    with torch.no_grad():
        predicted = model(**data, mode='predict')
    assert all(len(sample.pred_instances.scores) > 5 for sample in predicted)


@pytest.fixture(scope='module')
def tiles() -> list[aerial_trees.Tile]:
    return aerial_trees.tiles_of('test')


def detections(tiles: list[aerial_trees.Tile], shift: float, seed: int = 0) -> list[Detected]:
    """Return the trees and the ignored boxes, shifted, and some wrong boxes, with random scores."""
    generator = np.random.default_rng(seed)
    found = []
    for tile in tiles:
        shifts = generator.normal(0, shift, (len(tile.boxes) + len(tile.ignored), 1))
        boxes = np.concatenate([tile.boxes, tile.ignored]) + shifts
        corners = generator.uniform(0, 150, (20, 2))
        boxes = np.concatenate([boxes, np.concatenate([corners, corners + 20], 1)])
        scores = generator.random(len(boxes)).astype(np.float32)
        order = (-scores).argsort()
        found.append(Detected(boxes[order].astype(np.float32), scores[order]))
    return found


@pytest.mark.parametrize('shift', [0.0, 4.0])
def test_the_average_precision_is_that_of_mmdetection(tiles: list[aerial_trees.Tile], shift: float):
    found = detections(tiles, shift)
    weights = draw_weights(np.zeros(len(tiles), int), 2)
    measures = aerial_trees.measure(found, tiles, weights)
    for row, value in enumerate([measures['AP50'].value, *measures['AP50'].resampled]):
        metric = VOCMetric(eval_mode='area')
        metric.dataset_meta = dict(classes=('tree',))
        for tile, (boxes, scores), times in zip(tiles, found, weights[row].astype(int), strict=True):
            sample = dict(
                gt_instances=dict(bboxes=torch.from_numpy(tile.boxes), labels=torch.zeros(len(tile.boxes)).long()),
                ignored_instances=dict(
                    bboxes=torch.from_numpy(tile.ignored), labels=torch.zeros(len(tile.ignored)).long()
                ),
                pred_instances=dict(
                    bboxes=torch.from_numpy(boxes),
                    scores=torch.from_numpy(scores),
                    labels=torch.zeros(len(scores)).long(),
                ),
            )
            for _ in range(times):
                metric.process({}, [sample])
        # Equal scores of a repeated tile are in another order.
        assert value == pytest.approx(
            100 * metric.evaluate(int(weights[row].sum()))['pascal_voc/mAP'], abs=0.5 * row + 0.1
        )


def test_places_are_measured_apart(tiles: list[aerial_trees.Tile]):
    found = [
        Detected(tile.boxes, np.ones(len(tile.boxes), np.float32) * (tile.place.startswith('OSBS') or 0.5))
        if not tile.place.startswith('SOAP')
        else Detected(np.empty((0, 4), np.float32), np.empty(0, np.float32))
        for tile in tiles
    ]
    values = {name: each.value for name, each in aerial_trees.measure(found, tiles, np.ones((1, 14))).items()}
    n_trees = sum(len(tile.boxes) for tile in tiles)
    assert values == pytest.approx(
        {'AP50': 100 * (n_trees - 37) / n_trees, 'Yellowstone': 100, 'Florida': 100, 'California': 0}
    )


def test_finished_runs_are_not_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(ROOT)
    training = Training('ap', 1e-3, 0, 'test', tmp_path, FAST)
    [first] = tree_detectors.train_missing([training])
    assert len(first) == 14
    assert all(len(tile.boxes) == len(tile.scores) for tile in first)
    assert sum(len(tile.scores) for tile in first) > 50
    assert all((np.diff(tile.scores) <= 0).all() for tile in first)
    written = training.path.read_bytes()
    [again] = tree_detectors.train_missing([training])
    assert training.path.read_bytes() == written
    assert all(np.array_equal(a.boxes, b.boxes) for a, b in zip(first, again, strict=True))
    assert Training('ap', 1e-3, 1, 'test', tmp_path, FAST).result() is None
    changed = json.loads(written) | {'fingerprint': 'of other settings'}
    training.path.write_text(json.dumps(changed))
    assert training.result() is None


def test_leaves_a_table_a_picture_and_a_sentence(tiles: list[aerial_trees.Tile], monkeypatch: pytest.MonkeyPatch):
    of_split = {'test': tiles, 'val': aerial_trees.tiles_of('val')}
    shifts = {'ce': 6.0, 'focal': 4.0, 'ap': 2.0}
    asked = []

    def train_missing(trainings):
        asked.extend(trainings)
        return [detections(of_split[t.split], shifts[t.way] + 100 * abs(t.rate - 3e-3), t.seed) for t in trainings]

    monkeypatch.setattr(aerial_trees, 'train_missing', train_missing)
    done = aerial_trees.reproduce([3, 4])
    assert [(row['loss'], row['learning rate']) for row in done.rows] == [
        (name, 3e-3) for name in aerial_trees.WAYS.values()
    ]
    base, focal, ours = done.rows
    assert base['AP50: gain'] == ''
    assert ours['AP50: gain'].startswith('+')
    assert ours['AP50: gain'].endswith('2 of 2')
    assert base['AP50']['mean'] < focal['AP50']['mean'] < ours['AP50']['mean']
    assert len(done.results['search']) == 3 * len(aerial_trees.RATES)
    assert [run['seed'] for run in done.results['runs']] == [3, 4] * 3
    assert {(t.split, t.seed) for t in asked} == {('val', aerial_trees.SEARCH_SEED), ('test', 3), ('test', 4)}
    assert done.found.count('DirectAPLoss against ') == 2
    assert len(done.figure.axes) == 4 + len(aerial_trees.MEASURES)
