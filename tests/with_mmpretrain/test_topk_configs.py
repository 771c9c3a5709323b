"""Every shipped config of the top-k losses loads, builds, and trains on the data that its README names."""

import needs_mmpretrain  # noqa: F401  isort: skip

import itertools
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from mmpretrain.datasets import CIFAR100
from mmpretrain.datasets.categories import CIFAR100_CATEGORIES
from mmpretrain.models.losses import CrossEntropyLoss
from mmpretrain.registry import METRICS
from shipped_configs import CONFIGS, differences, each, load

from mmseg_nondecomp import SmoothTopKLoss
from mmseg_nondecomp.transforms._cifar100 import CLASSES, cifar100_groups

FOLDERS = ('cifar100', 'imagenet', 'grouped_shapes')
ALL = sorted(path for folder in FOLDERS for path in (CONFIGS / folder).glob('*.py'))
TOPK = [path for path in ALL if 'topk5' in path.name]
IMAGENET = [path for path in ALL if path.parent.name == 'imagenet']
SHAPES = [path for path in ALL if path.parent.name == 'grouped_shapes']
N_PER_CLASS = 2
"""How many images the subsets of these tests hold out, instead of 50."""


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


def build_model(cfg: Config) -> Any:
    torch.manual_seed(0)
    return MODELS.build(dict(cfg.model, data_preprocessor=cfg.data_preprocessor))


def take_step(cfg: Config, items: list[dict]) -> None:
    """Take one step of the config's optimizer on a batch, which changes the weights."""
    model = build_model(cfg)
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    before = model.head.fc.weight.detach().clone()
    log = model.train_step(pseudo_collate(items), optim_wrapper)
    assert log['loss'].isfinite()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not torch.equal(model.head.fc.weight, before)


def labels_of(dataset: Any) -> list[int]:
    return [int(dataset[index]['data_samples'].gt_label) for index in range(len(dataset))]


def test_there_are_configs():
    counts = Counter(path.parent.name for path in ALL)
    assert set(counts) == set(FOLDERS)
    assert counts['imagenet'] == 10
    assert len(TOPK) >= 8


@each(ALL)
def test_imports_the_package(path: Path):
    cfg = load(path)
    more = {'imagenet': ['mmseg_nondecomp.heads'], 'cifar100': ['mmseg_nondecomp.backbones']}
    imports = ['mmseg_nondecomp', 'mmseg_nondecomp.datasets', *more.get(path.parent.name, [])]
    assert cfg.custom_imports.imports == imports
    assert cfg.custom_imports.allow_failed_imports is False
    assert cfg.default_scope == 'mmpretrain'


@each(ALL)
def test_model_optimizer_and_measure_are_built(path: Path):
    cfg = load(path)
    model = build_model(cfg)
    assert isinstance(model.head.loss_module, SmoothTopKLoss if path in TOPK else CrossEntropyLoss)
    assert model.head.num_classes == cfg.data_preprocessor.num_classes
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    assert sum(len(group['params']) for group in optimizer.param_groups) == len(list(model.parameters()))
    for evaluator in (cfg.val_evaluator, cfg.test_evaluator):
        assert METRICS.build(evaluator).topk == (1, 5)


@each(TOPK)
def test_differs_from_cross_entropy_in_the_loss_alone(path: Path):
    base = path.with_name(path.name.replace('topk5-mixup', 'ce').replace('topk5', 'ce'))
    found = differences(load(path).to_dict(), load(base).to_dict())
    loss, other = found.pop('model.head.loss')
    assert loss == dict(type='SmoothTopKLoss', k=5, tau=1.0 if path.parent.name == 'cifar100' else 0.1)
    assert other['type'] == 'CrossEntropyLoss'
    expected = set()
    if 'mixup' in path.name:
        expected = {'model.train_cfg'}
    if path in IMAGENET:  # The paper found other settings best for the two losses.
        expected = {f'optim_wrapper.optimizer.{setting}' for setting in ('lr', 'weight_decay')}
        # Predictions are the marginals of the model that each loss trains.
        assert found.pop('model.head.k') == (None, 5)
        assert found.pop('model.head.tau') == (None, 0.2)
    assert found.keys() == expected


@each(IMAGENET)
def test_size_of_the_imagenet_subset_is_the_one_of_the_name(path: Path):
    size = re.search(r'in1k-(\d+)k$', path.stem)
    per_class = int(size[1]) if size else None
    train, val = load(path).train_dataloader.dataset, load(path).val_dataloader.dataset
    assert train.get('images_per_class') == per_class
    assert train.skip_per_class == val.images_per_class == 50
    assert train.dataset.split == val.dataset.split == 'train'
    assert load(path).test_dataloader.dataset.split == 'val'


@pytest.fixture
def cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small CIFAR-100 in its real files, which MMPretrain reads without asking for their checksums."""
    folder = tmp_path / 'data' / 'cifar100' / 'cifar-100-python'
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, n in (('train', 5 * N_PER_CLASS), ('test', 1)):
        labels = list(range(100)) * n
        images = rng.integers(0, 256, (len(labels), 3 * 32 * 32), dtype=np.uint8)
        (folder / split).write_bytes(pickle.dumps(dict(data=images, fine_labels=labels)))
    monkeypatch.setattr(CIFAR100, 'train_list', [['train', None]])
    monkeypatch.setattr(CIFAR100, 'test_list', [['test', None]])
    monkeypatch.chdir(tmp_path)


def small(cfg: Config) -> Config:
    """Return the config with few held-out images, loaded in this process."""
    cfg.train_dataloader.dataset.skip_per_class = cfg.val_dataloader.dataset.images_per_class = N_PER_CLASS
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.num_workers = 0
    return cfg


@each([path for path in ALL if path.parent.name == 'cifar100'])
@pytest.mark.parametrize('noise', [0.0, 0.6, 1.0])
def test_noise_reaches_the_labels_of_cifar100_and_no_others(path: Path, noise: float, cifar100: None):
    cfg = small(load(path))
    # What the README gives to --cfg-options.
    cfg.merge_from_dict({'train_dataloader.dataset.dataset.pipeline.0.noise': noise})
    train = DATASETS.build(cfg.train_dataloader.dataset)
    given, clean = labels_of(train), [train.get_cat_ids(index)[0] for index in range(len(train))]
    assert Counter(clean) == dict.fromkeys(range(100), 4 * N_PER_CLASS)
    wrong = np.mean(np.not_equal(given, clean))
    rate, n = 0.8 * noise, len(given)
    assert abs(wrong - rate) <= 5 * (rate * (1 - rate) / n) ** 0.5
    group_of = {cls: group for group in cifar100_groups() for cls in group}
    assert all(label in group_of[cls] for label, cls in zip(given, clean, strict=True))
    assert labels_of(train) == given

    val = DATASETS.build(cfg.val_dataloader.dataset)
    assert labels_of(val) == [val.get_cat_ids(index)[0] for index in range(len(val))]
    assert Counter(labels_of(val)) == dict.fromkeys(range(100), N_PER_CLASS)
    assert not set(val.indices) & set(train.indices)
    assert labels_of(DATASETS.build(cfg.test_dataloader.dataset)) == list(range(100))


@each([path for path in ALL if path.parent.name == 'cifar100'])
def test_cifar100_takes_a_step(path: Path, cifar100: None):
    cfg = small(load(path))
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    batch = next(iter(loader))
    assert len(batch['inputs']) == 64
    assert all(image.shape == (3, 32, 32) for image in batch['inputs'])
    take_step(cfg, [dict(inputs=x, data_samples=y) for x, y in zip(*batch.values(), strict=True)][:4])


def test_classes_of_cifar100_are_numbered_as_in_mmpretrain():
    assert CLASSES == CIFAR100_CATEGORIES
    assert sorted(itertools.chain(*cifar100_groups())) == list(range(len(CIFAR100_CATEGORIES)))


@pytest.fixture
def imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for split, n in (('train', N_PER_CLASS + 3), ('val', 1)):
        for cls in range(4):
            folder = tmp_path / 'data' / 'imagenet' / split / f'n{cls:08d}'
            folder.mkdir(parents=True)
            for index in range(n):
                image = rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)
                cv2.imwrite(str(folder / f'{index}.JPEG'), image)
    monkeypatch.chdir(tmp_path)


@each(IMAGENET)
def test_imagenet_is_loaded_in_the_papers_crops(path: Path, imagenet: None):
    cfg = small(load(path))
    train_set, n_classes = cfg.train_dataloader.dataset, 4
    if 'images_per_class' in train_set:
        train_set.images_per_class = 3
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        settings = loader.dataset.get('dataset', loader.dataset)
        settings.metainfo = dict(classes=tuple(f'n{cls:08d}' for cls in range(n_classes)))
    train, val, test = (
        DATASETS.build(loader.dataset) for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader)
    )
    assert Counter(labels_of(train)) == dict.fromkeys(range(n_classes), 3)
    assert Counter(labels_of(val)) == dict.fromkeys(range(n_classes), N_PER_CLASS)
    assert labels_of(test) == list(range(n_classes))
    items = [train[index] for index in range(2)]
    assert all(item['inputs'].shape == (3, 224, 224) for item in (*items, val[0], test[0]))
    take_step(cfg, items)


@each(SHAPES)
def test_grouped_shapes_takes_a_step_on_noisy_labels(path: Path):
    cfg = load(path)
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    cfg.train_dataloader.dataset.images_per_class = 4
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    items = [loader.dataset[index] for index in range(len(loader.dataset))]
    given = [int(item['data_samples'].gt_label) for item in items]
    clean = [loader.dataset.get_cat_ids(index)[0] for index in range(len(items))]
    assert cfg.groups == [list(range(first, first + 5)) for first in range(0, 100, 5)]
    assert [label // 5 for label in given] == [label // 5 for label in clean]
    wrong = np.mean(np.not_equal(given, clean))
    assert abs(wrong - 0.48) < 5 * (0.48 * 0.52 / len(given)) ** 0.5
    take_step(cfg, items[:50])
    batch = next(iter(loader))
    assert len(batch['inputs']) == cfg.train_dataloader.batch_size


@each(SHAPES)
def test_grouped_shapes_trains_and_validates_with_mmengines_runner(path: Path, tmp_path: Path):
    cfg = load(path)
    cfg.work_dir, cfg.default_hooks.checkpoint.interval = str(tmp_path), 1
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.images_per_class = 1
    runner = Runner.from_cfg(cfg)
    runner.train()
    assert runner.iter == 2
    accuracy = runner.message_hub.get_scalar('val/accuracy/top5').current()
    assert 0 <= accuracy <= 100
    assert (tmp_path / 'epoch_1.pth').exists()
