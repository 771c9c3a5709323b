"""The configs of action classification: they build, start from AlexNet's weights, and train on people with boxes."""

import needs_mmpretrain  # noqa: F401  isort: skip

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from mmpretrain.models.losses import CrossEntropyLoss
from shipped_configs import CONFIGS, load
from voc_tree import write_voc

from mmseg_nondecomp import DirectAPLoss, DirectZeroOneLoss
from mmseg_nondecomp.datasets.voc_actions import ACTIONS

FOLDER = CONFIGS / 'voc_actions'
CE, HINGE, AP = (FOLDER / f'{name}_alexnet_1xb2093-300_voc12-actions.py' for name in ('ce', 'hinge', 'ap'))
LOADERS = ('train_dataloader', 'val_dataloader', 'test_dataloader')
PEOPLE = (1, 2) * 8
MISSING = 'ridinghorse'
"""An action that no one in the tests does."""


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


@pytest.fixture(scope='module')
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('voc') / 'VOC2012'
    write_voc(root, PEOPLE, tuple(action for action in ACTIONS if action != MISSING))
    return root


class TinyAlexNet(torch.nn.Module):
    """A small backbone that returns scores in a tuple, as AlexNet does."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 11, 8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()
        )
        self.classifier = torch.nn.Linear(64, num_classes)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.classifier(self.layers(images)),)


def small(path: Path, voc: Path, tiny: bool = True) -> Config:
    """Return the config on the people of the tests, in this process, without downloads."""
    cfg = load(path)
    for name in LOADERS:
        cfg[name].dataset.data_root = str(voc)
        cfg[name].update(num_workers=0, persistent_workers=False)
    cfg.train_dataloader.prefetch_factor = None
    cfg.train_dataloader.batch_size = 8
    cfg.model.init_cfg = None
    if tiny:
        cfg.model.backbone = dict(type='TinyAlexNet', num_classes=10)
    return cfg


@pytest.fixture
def tiny_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS.module_dict, 'TinyAlexNet', TinyAlexNet)


def test_there_are_configs_of_the_loss_and_its_baselines():
    assert sorted(FOLDER.glob('*.py')) == [AP, CE, HINGE]
    assert (FOLDER / 'README.md').exists()


OURS = {AP: dict(type='DirectAPLoss', epsilon=0.1), HINGE: dict(type='DirectZeroOneLoss', update='hinge')}


@pytest.mark.parametrize('path', OURS, ids=['ap', 'hinge'])
def test_differs_from_cross_entropy_in_the_loss_alone(path: Path):
    ours, base = load(path), load(CE)
    assert ours.model.head.pop('loss') == OURS[path]
    assert base.model.head.pop('loss') == dict(type='CrossEntropyLoss', use_sigmoid=True)
    assert ours.to_dict() == base.to_dict()


@pytest.mark.parametrize('path', [AP, CE, HINGE], ids=['ap', 'ce', 'hinge'])
def test_the_whole_training_part_is_a_batch_of_which_splits_share_no_image(path: Path):
    cfg = load(path)
    assert cfg.train_dataloader.batch_size == math.ceil(6278 / 3)
    assert f'_1xb{cfg.train_dataloader.batch_size}-{cfg.train_cfg.max_iters}_' in path.name
    assert [cfg[name].dataset.split for name in LOADERS] == ['train', 'val', 'test']
    assert len({cfg[name].dataset.seed for name in LOADERS}) == 1
    fill = cfg.train_dataloader.dataset.pipeline[1].pad_value
    assert fill == tuple(round(mean) for mean in reversed(cfg.data_preprocessor.mean))


@pytest.mark.parametrize('split', range(3))
def test_images_are_crops_of_227_pixels_with_labels_of_ten_actions(voc: Path, split: int):
    dataset = DATASETS.build(small(AP, voc)[LOADERS[split]].dataset)
    items = [dataset[index] for index in range(len(dataset))]
    assert len(items) == sum(PEOPLE) // 3
    for item in items:
        assert item['inputs'].shape == (3, 227, 227)
        assert item['inputs'].dtype == torch.uint8
        assert item['data_samples'].gt_score.shape == (10,)
    assert default_collate(items)['inputs'].shape == (8, 3, 227, 227)
    scores = torch.stack([item['data_samples'].gt_score for item in items])
    assert set(scores.sum(1).tolist()) <= {0, 1, 2}
    assert scores.sum() > 0
    assert not scores[:, ACTIONS.index(MISSING)].any()


def test_starts_from_torchvisions_weights_but_for_the_last_layer(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    weights = torchvision.models.alexnet(weights=None).state_dict()
    asked = []

    def loaded(filename: str, *args: Any, **kwargs: Any) -> dict:
        asked.append(filename)
        return dict(weights)

    monkeypatch.setattr('mmengine.runner.checkpoint._load_checkpoint', loaded)
    cfg = load(AP)
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor))
    model.init_weights()
    assert asked == [torchvision.models.AlexNet_Weights.IMAGENET1K_V1.url]
    found = model.backbone.state_dict()
    assert found.keys() == weights.keys()
    last = {'classifier.6.weight', 'classifier.6.bias'}
    for name in found.keys() - last:
        assert torch.equal(found[name], weights[name]), name
    assert found['classifier.6.weight'].shape == (10, 4096)
    assert found['classifier.6.weight'].std().item() == pytest.approx(0.01, rel=0.05)
    assert not found['classifier.6.bias'].any()


@pytest.mark.parametrize('path', [AP, CE, HINGE], ids=['ap', 'ce', 'hinge'])
def test_alexnet_takes_a_step(path: Path, voc: Path):
    cfg = small(path, voc, tiny=False)
    torch.manual_seed(0)
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor)).train()
    assert type(model.head.loss_module) is {AP: DirectAPLoss, CE: CrossEntropyLoss, HINGE: DirectZeroOneLoss}[path]
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    data = model.data_preprocessor(default_collate([dataset[index] for index in range(4)]), training=True)
    [(name, loss)] = model(**data, mode='loss').items()
    loss.backward()
    assert name == 'loss'
    assert loss.isfinite()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert model.backbone.classifier[-1].weight.grad.any()
    assert model.backbone.features[0].weight.grad.any()


def test_one_network_for_one_action(voc: Path, tiny_is_known: None):
    """The README gives these options to --cfg-options."""
    cfg = small(AP, voc)
    options = {f'{name}.dataset.metainfo.classes': ['phoning'] for name in LOADERS}
    cfg.merge_from_dict(options | {'model.backbone.num_classes': 1})
    torch.manual_seed(0)
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor))
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    data = model.data_preprocessor(default_collate([dataset[index] for index in range(len(dataset))]), training=True)
    labels = torch.stack([sample.gt_score for sample in data['data_samples']])
    assert labels.shape == (sum(PEOPLE) // 3, 1)
    assert 0 < labels.sum() < len(labels)
    loss = model(**data, mode='loss')['loss']
    loss.backward()
    assert 0 < loss < 1
    assert model.backbone.classifier.weight.grad.any()


@pytest.mark.parametrize('path', [AP, CE, HINGE], ids=['ap', 'ce', 'hinge'])
def test_trains_validates_and_tests_with_mmengines_runner(path: Path, voc: Path, tmp_path: Path, tiny_is_known: None):
    cfg = small(path, voc)
    cfg.work_dir = str(tmp_path)
    cfg.visualizer.name = str(tmp_path)  # MMEngine keeps one of each name, with its folder
    cfg.randomness = dict(seed=0)
    cfg.train_cfg.update(max_iters=4, val_interval=2)
    cfg.default_hooks.logger.interval = 1
    cfg.default_hooks.checkpoint.interval = 2
    runner = Runner.from_cfg(cfg)
    runner.train()
    assert runner.iter == 4
    [scalars] = tmp_path.glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in scalars.read_text().splitlines()]
    losses = [line['loss'] for line in lines if 'loss' in line]
    assert len(losses) == 4
    assert np.isfinite(losses).all()
    logged = [line['loss_ap_ap'] for line in lines if 'loss_ap_ap' in line]
    assert len(logged) == (4 if path == AP else 0)
    assert runner.message_hub.log_scalars.keys() >= ({'train/loss_ap_ap'} if path == AP else set())
    if path == AP:
        assert losses == pytest.approx([1 - value for value in logged], abs=1e-4)
    measured = [line['multi-label/mAP'] for line in lines if 'multi-label/mAP' in line]
    assert len(measured) == 2
    assert all(0 < value < 100 for value in measured)
    assert list(tmp_path.glob('best_multi-label_mAP_iter_*.pth'))
    measures = runner.test()
    assert measures['multi-label/mAP'] == pytest.approx(np.mean(measures['multi-label/AP_classwise']), abs=1e-3)
    assert len(measures['multi-label/AP_classwise']) == 10
    assert measures['multi-label/AP_classwise'][ACTIONS.index(MISSING)] == 0
