"""Every shipped config of segmentation: it loads, its parts build, and it trains what it says it trains.

Those of classification are in with_mmpretrain, since MMPretrain is in an environment of its own, those of detection in
pipeline/test_detection_configs.py.
"""

from __future__ import annotations

import copy
import functools
import importlib
import math
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

pytest.importorskip('mmseg')

from mmengine import registry
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.logging import MessageHub
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS, DefaultScope, Registry
from mmengine.structures import PixelData
from mmseg.datasets import PascalVOCDataset
from mmseg.models import EncoderDecoder
from mmseg.registry import DATA_SAMPLERS, DATASETS, HOOKS, MODELS, TRANSFORMS
from mmseg.structures import SegDataSample

import mmseg_nondecomp
from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.functional import predict_in_tiles
from mmseg_nondecomp.hooks.train_iou_hook import TrainIoUHook
from mmseg_nondecomp.samplers.class_driven_sampler import ClassDrivenSampler
from mmseg_nondecomp.samplers.sampled_index import SampledIndex
from mmseg_nondecomp.transforms.random_crop_on_class import RandomCropOnClass

ROOT = Path(__file__).resolve().parents[1] / 'configs'
PARTS = sorted(ROOT.glob('_base_/**/*.py'))
OTHER_TOOLBOXES = ('cifar100', 'coco', 'grouped_shapes', 'imagenet', 'shape_boxes', 'voc_actions', 'voc_detection')
LEAVES = sorted(path for path in ROOT.rglob('*.py') if path not in PARTS and path.parent.name not in OTHER_TOOLBOXES)
SHAPES = [path for path in LEAVES if path.parent.name == 'long_tail_shapes']
PAPER = [path for path in LEAVES if path.parent.name in ('cityscapes', 'pascal_voc12')]
LMP = [path for path in PAPER if re.search('-(165k|200k)_', path.name)]
LOVASZ = [path for path in PAPER if '_1xb10-' in path.name]
BINARY = [path for path in LOVASZ if '-binary-' in path.name]
IGNORED = 255

SAMPLERS = {'equibatch': 'EquiBatchSampler', 'iou': 'IoUAdaptiveSampler'}
"""What the end of a method's name says about its sampling."""


def method(path: Path) -> tuple[str, str]:
    """The loss and the sampling that the file name tells; no sampling for uniform draws."""
    name = path.name.removeprefix('tiny-unet_').partition('_')[0]
    loss, _, sampling = name.rpartition('-')
    return (loss, sampling) if sampling in SAMPLERS else (name, '')


def with_method(path: Path, loss: str, sampling: str) -> Path:
    """The config that differs in the method alone."""
    before, after = (f'-{end}' if end else '' for end in (method(path)[1], sampling))
    old, new = f'{method(path)[0]}{before}_', f'{loss}{after}_'
    assert path.name.count(old) == 1
    return path.with_name(path.name.replace(old, new))


BASELINES = [path for path in PAPER if method(path)[0] == 'ce']
SAMPLED = [path for path in LEAVES if method(path)[1]]


@pytest.fixture(autouse=True)
def _mmseg_scope(request: pytest.FixtureRequest):
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize('path', paths, ids=[path.relative_to(ROOT).as_posix() for path in paths])


@functools.cache
def parsed(path: Path) -> Config:
    return Config.fromfile(path)


def load(path: Path) -> Config:
    return copy.deepcopy(parsed(path))


def shapes(name: str) -> Config:
    return load(ROOT / 'long_tail_shapes' / f'tiny-unet_{name}_lts.py')


def build_head(cfg: Config) -> torch.nn.Module:
    """A head with few channels: its loss and its pixel sampler are what counts."""
    return MODELS.build({**cfg, 'in_channels': 4, 'channels': 4})


def samples(label: torch.Tensor) -> list[SegDataSample]:
    """Labels [N, H, W] as a head gets them."""
    return [
        SegDataSample(
            gt_sem_seg=PixelData(data=item[None]), metainfo=dict(img_shape=item.shape, img_path=f'{index}.jpg')
        )
        for index, item in enumerate(label)
    ]


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
    """The head's loss as the model reduces it."""
    losses = head.loss_by_feat(logits, samples(label))
    return sum(loss.mean() for name, loss in losses.items() if 'loss' in name)


def cross_entropies(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, label, reduction='none', ignore_index=IGNORED)


def test_there_are_configs():
    assert len(SHAPES) >= 5
    assert len(LMP) >= 12
    assert len(LOVASZ) >= 12
    assert sorted(LMP + LOVASZ) == PAPER
    assert len(SAMPLED) >= 13
    assert all(any((ROOT / folder).glob('*.py')) for folder in OTHER_TOOLBOXES)
    assert {path.parent.name for path in SAMPLED} == {'ade20k', 'cityscapes', 'long_tail_shapes', 'pascal_voc12'}
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
    """MMEngine refuses two parts that define the same name, so only a leaf may import."""
    assert 'custom_imports' not in Config.fromfile(path)


@functools.cache
def components() -> dict[str, str]:
    """The names that the package registers, in whichever registry, and the modules of their classes."""
    for module in pkgutil.iter_modules(mmseg_nondecomp.__path__):
        importlib.import_module(f'mmseg_nondecomp.{module.name}')
    registries = [value for value in vars(registry).values() if isinstance(value, Registry)]
    for parent in registries:
        registries.extend(parent.children.values())
    modules = {name: cls.__module__ for found in registries for name, cls in found.module_dict.items()}
    return {name: module for name, module in modules.items() if module.split('.')[0] == 'mmseg_nondecomp'}


@functools.cache
def imported_with_the_package() -> frozenset[str]:
    """The package's modules that `import mmseg_nondecomp` loads in a new process."""
    program = 'import sys, mmseg_nondecomp; print(*sys.modules)'
    done = subprocess.run([sys.executable, '-c', program], cwd=ROOT.parent, capture_output=True, text=True, check=True)
    return frozenset(name for name in done.stdout.split() if name.split('.')[0] == 'mmseg_nondecomp')


def types(node: Any) -> Iterator[str]:
    """Every `type` in a config."""
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
    """What a config names of this package."""
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


@each(SHAPES)
def test_long_tail_shapes_model_takes_a_training_step(path: Path):
    cfg = load(path)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    set_loss_weights(cfg, model, iteration=0)
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    before = model.decode_head.conv_seg.weight.detach().clone()
    label = random_batch(cfg.model.decode_head.num_classes, 64)[1]
    images = [torch.randint(256, (3, 64, 64), dtype=torch.uint8) for _ in label]
    log = model.train_step(dict(inputs=images, data_samples=samples(label)), optim_wrapper)
    assert log['loss'].isfinite()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not torch.equal(model.decode_head.conv_seg.weight, before)


def loss_weight_hooks(cfg: Config) -> list[dict]:
    return [hook for hook in cfg.get('custom_hooks', []) if hook['type'].rpartition('.')[2] == 'LossWeightHook']


def set_loss_weights(cfg: Config, model: torch.nn.Module, iteration: int) -> None:
    """What the config's LossWeightHooks do to the losses before an iteration."""
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


def test_class_weights_balance_the_median_frequency_of_the_training_set():
    """The numbers in the config are those of the data set, or the failure shows the ones to write there."""
    from mmseg_nondecomp.datasets import CLASSES, draw_scene
    from mmseg_nondecomp.datasets.long_tail_shapes import NUM_IMAGES

    cfg = shapes('imf')
    assert cfg.train_dataloader.dataset.keys() <= {'type', 'data_root', 'split', 'pipeline'}
    pixels, pixels_of_images_with_it = np.zeros((2, len(CLASSES)))
    for index in range(NUM_IMAGES['train']):
        count = np.bincount(draw_scene(0, 'train', index).label.ravel(), minlength=256)[: len(CLASSES)]
        pixels += count
        pixels_of_images_with_it += count.sum() * (count > 0)
    frequency = pixels / pixels_of_images_with_it
    weights = [float(f'{weight:.3g}') for weight in np.median(frequency) / frequency]
    assert cfg.model.decode_head.loss_decode.class_weight == pytest.approx(weights, rel=0.03), f'found {weights}'


def test_imf_is_the_mean_of_weighted_cross_entropies():
    cfg = shapes('imf')
    logits, label = random_batch(16, 32)
    weight = torch.tensor(cfg.model.decode_head.loss_decode.class_weight)
    valid = label != IGNORED
    expected = (weight[label.where(valid, 0)] * cross_entropies(logits, label))[valid].sum() / label.numel()
    torch.testing.assert_close(objective(build_head(cfg.model.decode_head), logits, label), expected)

    pooled = LossMaxPooling(p=math.inf, class_weight=weight, scope='batch')(logits, label)
    torch.testing.assert_close(pooled * valid.float().mean(), expected)


def test_ohem_is_the_mean_over_the_quarter_of_the_pixels_with_the_highest_losses():
    cfg = shapes('ohem')
    crop = cfg.train_pipeline[2].crop_size
    assert cfg.model.decode_head.sampler.min_kept == crop[0] * crop[1] // 4
    logits, label = random_batch(16, crop[0])
    expected = cross_entropies(logits, label).flatten().topk(label.numel() // 4).values.mean()
    torch.testing.assert_close(objective(build_head(cfg.model.decode_head), logits, label), expected)


def test_pixel_sampler_equals_the_loss():
    logits, label = random_batch(16, 32, ignored=False)
    by_sampler, by_loss = (
        objective(build_head(shapes(name).model.decode_head), logits, label) for name in ('lmp-sampler', 'lmp')
    )
    torch.testing.assert_close(by_sampler, by_loss)


OURS = {
    'lmp': dict(type='LossMaxPooling', p=1.3, ratio=0.25),
    'lovasz': dict(type='LovaszSoftmaxLoss', classes='present', scope='batch'),
    'lovasz-hinge': dict(type='LovaszHingeLoss', scope='image'),
}


@each([path for path in PAPER if path not in BASELINES])
def test_differs_from_its_baseline_in_the_loss_alone(path: Path):
    loss, sampling = method(path)
    ours, base = load(path), load(with_method(path, 'ce', sampling))
    assert ours.model.decode_head.pop('loss_decode') == OURS[loss]
    assert base.model.decode_head.pop('loss_decode').type == 'CrossEntropyLoss'
    imports = ours.pop('custom_imports')
    assert base.pop('custom_imports', None) == (imports if components_in(base) else None)
    assert ours.to_dict() == base.to_dict()


CROPS = ('RandomCrop', 'RandomCropOnClass')


def without_crops(node: Any) -> Any:
    """A config with a mark wherever a pipeline crops.

    MMEngine notes in each part that comes from `mmseg::` that it does (`_scope_`), which says nothing where this is the
    default scope.
    """
    if isinstance(node, dict):
        items = ((key, value) for key, value in node.items() if (key, value) != ('_scope_', 'mmseg'))
        return 'a crop' if node.get('type') in CROPS else {key: without_crops(value) for key, value in items}
    return [without_crops(item) for item in node] if isinstance(node, (list, tuple)) else node


@each(SAMPLED)
def test_differs_from_its_twin_in_sampler_crop_and_hook_alone(path: Path):
    loss, sampling = method(path)
    ours, twin = load(path), load(with_method(path, loss, ''))
    imports = ours.pop('custom_imports')
    assert twin.pop('custom_imports', imports) == imports
    assert ours.train_dataloader.pop('sampler') == dict(type=SAMPLERS[sampling])
    assert without_crops(twin.train_dataloader.pop('sampler')) == dict(type='InfiniteSampler', shuffle=True)
    added = [dict(type='TrainIoUHook')] if sampling == 'iou' else []
    assert ours.pop('custom_hooks', []) == twin.pop('custom_hooks', []) + added
    assert ours.default_scope == 'mmseg'
    assert 'RandomCrop' not in types(ours.to_dict())
    assert 'RandomCropOnClass' not in types(twin.to_dict())
    assert without_crops(ours.to_dict()) == without_crops(twin.to_dict())


def crop_of(pipeline: list[dict]) -> tuple[int, dict]:
    """The one crop of a pipeline and the place where it stands."""
    [found] = [(place, step) for place, step in enumerate(pipeline) if step['type'] in CROPS]
    return found


@each(SAMPLED)
def test_crop_on_the_class_stands_where_the_crop_of_the_twin_does_and_is_as_large(path: Path):
    ours, twin = (training_pipelines(load(name)) for name in (path, with_method(path, method(path)[0], '')))
    assert len(ours) == len(twin) > 0
    for pipeline, other in zip(ours, twin, strict=True):
        (place, step), (other_place, other_step) = crop_of(pipeline), crop_of(other)
        assert place == other_place
        assert (step.type, other_step.type) == ('RandomCropOnClass', 'RandomCrop')
        crop, stock = TRANSFORMS.build(step), TRANSFORMS.build(other_step)
        assert isinstance(crop, RandomCropOnClass)
        for argument in ('crop_size', 'cat_max_ratio', 'ignore_index'):
            assert getattr(crop, argument) == getattr(stock, argument)


def class_driven(cfg: Config) -> list[str]:
    """The samplers of the training that choose a class first."""
    settings = [cfg.train_dataloader.get(place) for place in ('sampler', 'batch_sampler')]
    classes = [DATA_SAMPLERS.get(item['type']) for item in settings if item is not None]
    assert None not in classes
    return [cls.__name__ for cls in classes if issubclass(cls, ClassDrivenSampler)]


@each(LEAVES)
def test_sampling_for_a_class_comes_with_all_that_belongs_to_it(path: Path):
    cfg = load(path)
    sampling = method(path)[1]
    samplers = class_driven(cfg)
    assert samplers == ([SAMPLERS[sampling]] if sampling else []), 'the name does not tell the sampling'
    hooks = [hook for hook in cfg.get('custom_hooks', []) if HOOKS.get(hook['type']) is TrainIoUHook]
    assert len(hooks) == 1 or 'IoUAdaptiveSampler' not in samplers
    for pipeline in training_pipelines(cfg):
        crops = [name for name in types(pipeline) if issubclass(TRANSFORMS.get(name), RandomCropOnClass)]
        assert len(crops) == len(samplers)


class OneClassEach:
    """As many images as classes; image ``i`` shows class ``i``."""

    def __init__(self, n_classes: int) -> None:
        self.metainfo = dict(classes=tuple(f'class {c}' for c in range(n_classes)))

    def __len__(self) -> int:
        return len(self.metainfo['classes'])

    def get_cat_ids(self, image: int) -> list[int]:
        return [image]


def build_sampler(cfg: Config, dataset: Any) -> Any:
    return DATA_SAMPLERS.build(cfg.train_dataloader.sampler, default_args=dict(dataset=dataset, seed=0))


@each(SAMPLED)
def test_sampler_draws_every_class_without_end(path: Path):
    cfg = load(path)
    n_classes = cfg.model.decode_head.num_classes
    sampler = build_sampler(cfg, OneClassEach(n_classes))
    assert type(sampler).__name__ == SAMPLERS[method(path)[1]]
    assert cfg.train_cfg.type == 'IterBasedTrainLoop'
    stream = iter(sampler)
    drawn = [next(stream) for _ in range(30 * n_classes)]
    asked = [index for index in drawn if isinstance(index, SampledIndex)]
    assert all(index == index.cls for index in asked), 'image i holds class i'
    assert {index.cls for index in asked} == set(range(n_classes))
    if method(path)[1] == 'equibatch':
        assert asked == drawn
        assert sorted(drawn[:n_classes]) == list(range(n_classes))
    else:
        assert len(asked) / len(drawn) == pytest.approx(0.5, abs=0.1)


@each([path for path in SAMPLED if method(path)[1] == 'iou'])
def test_hook_hears_the_head_and_tells_the_sampler(path: Path):
    cfg = load(path)
    head = build_head(cfg.model.decode_head)
    sampler = build_sampler(cfg, OneClassEach(head.num_classes))
    loader = SimpleNamespace(sampler=sampler, batch_sampler=None, dataset=sampler.dataset)
    [hook] = [HOOKS.build(settings) for settings in cfg.custom_hooks]
    runner: Any = SimpleNamespace(
        model=SimpleNamespace(decode_head=head),
        train_dataloader=loader,
        message_hub=MessageHub(path.stem),
        iter=hook.interval - 1,
    )
    logits, label = random_batch(head.num_classes, 32)
    hook.before_train(runner)
    with torch.no_grad():
        logits[label[:, None].expand_as(logits) == 1] = 0
        logits[:, 1][label == 1] = 9
        objective(head, logits, label)
    hook.after_train_iter(runner, 0)
    decided = logits.argmax(1)[label != IGNORED], label[label != IGNORED]
    iou = [torch.stack([d == c for d in decided]) for c in range(head.num_classes)]
    iou = torch.tensor([hit.all(0).sum() / hit.any(0).sum() for hit in iou])
    assert iou[1] > iou.median()
    expected = 1 / iou.clamp(min=0.1)
    assert sampler.class_probabilities() == pytest.approx((expected / expected.sum()).numpy(), rel=1e-5)


@each(SAMPLED)
def test_training_crops_hold_the_class_that_was_drawn(path: Path, tmp_path: Path):
    """A patch in a corner, of the second class, which a crop of any place would mostly miss."""
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


@each(LMP)
def test_hyper_parameters_are_those_of_the_paper_on_loss_max_pooling(path: Path):
    cfg = load(path)
    crop, batch, iterations, evaluated = {
        'cityscapes': ((550, 550), 2, 165_000, (150_000, 160_000, 165_000)),
        'pascal_voc12': ((321, 321), 4, 200_000, (180_000, 190_000, 200_000)),
    }[path.parent.name]
    for pipeline in training_pipelines(cfg):
        assert pipeline == cfg.train_pipeline
        steps = {step.type: step for step in pipeline}
        assert crop_of(pipeline)[1].crop_size == cfg.model.data_preprocessor.size == crop
        assert steps['RandomResize'].ratio_range == (0.5, 1.5)
        assert steps['RandomFlip'].prob == 0.5
    assert cfg.train_dataloader.batch_size == batch
    assert cfg.train_cfg.max_iters == iterations
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.momentum) == ('SGD', 2.5e-4, 0.9)
    assert cfg.param_scheduler == poly(iterations)
    assert cfg.model.backbone.depth == 101
    assert all(at % cfg.train_cfg.val_interval == 0 for at in evaluated)
    kept = cfg.default_hooks.checkpoint
    saved = range(kept.interval, iterations + 1, kept.interval)[-kept.max_keep_ckpts :]
    assert set(evaluated) <= set(saved)
    assert f'-{iterations // 1000}k_' in path.name
    assert f'_1xb{batch}-' in path.name
    assert path.stem.endswith(f'-{crop[0]}x{crop[1]}')


def poly(iterations: int) -> list[dict]:
    return [dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=iterations, by_epoch=False)]


@each([path for path in LOVASZ if path.parent.name == 'pascal_voc12'])
def test_lovasz_trains_voc_on_batches_of_ten_crops(path: Path):
    cfg = load(path)
    for pipeline in training_pipelines(cfg):
        steps = {step.type: step for step in pipeline}
        assert crop_of(pipeline)[1].crop_size == cfg.model.data_preprocessor.size == (321, 321)
        assert steps['RandomResize'].ratio_range == (0.5, 1.5)
        assert steps['RandomFlip'].prob == 0.5
    assert cfg.train_dataloader.batch_size == 10
    assert cfg.model.backbone.depth == 101
    assert cfg.model.get('auxiliary_head') is None
    assert path.stem.endswith('-321x321')


@each([path for path in LOVASZ if path.parent.name == 'pascal_voc12' and path not in BINARY])
def test_schedule_of_lovasz_on_voc_is_the_papers(path: Path):
    cfg = load(path)
    iterations = 1000 * int(re.search(r'-(\d+)k_', path.name)[1])
    assert iterations in (20_000, 30_000)
    assert cfg.train_cfg.max_iters == iterations
    assert cfg.param_scheduler == poly(iterations)
    assert cfg.optim_wrapper.optimizer == dict(type='SGD', lr=2.5e-4, momentum=0.9, weight_decay=5e-4)
    assert iterations % cfg.default_hooks.checkpoint.interval == iterations % cfg.train_cfg.val_interval == 0


@each(BINARY)
def test_schedule_of_the_hinge_is_two_epochs_at_two_learning_rates(path: Path):
    cfg = load(path)
    assert '-2e_' in path.name
    assert (cfg.train_cfg.type, cfg.train_cfg.max_epochs) == ('EpochBasedTrainLoop', 2)
    sampler = cfg.train_dataloader.sampler
    assert (sampler.type, sampler.shuffle) == ('DefaultSampler', True), 'an endless sampler has no epochs'
    assert cfg.default_hooks.logger.log_metric_by_epoch
    assert cfg.default_hooks.checkpoint.by_epoch
    assert cfg.default_hooks.checkpoint.interval == cfg.train_cfg.val_interval == 1
    assert cfg.log_processor.by_epoch
    assert cfg.optim_wrapper.optimizer == dict(type='SGD', lr=5e-4, momentum=0.9, weight_decay=5e-4)
    [schedule] = cfg.param_scheduler
    assert schedule == dict(type='MultiStepLR', milestones=[1], gamma=0.2, by_epoch=True)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=cfg.optim_wrapper.optimizer.lr)
    scheduler = PARAM_SCHEDULERS.build(schedule, default_args=dict(optimizer=optimizer))
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]['lr'] == pytest.approx(1e-4)


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
def test_lovasz_fine_tunes_on_whole_cityscapes_images_with_adam(path: Path):
    cfg = load(path)
    steps = [step.type for step in cfg.train_pipeline]
    assert steps == ['LoadImageFromFile', 'LoadAnnotations', 'Resize', 'PackSegInputs'], 'no random step'
    assert cfg.model.data_preprocessor.size == (512, 1024)
    assert cfg.train_dataloader.batch_size == 10
    assert cfg.optim_wrapper.optimizer == dict(type='Adam', lr=2.5e-4)
    assert cfg.param_scheduler == poly(10_000)
    assert cfg.train_cfg.max_iters == 10_000
    assert cfg.default_hooks.checkpoint.interval == cfg.train_cfg.val_interval == 1000
    assert cfg.default_hooks.checkpoint.get('max_keep_ckpts', -1) == -1, 'all snapshots are kept'
    assert cfg.model.decode_head.num_classes == 19
    assert cfg.model.test_cfg.mode == 'whole'
    assert '-10k_' in path.name
    assert path.stem.endswith('-512x1024')


@each([path for path in LOVASZ if path.parent.name == 'cityscapes'])
def test_lovasz_evaluates_small_cityscapes_images_against_labels_of_full_size(path: Path, tmp_path: Path):
    item = Compose(load(path).test_dataloader.dataset.pipeline)(fake_image(tmp_path, 1024, 2048))
    assert item['inputs'].shape == (3, 512, 1024)
    assert item['data_samples'].gt_sem_seg.shape == item['data_samples'].ori_shape == (1024, 2048)


def test_ade20k_differs_from_the_stock_config_in_the_loss_alone(tmp_path: Path):
    [path] = [path for path in LEAVES if path.parent.name == 'ade20k' and path not in SAMPLED]
    unchanged = tmp_path / 'unchanged.py'
    unchanged.write_text(f"_base_ = 'mmseg::deeplabv3/{path.name.removeprefix('ce-lovasz_')}'")
    ours, stock = load(path), Config.fromfile(unchanged)
    before, added = ours.model.decode_head.pop('loss_decode')
    assert before == stock.model.decode_head.pop('loss_decode')
    assert (before.type, added.type) == ('CrossEntropyLoss', 'LovaszSoftmaxLoss')
    ours.pop('custom_imports')
    assert ours.to_dict() == stock.to_dict()
    assert ours.model.decode_head.num_classes == ours.model.auxiliary_head.num_classes == 150


def fake_image(folder: Path, height: int, width: int) -> dict:
    """A grey image that shows class 0 alone, as a data set hands it to its pipeline."""
    cv2.imwrite(str(folder / 'image.png'), np.full((height, width, 3), 128, np.uint8))
    cv2.imwrite(str(folder / 'label.png'), np.zeros((height, width), np.uint8))
    return dict(
        img_path=str(folder / 'image.png'),
        seg_map_path=str(folder / 'label.png'),
        seg_fields=[],
        reduce_zero_label=False,
        label_map=None,
    )


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


def training_pipelines(cfg: Config) -> list[list[dict]]:
    dataset = cfg.train_dataloader.dataset
    return [part.pipeline for part in dataset.get('datasets', [dataset])]


@each([path for path in PAPER if path.parent.name == 'pascal_voc12' and path not in BINARY])
def test_voc_trains_on_both_parts_of_the_augmented_set_and_evaluates_whole_images(path: Path):
    cfg = load(path)
    parts = cfg.train_dataloader.dataset.datasets
    assert [Path(part.ann_file).stem for part in parts] == ['train', 'aug']
    assert cfg.model.decode_head.num_classes == 21
    assert cfg.model.test_cfg.mode == 'whole'
    assert 'Resize' not in [step.type for step in cfg.test_dataloader.dataset.pipeline]


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
    """The folder of the small Pascal VOC, below the present one."""
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
    """Through both parts of the augmented set, as the data loader asks for them."""
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


def test_binary_configs_are_of_the_bicycle_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch):
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
