"""Every shipped config of segmentation loads, builds, and trains on the loss and the data that its README names.

Configs of classification are tested in with_mmpretrain, those of detection in pipeline/test_detection_configs.py.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch.nn.utils import parameters_to_vector

pytest.importorskip('mmseg')

from mmengine import registry
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope, Registry
from mmengine.structures import PixelData
from mmseg.datasets import PascalVOCDataset
from mmseg.models import EncoderDecoder
from mmseg.registry import DATA_SAMPLERS, DATASETS, HOOKS, MODELS, TRANSFORMS
from mmseg.structures import SegDataSample
from packaged_data import needs_data_of
from shipped_configs import CONFIGS as ROOT
from shipped_configs import differences, each, load, stock

import mmseg_nondecomp
from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.functional import predict_in_tiles
from mmseg_nondecomp.samplers.sampled_index import SampledIndex

PARTS = sorted(ROOT.glob('_base_/**/*.py'))
OTHER_TOOLBOXES = ('aerial_trees', 'cifar100', 'coco', 'grouped_shapes', 'imagenet', 'shape_boxes')
OTHER_TOOLBOXES += ('voc_actions', 'voc_detection')
LEAVES = sorted(path for path in ROOT.rglob('*.py') if path not in PARTS and path.parent.name not in OTHER_TOOLBOXES)
SHAPES = [path for path in LEAVES if path.parent.name == 'long_tail_shapes']
LAND = [path for path in LEAVES if path.parent.name == 'land_cover']
PAPER = [path for path in LEAVES if path.parent.name in ('cityscapes', 'pascal_voc12')]
LMP = [path for path in PAPER if re.search('-(165k|200k)_', path.name)]
LOVASZ = [path for path in PAPER if '_1xb10-' in path.name]
BINARY = [path for path in LOVASZ if '-binary-' in path.name]
IGNORED = 255

SAMPLERS = {'equibatch': 'EquiBatchSampler', 'iou': 'IoUAdaptiveSampler'}
"""Samplers by the end of a method's name."""


def method(path: Path) -> tuple[str, str]:
    """Return the loss and the sampling in a file name; the sampling is empty for uniform draws."""
    name = re.sub('^(tiny-unet|lite0-fpn)_', '', path.name).partition('_')[0]
    loss, _, sampling = name.rpartition('-')
    return (loss, sampling) if sampling in SAMPLERS else (name, '')


def with_method(path: Path, loss: str, sampling: str) -> Path:
    """Return the path of the config that differs in the method alone."""
    before, after = (f'-{end}' if end else '' for end in (method(path)[1], sampling))
    old, new = f'{method(path)[0]}{before}_', f'{loss}{after}_'
    assert path.name.count(old) == 1
    return path.with_name(path.name.replace(old, new))


BALANCED_LAND = [path for path in LAND if method(path)[0] == 'imf']
BASELINES = [path for path in PAPER if method(path)[0] == 'ce']
SAMPLED = [path for path in LEAVES if method(path)[1]]


@pytest.fixture(autouse=True)
def _mmseg_scope(request: pytest.FixtureRequest):
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def shapes(name: str) -> Config:
    return load(ROOT / 'long_tail_shapes' / f'tiny-unet_{name}_lts.py')


def build_head(cfg: Config) -> torch.nn.Module:
    """Build a head with few channels, its loss and its pixel sampler."""
    in_channels = [4] * len(cfg.in_channels) if isinstance(cfg.get('in_channels'), list) else 4
    return MODELS.build({**cfg, 'in_channels': in_channels, 'channels': 4})


def samples(label: torch.Tensor) -> list[SegDataSample]:
    """Return labels [N, H, W] in the form of a data sample each."""
    metas = [dict(img_shape=item.shape, img_path=f'{index}.jpg') for index, item in enumerate(label)]
    maps = [PixelData(data=item[None]) for item in label]
    return [SegDataSample(gt_sem_seg=data, metainfo=meta) for data, meta in zip(maps, metas, strict=True)]


def random_batch(
    n_classes: int, size: int, ignored: bool = True, n_channels: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, n_channels or n_classes, size, size, generator=generator, requires_grad=True)
    label = torch.randint(n_classes, (2, size, size), generator=generator)
    if ignored:
        label[0, : size // 4] = IGNORED
    return logits, label


def objective(head: torch.nn.Module, logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the loss of a head, reduced as by the model."""
    losses = head.loss_by_feat(logits, samples(label))
    return sum(loss.mean() for name, loss in losses.items() if 'loss' in name)


def cross_entropies(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, label, reduction='none', ignore_index=IGNORED)


def test_there_are_configs():
    assert len(SHAPES) >= 5
    assert len(LAND) >= 24
    assert len(LMP) >= 16
    assert len(LOVASZ) >= 15
    assert sorted(LMP + LOVASZ) == PAPER
    assert len(SAMPLED) >= 13
    assert all(any((ROOT / folder).glob('*.py')) for folder in OTHER_TOOLBOXES)
    folders = {'ade20k', 'cityscapes', 'land_cover', 'long_tail_shapes', 'pascal_voc12'}
    assert {path.parent.name for path in SAMPLED} == folders
    assert all(with_method(path, *method(path)) == path for path in LEAVES)


@each(LEAVES)
def test_losses_and_pixel_samplers_build_and_have_a_gradient(path: Path):
    cfg = load(path)
    auxiliary = cfg.model.get('auxiliary_head') or []
    for head_cfg in (cfg.model.decode_head, *(auxiliary if isinstance(auxiliary, list) else [auxiliary])):
        head = build_head(head_cfg)
        logits, label = random_batch(head.num_classes, 32, n_channels=head.out_channels)
        if head_cfg.type == 'SMeasureHead':
            logits = logits.detach()[:, :, :1, :1].requires_grad_()  # scores of images
            label[0] = head.of_class or 1  # a big one beside those of many small parts
        loss = objective(head, logits, label)
        loss.backward()
        assert loss.shape == ()
        assert 0 < loss.item() < math.inf
        assert logits.grad.isfinite().all()
        assert logits.grad.abs().sum() > 0


@each(PARTS)
def test_parts_import_nothing(path: Path):
    """MMEngine refuses two parts that define the same name. Hence only leaves import."""
    assert 'custom_imports' not in Config.fromfile(path)


@functools.cache
def components() -> dict[str, str]:
    """Return all names that the package registers, with the modules of their classes."""
    for module in pkgutil.iter_modules(mmseg_nondecomp.__path__):
        importlib.import_module(f'mmseg_nondecomp.{module.name}')
    registries = [value for value in vars(registry).values() if isinstance(value, Registry)]
    for parent in registries:
        registries.extend(parent.children.values())
    modules = {name: cls.__module__ for found in registries for name, cls in found.module_dict.items()}
    return {name: module for name, module in modules.items() if module.split('.')[0] == 'mmseg_nondecomp'}


@functools.cache
def imported_with_the_package() -> frozenset[str]:
    """Return the modules of the package that `import mmseg_nondecomp` loads in a new process."""
    program = 'import sys, mmseg_nondecomp; print(*sys.modules)'
    done = subprocess.run([sys.executable, '-c', program], cwd=ROOT.parent, capture_output=True, text=True, check=True)
    return frozenset(name for name in done.stdout.split() if name.split('.')[0] == 'mmseg_nondecomp')


def types(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get('type'), str):
            yield node['type']
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from types(item)


def test_components_of_all_kinds_are_found():
    assert {'LossMaxPooling', 'LossMaxPoolingPixelSampler', 'LossWeightHook', 'LongTailShapes'} <= components().keys()
    assert {*SAMPLERS.values(), 'RandomCropOnClass', 'TrainIoUHook'} <= components().keys()
    assert 'mmseg_nondecomp.losses' in imported_with_the_package()
    assert 'mmseg_nondecomp.datasets' not in imported_with_the_package()


def components_in(cfg: Config) -> set[str]:
    return {name.rpartition('.')[2] for name in types(cfg.to_dict())} & components().keys()


@each(LEAVES)
def test_leaves_import_the_package_if_they_name_its_components(path: Path):
    cfg = load(path)
    named = components_in(cfg)
    if not named:
        return
    custom = cfg.get('custom_imports', Config(dict(imports=[])))
    assert 'mmseg_nondecomp' in custom.imports
    assert custom.allow_failed_imports is False
    subpackages = tuple(f'{name}.' for name in custom.imports if name != 'mmseg_nondecomp')
    for name in named:
        module = components()[name]
        assert module in imported_with_the_package() or f'{module}.'.startswith(subpackages), f'{name} is in {module}'


def with_small_backbone(cfg: Config) -> Config:
    """Return the config with a ResNet-18 instead of a ResNet-101."""
    if cfg.model.backbone.get('depth') == 101:
        cfg.model.backbone.depth = 18
        for head in (cfg.model.decode_head, cfg.model.auxiliary_head):
            if head:
                head.in_channels //= 4
    return cfg


@each(SHAPES + LAND + PAPER)
def test_small_model_takes_a_training_step(path: Path):
    cfg = with_small_backbone(load(path))
    torch.manual_seed(0)
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    set_loss_weights(cfg, model, iteration=0)
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    before = parameters_to_vector(model.decode_head.conv_seg.parameters()).detach()
    label = random_batch(cfg.model.decode_head.num_classes, 64)[1]
    images = [torch.randint(256, (3, 64, 64), dtype=torch.uint8) for _ in label]
    log = model.train_step(dict(inputs=images, data_samples=samples(label)), optim_wrapper)
    assert log['loss'].isfinite()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not torch.equal(parameters_to_vector(model.decode_head.conv_seg.parameters()), before)


def loss_weight_hooks(cfg: Config) -> list[dict]:
    return [hook for hook in cfg.get('custom_hooks', []) if hook['type'].rpartition('.')[2] == 'LossWeightHook']


def set_loss_weights(cfg: Config, model: torch.nn.Module, iteration: int) -> None:
    runner: Any = SimpleNamespace(model=model, iter=iteration, max_iters=cfg.train_cfg.get('max_iters', 1000))
    for settings in loss_weight_hooks(cfg):
        hook = HOOKS.build(settings)
        hook.before_train(runner)
        hook.before_train_iter(runner, 0)


@each(LEAVES)
def test_loss_weight_hooks_name_losses_of_the_model_and_never_turn_all_off(path: Path):
    cfg = load(path)
    hooks = loss_weight_hooks(cfg)
    if not hooks:
        return
    model = MODELS.build(cfg.model)
    starts = {share for hook in hooks for points in hook['weights'].values() for share, _ in points}
    assert max(starts) < 1, 'training is over before that weight is used'
    for share in starts:
        set_loss_weights(cfg, model, math.ceil(share * cfg.train_cfg.get('max_iters', 1000)))
        heads = [model.decode_head, model.auxiliary_head] if model.with_auxiliary_head else [model.decode_head]
        for head in heads:
            assert any(getattr(loss, 'loss_weight', 0) > 0 for loss in head.modules()), f'from {share}'


def balanced_median_frequency(labels: Iterable[np.ndarray], n_classes: int) -> list[float]:
    """Return the weights of D. Eigen and R. Fergus from the labels of all images."""
    pixels, pixels_of_images_with_it = np.zeros((2, n_classes))
    for label in labels:
        count = np.bincount(label.ravel(), minlength=256)[:n_classes]
        pixels += count
        pixels_of_images_with_it += count.sum() * (count > 0)
    frequency = pixels / pixels_of_images_with_it
    return [float(f'{weight:.3g}') for weight in np.median(frequency) / frequency]


def test_class_weights_balance_the_median_frequency_of_long_tail_shapes():
    """A failure shows the weights to write into the config."""
    from mmseg_nondecomp.datasets import CLASSES, draw_scene
    from mmseg_nondecomp.datasets.long_tail_shapes import NUM_IMAGES

    cfg = shapes('imf')
    assert cfg.train_dataloader.dataset.keys() <= {'type', 'data_root', 'split', 'pipeline'}
    labels = (draw_scene(0, 'train', index).label for index in range(NUM_IMAGES['train']))
    weights = balanced_median_frequency(labels, len(CLASSES))
    assert cfg.model.decode_head.loss_decode.class_weight == pytest.approx(weights, rel=0.03), f'found {weights}'


@each(BALANCED_LAND)
def test_class_weights_balance_the_median_frequency_of_land_cover(path: Path):
    """A failure shows the weights to write into the config."""
    from mmseg_nondecomp.datasets import _world_map

    needs_data_of(_world_map.IMAGE, _world_map.LABELS)
    tiles = _world_map.cut_tiles('train', _world_map.read_image(), _world_map.read_labels())
    weights = balanced_median_frequency((tile.label for tile in tiles), 17)
    assert load(path).model.decode_head.loss_decode.class_weight == weights, f'found {weights}'


@each([path for path in SHAPES + LAND if method(path)[0] == 'imf'])
def test_imf_has_the_value_of_its_definition(path: Path):
    imf = load(path)
    logits, label = random_batch(imf.model.decode_head.num_classes, 32)
    weight = torch.tensor(imf.model.decode_head.loss_decode.class_weight)
    valid = label != IGNORED
    expected = (weight[label.where(valid, 0)] * cross_entropies(logits, label))[valid].sum() / label.numel()
    torch.testing.assert_close(objective(build_head(imf.model.decode_head), logits, label), expected)
    pooled = LossMaxPooling(p=math.inf, class_weight=weight, scope='batch')(logits, label)
    torch.testing.assert_close(pooled * valid.float().mean(), expected)


@each([path for path in SHAPES + LAND + PAPER if method(path)[0] == 'ohem'])
def test_ohem_has_the_value_of_its_definition(path: Path):
    ohem = load(path)
    crop = next(step.crop_size for step in training_pipelines(ohem)[0] if step.type == 'RandomCrop')
    assert ohem.model.decode_head.sampler.min_kept == crop[0] * crop[1] // 4
    logits, label = random_batch(ohem.model.decode_head.num_classes, crop[0])
    expected = cross_entropies(logits, label).flatten().topk(len(label) * (crop[0] * crop[1] // 4)).values.mean()
    torch.testing.assert_close(objective(build_head(ohem.model.decode_head), logits, label), expected)


def test_pixel_sampler_has_the_value_of_max_pooling():
    logits, label = random_batch(16, 32, ignored=False)
    by_sampler, by_loss = (
        objective(build_head(shapes(name).model.decode_head), logits, label) for name in ('lmp-sampler', 'lmp')
    )
    torch.testing.assert_close(by_sampler, by_loss)


@each([path for path in LAND if method(path)[0] == 'focal'])
def test_focal_loss_is_summed_over_classes_and_averaged_over_pixels_that_are_not_ignored(path: Path):
    logits, label = random_batch(17, 32)
    scores = logits.double().movedim(1, -1)[label != IGNORED]
    is_class = F.one_hot(label[label != IGNORED], 17) > 0
    of_truth = torch.where(is_class, scores, -scores).sigmoid()
    expected = -torch.where(is_class, 0.25, 0.75) * (1 - of_truth) ** 2 * of_truth.log()
    found = objective(build_head(load(path).model.decode_head), logits, label)
    torch.testing.assert_close(found.double(), expected.sum(1).mean(), rtol=1e-5, atol=0)


@each([path for path in LAND if path.name.startswith('lite0-fpn_')])
def test_both_networks_on_land_cover_change_the_same_for_a_method(path: Path):
    other = path.with_name(path.name.replace('lite0-fpn_', 'tiny-unet_'))
    changed, expected = (
        differences(load(of).to_dict(), load(with_method(of, 'ce', '')).to_dict()) for of in (path, other)
    )
    assert changed == expected
    assert bool(changed) == (method(path) != ('ce', ''))


OURS = {
    'lmp': dict(type='LossMaxPooling', p=1.3, ratio=0.25),
    'lovasz': dict(type='LovaszSoftmaxLoss', classes='present', scope='batch'),
    'lovasz-hinge': dict(type='LovaszHingeLoss', scope='image'),
    'hinge': dict(type='DirectZeroOneLoss', update='hinge'),
    'rahman-wang': dict(type='SoftIoULoss'),
}


CLASS_WEIGHTS = {'imf': 'median_frequency', 'wce': 'enet'}
"""Weightings of the hook by the names of methods."""


@each([path for path in PAPER if method(path)[0] in CLASS_WEIGHTS])
def test_weighted_cross_entropy_differs_from_its_baseline_in_the_hook_and_the_reduction(path: Path):
    found = differences(load(path).to_dict(), load(with_method(path, 'ce', '')).to_dict())
    hook = dict(type='ClassWeightHook', weighting=CLASS_WEIGHTS[method(path)[0]])
    assert found == {'custom_hooks': ([hook], None), 'model.decode_head.loss_decode.reduction': ('none', None)}


@each([path for path in PAPER if method(path)[0] == 'ohem'])
def test_online_bootstrapping_differs_from_its_baseline_in_the_pixels_alone(path: Path):
    found = differences(load(path).to_dict(), load(with_method(path, 'ce', '')).to_dict())
    loss = {f'model.decode_head.loss_decode.{name}' for name in ('avg_non_ignore', 'loss_weight')}
    assert found.keys() == {'model.decode_head.sampler', *loss}


@each([path for path in PAPER if path not in BASELINES and method(path)[0] not in (*CLASS_WEIGHTS, 'ohem')])
def test_differs_from_its_baseline_in_the_loss_alone(path: Path):
    loss, sampling = method(path)
    found = differences(load(path).to_dict(), load(with_method(path, 'ce', sampling)).to_dict())
    ours, base = found.pop('model.decode_head.loss_decode')
    assert (ours, base['type']) == (OURS[loss], 'CrossEntropyLoss')
    assert found.keys() <= {'custom_imports'}


CROPS = ('RandomCrop', 'RandomCropOnClass')


def comparable(node: Any) -> Any:
    """Return a config with the settings of its crops in place of them, and without marks of the default scope.

    MMEngine marks each part that comes from `mmseg::` with `_scope_`, which has no effect where this is the default
    scope.
    """
    if isinstance(node, dict):
        if node.get('type') in CROPS:
            crop = TRANSFORMS.build(node)
            return 'a crop', crop.crop_size, crop.cat_max_ratio, crop.ignore_index
        return {key: comparable(value) for key, value in node.items() if (key, value) != ('_scope_', 'mmseg')}
    return [comparable(item) for item in node] if isinstance(node, (list, tuple)) else node


@each(SAMPLED)
def test_differs_from_its_twin_in_sampler_crop_and_hook_alone(path: Path):
    loss, sampling = method(path)
    ours, twin = load(path), load(with_method(path, loss, ''))
    assert ours.train_dataloader.pop('sampler') == dict(type=SAMPLERS[sampling])
    assert comparable(twin.train_dataloader.pop('sampler')) == dict(type='InfiniteSampler', shuffle=True)
    added = [dict(type='TrainIoUHook')] if sampling == 'iou' else []
    assert ours.pop('custom_hooks', []) == twin.pop('custom_hooks', []) + added
    assert ours.default_scope == 'mmseg'
    assert [name for name in types(ours.to_dict()) if name in CROPS].count('RandomCrop') == 0
    assert 'RandomCropOnClass' not in types(twin.to_dict())
    assert differences(comparable(ours.to_dict()), comparable(twin.to_dict())).keys() <= {'custom_imports'}


@each([path for path in LEAVES if path not in SAMPLED])
def test_name_without_a_sampling_draws_uniformly(path: Path):
    assert not components_in(load(path)) & {*SAMPLERS.values(), 'RandomCropOnClass', 'TrainIoUHook'}


def training_pipelines(cfg: Config) -> list[list[dict]]:
    dataset = cfg.train_dataloader.dataset
    return [part.pipeline for part in dataset.get('datasets', [dataset])]


@each(PAPER)
def test_name_states_batch_size_schedule_and_crop_size(path: Path):
    cfg = load(path)
    batch, length, unit, *size = re.search(r'_1xb(\d+)-(\d+)(k|e)_.*-(\d+)x(\d+)$', path.stem).groups()
    assert cfg.train_dataloader.batch_size == int(batch)
    assert cfg.crop_size == cfg.model.data_preprocessor.size == tuple(map(int, size))
    end = int(length) * (1000 if unit == 'k' else 1)
    assert end == (cfg.train_cfg.max_iters if unit == 'k' else cfg.train_cfg.max_epochs)
    assert all(part.by_epoch == (unit == 'e') for part in (*cfg.param_scheduler, cfg.default_hooks.checkpoint))
    assert all(part.get('end', end) == end for part in cfg.param_scheduler)
    assert end % cfg.train_cfg.val_interval == end % cfg.default_hooks.checkpoint.interval == 0


def build_sampler(cfg: Config, dataset: Any) -> Any:
    return DATA_SAMPLERS.build(cfg.train_dataloader.sampler, default_args=dict(dataset=dataset, seed=0))


@each(SAMPLED)
def test_training_crops_hold_the_class_that_was_drawn(path: Path, tmp_path: Path):
    """The second class is a patch in a corner, which most random crops miss."""
    cfg = load(path)
    height, width = (1024, 2048) if path.parent.name == 'cityscapes' else (375, 500)
    for pipeline in training_pipelines(cfg):
        shifted = pipeline[1].get('reduce_zero_label', False)
        found = fake_image(tmp_path, height, width)
        label = np.full((height, width), int(shifted), np.uint8)
        label[-12:, -12:] += 1
        cv2.imwrite(found['seg_map_path'], label)
        found.update(sample_idx=SampledIndex(0, cls=1), reduce_zero_label=shifted)
        np.random.seed(0)
        transform = Compose(pipeline)
        for _ in range(4):
            labels = transform(dict(found, seg_fields=[]))['data_samples'].gt_sem_seg.data
            assert (labels == 1).any()


@each([path for path in LMP if path in BASELINES])
def test_baseline_is_the_limit_of_max_pooling(path: Path):
    cfg = load(path)
    logits, label = random_batch(cfg.model.decode_head.num_classes, 32)
    limit = LossMaxPooling(p=math.inf, scope='batch')(logits, label)
    torch.testing.assert_close(objective(build_head(cfg.model.decode_head), logits, label), limit)


@each([path for path in LOVASZ if path in BASELINES])
def test_baseline_of_lovasz_is_the_mean_cross_entropy_of_the_pixels_that_are_not_ignored(path: Path):
    head = build_head(load(path).model.decode_head)
    logits, label = random_batch(head.num_classes, 32, n_channels=head.out_channels)
    valid = label != IGNORED
    if path in BINARY:
        expected = F.binary_cross_entropy_with_logits(logits[:, 0][valid], label[valid].float())
    else:
        expected = cross_entropies(logits, label)[valid].mean()
    torch.testing.assert_close(objective(head, logits, label), expected)


def test_binary_hinge_is_the_mean_hinge_of_the_doubled_scores():
    [path] = [path for path in BINARY if path.name.startswith('hinge_')]
    head = build_head(load(path).model.decode_head)
    logits, label = random_batch(head.num_classes, 32, n_channels=head.out_channels)
    valid = label != IGNORED
    margins = logits[:, 0][valid] * (2 * label[valid] - 1)
    torch.testing.assert_close(objective(head, logits, label), (1 - 2 * margins).clamp(min=0).mean())


@each(BINARY)
def test_binary_head_decides_where_the_score_changes_its_sign(path: Path):
    head = load(path).model.decode_head
    assert (head.num_classes, head.out_channels, head.threshold) == (2, 1, 0.5)
    model: Any = SimpleNamespace(
        align_corners=False, out_channels=1, decode_head=SimpleNamespace(threshold=head.threshold)
    )
    scores = torch.tensor([-9.0, -0.01, 0.01, 9.0]).view(1, 1, 2, 2)
    [sample] = EncoderDecoder.postprocess_result(model, scores)
    assert sample.pred_sem_seg.data.flatten().tolist() == [0, 0, 1, 1]


@each([path for path in LOVASZ if path.parent.name == 'cityscapes'])
def test_lovasz_evaluates_small_cityscapes_images_against_labels_of_full_size(path: Path, tmp_path: Path):
    item = Compose(load(path).test_dataloader.dataset.pipeline)(fake_image(tmp_path, 1024, 2048))
    assert item['inputs'].shape == (3, 512, 1024)
    assert item['data_samples'].gt_sem_seg.shape == item['data_samples'].ori_shape == (1024, 2048)


def test_ade20k_differs_from_the_stock_config_in_the_loss_alone(tmp_path: Path):
    [path] = [path for path in LEAVES if path.parent.name == 'ade20k' and path not in SAMPLED]
    theirs = stock(f'mmseg::deeplabv3/{path.name.removeprefix("ce-lovasz_")}', tmp_path)
    found = differences(load(path).to_dict(), theirs.to_dict())
    (before, added), expected = found.pop('model.decode_head.loss_decode')
    assert (before, added['type']) == (expected, 'LovaszSoftmaxLoss')
    assert found.keys() == {'custom_imports'}


def fake_image(folder: Path, height: int, width: int) -> dict:
    """Write a grey image of class 0 and return its entry in a data set."""
    image, label = (str(folder / f'{name}.png') for name in ('image', 'label'))
    cv2.imwrite(image, np.full((height, width, 3), 128, np.uint8))
    cv2.imwrite(label, np.zeros((height, width), np.uint8))
    return dict(img_path=image, seg_map_path=label, seg_fields=[], reduce_zero_label=False, label_map=None)


@each(PAPER)
def test_training_pipeline_yields_crops_of_the_papers_size(path: Path, tmp_path: Path):
    cfg = load(path)
    height, width = (1024, 2048) if path.parent.name == 'cityscapes' else (375, 500)
    found = fake_image(tmp_path, height, width)
    np.random.seed(0)
    pipelines = [Compose(pipeline) for pipeline in training_pipelines(cfg)]
    crops = [pipeline(dict(found, seg_fields=[])) for pipeline in pipelines for _ in range(2)]
    batch = dict(inputs=[item['inputs'] for item in crops], data_samples=[item['data_samples'] for item in crops])
    batch = MODELS.build(cfg.model.data_preprocessor)(batch, training=True)
    crop = cfg.crop_size
    assert batch['inputs'].shape == (len(crops), 3, *crop)
    labels = torch.stack([sample.gt_sem_seg.data for sample in batch['data_samples']])
    assert labels.shape == (len(crops), 1, *crop)
    assert set(labels.unique().tolist()) <= {0, IGNORED}


@each([path for path in LOVASZ if path.parent.name == 'pascal_voc12' and path not in BINARY])
def test_lovasz_can_be_evaluated_at_the_papers_three_scales(path: Path, tmp_path: Path):
    cfg = load(path)
    assert cfg.tta_model.type == 'SegTTAModel'
    found = Compose(cfg.tta_pipeline)(fake_image(tmp_path, 400, 500))
    assert [image.shape[1:] for image in found['inputs']] == [(400, 500), (300, 375), (200, 250)]


VOC = {
    'train': {'both': [0, 2, 8, 255], 'neither': [0, 12, 12, 255]},
    'aug': {'bicycle': [2, 2, 0, 0], 'cat': [8, 0, 255, 0], 'dog': [12, 0, 0, 0], 'empty': [0, 0, 0, 0]},
    'val': {'shown': [2, 8, 0, 255], 'person': [15, 15, 0, 0], 'sofa': [18, 0, 0, 0], 'ignored': [255, 255, 255, 255]},
}
"""Labels of four pixels for the images of a small Pascal VOC."""


@pytest.fixture
def voc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the small Pascal VOC below the working directory and return its folder."""
    root = tmp_path / 'data' / 'VOCdevkit' / 'VOC2012'
    for folder in ('JPEGImages', 'SegmentationClass', 'SegmentationClassAug', 'ImageSets/Segmentation'):
        (root / folder).mkdir(parents=True)
    for part, labels in VOC.items():
        (root / f'ImageSets/Segmentation/{part}.txt').write_text('\n'.join(labels) + '\n')
        for name, label in labels.items():
            Image.new('RGB', (2, 2)).save(root / f'JPEGImages/{name}.jpg')
            annotated = np.array(label, np.uint8).reshape(2, 2)
            right, wrong = ('Class', 'ClassAug') if part != 'aug' else ('ClassAug', 'Class')
            for folder, pixels in ((right, annotated), (wrong, np.full_like(annotated, 2))):
                image = Image.fromarray(pixels)
                image.putpalette(bytes(range(256)) * 3)
                image.save(root / f'Segmentation{folder}/{name}.png')
    monkeypatch.chdir(tmp_path)
    return root


@each([path for path in SAMPLED if path.parent.name == 'pascal_voc12'])
def test_sampled_voc_images_hold_their_class(path: Path, voc: Path):
    """In both parts of the augmented set, by way of the data loader."""
    cfg = load(path)
    data = DATASETS.build(cfg.train_dataloader.dataset)
    sampler = build_sampler(cfg, data)
    present = {label for part in ('train', 'aug') for labels in VOC[part].values() for label in labels} - {IGNORED}
    assert set(sampler.classes.tolist()) == present
    stream = iter(sampler)
    drawn = [next(stream) for _ in range(12)]
    asked = [index for index in drawn if isinstance(index, SampledIndex)]
    assert asked
    for index in asked:
        sample = data[index]['data_samples']
        assert index.cls in (VOC['train'] | VOC['aug'])[Path(sample.img_path).stem]
        assert index.cls in sample.gt_sem_seg.data


@each([path for path in PAPER if method(path)[0] == 'imf' and path.parent.name == 'pascal_voc12'])
def test_hook_weighs_the_classes_of_both_parts_of_voc(path: Path, voc: Path):
    cfg = load(path)
    head = build_head(cfg.model.decode_head)
    data = DATASETS.build(cfg.train_dataloader.dataset)
    runner: Any = SimpleNamespace(
        model=torch.nn.ModuleList([head]), train_dataloader=SimpleNamespace(dataset=data), logger=logging.getLogger()
    )
    [hook] = cfg.custom_hooks
    HOOKS.build(hook).before_train(runner)
    # Pixels of the class, and labelled pixels of the images that have it: background, bicycle, cat and dog.
    frequency = {0: 13 / 21, 2: 3 / 7, 8: 2 / 6, 12: 3 / 7}
    expected = [np.median(list(frequency.values())) / frequency.get(cls, math.inf) or 1 for cls in range(21)]
    assert head.loss_decode.class_weight == pytest.approx(expected)


@pytest.mark.parametrize('target', ['bicycle', 'cat'])
def test_script_of_the_readme_makes_the_data_of_the_binary_configs(
    target: str, voc: Path, monkeypatch: pytest.MonkeyPatch
):
    [script] = re.findall(r'```python\n(.*?)```', (ROOT / 'pascal_voc12' / 'README.md').read_text(), re.DOTALL)
    choice = "target = 'bicycle'\n"
    assert script.count(choice) == 1
    exec(compile(script.replace(choice, f'target = {target!r}\n'), 'README.md', 'exec'), {})

    index = PascalVOCDataset.METAINFO['classes'].index(target)
    masks = {
        name: [label if label == 255 else int(label == index) for label in labels]
        for part in VOC.values()
        for name, labels in part.items()
    }
    folder = voc / 'OneAgainstRest' / target
    assert {path.stem: np.array(Image.open(path)).ravel().tolist() for path in folder.glob('*.png')} == masks

    train = (folder / 'train.txt').read_text().split()
    assert set(train) <= VOC['train'].keys() | VOC['aug'].keys()
    assert Counter(1 in masks[name] for name in train) == {True: 3, False: 3}
    val = (folder / 'val.txt').read_text().split()
    assert val[0] == 'shown'
    assert len(val) == 2
    assert val[1] in ('person', 'sofa', 'ignored')

    monkeypatch.setenv('VOC_CLASS', target)
    cfg = Config.fromfile(BINARY[0])
    assert cfg.test_dataloader == cfg.val_dataloader
    for loader, names in ((cfg.train_dataloader, train), (cfg.val_dataloader, val)):
        data = DATASETS.build(loader.dataset)
        assert data.metainfo['classes'] == ('rest', target)
        assert len(data) == len(names)
        for i, name in enumerate(names):
            sample = data[i]['data_samples']
            labels = sample.gt_sem_seg.data.flatten().tolist()
            assert Path(sample.img_path).stem == Path(sample.seg_map_path).stem == name
            assert labels == masks[name] if loader is cfg.val_dataloader else set(labels) <= set(masks[name])


def test_binary_configs_default_to_the_bicycle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv('VOC_CLASS', raising=False)
    cfg = Config.fromfile(BINARY[0])
    assert cfg.train_dataloader.dataset.ann_file == 'OneAgainstRest/bicycle/train.txt'
    assert cfg.train_dataloader.dataset.metainfo.classes == ('rest', 'bicycle')


@each([path for path in LMP if path.parent.name == 'cityscapes'])
def test_cityscapes_evaluates_five_tiles_of_full_height_and_cuts_their_overlaps_in_the_middle(path: Path):
    cfg = load(path).model
    assert (cfg.type, cfg.segmentor) == ('TiledSegmentor', 'EncoderDecoder')
    seen = []

    def predict(tile: torch.Tensor) -> torch.Tensor:
        seen.append(tile.shape[2:])
        return torch.full_like(tile, len(seen))

    image = torch.rand(1, 1, 1024, 2048)
    whole = predict_in_tiles(predict, image, cfg.test_cfg.crop_size, cfg.test_cfg.stride)
    assert seen == [(1024, 570)] * 5
    # Tiles begin at 0, 370, 740 and 1110, and the last one where it ends with the image.
    cuts = whole[0, 0, 0].diff().nonzero().flatten() + 1
    assert cuts.tolist() == [(370 + 570) // 2, (740 + 940) // 2, (1110 + 1310) // 2, (1478 + 1680) // 2]
    assert (whole == whole[:, :, :1]).all()
