"""Every shipped config: it loads, its parts build, and it trains what it says it trains."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip('mmseg')

from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope
from mmengine.structures import PixelData
from mmseg.models import EncoderDecoder
from mmseg.registry import MODELS, TRANSFORMS
from mmseg.structures import SegDataSample

from mmseg_nondecomp import LossMaxPooling

ROOT = Path(__file__).resolve().parents[1] / 'configs'
PARTS = sorted(ROOT.glob('_base_/**/*.py'))
LEAVES = sorted(path for path in ROOT.rglob('*.py') if path not in PARTS)
SHAPES = [path for path in LEAVES if path.parent.name == 'long_tail_shapes']
PAPER = [path for path in LEAVES if path.parent.name in ('cityscapes', 'pascal_voc12')]
IGNORED = 255


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


def build_head(cfg: Config, name: str = 'decode_head') -> torch.nn.Module:
    """A head of the config with few channels: its loss and its pixel sampler are what counts."""
    return MODELS.build({**cfg.model[name], 'in_channels': 4, 'channels': 4})


def samples(label: torch.Tensor) -> list[SegDataSample]:
    """Labels [N, H, W] as a head gets them."""
    return [SegDataSample(gt_sem_seg=PixelData(data=item[None]), metainfo=dict(img_shape=item.shape)) for item in label]


def random_batch(n_classes: int, size: int, ignored: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, n_classes, size, size, generator=generator, requires_grad=True)
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
    assert len(PAPER) >= 8


@each(LEAVES)
def test_losses_and_pixel_samplers_build_and_have_a_gradient(path: Path):
    cfg = load(path)
    for name in ('decode_head', 'auxiliary_head'):
        if cfg.model.get(name) is None:
            continue
        head = build_head(cfg, name)
        logits, label = random_batch(cfg.model[name].num_classes, 32)
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


@each(LEAVES)
def test_leaves_import_the_package_if_they_name_its_components(path: Path):
    cfg = load(path)
    text = str(cfg.to_dict())
    if 'LossMaxPooling' in text or 'LongTailShapes' in text:
        assert 'mmseg_nondecomp' in cfg.custom_imports.imports
        assert cfg.custom_imports.allow_failed_imports is False
    if 'LongTailShapes' in text:
        assert 'mmseg_nondecomp.datasets' in cfg.custom_imports.imports


@each(SHAPES)
def test_long_tail_shapes_model_takes_a_training_step(path: Path):
    cfg = load(path)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    before = model.decode_head.conv_seg.weight.detach().clone()
    label = random_batch(cfg.model.decode_head.num_classes, 64)[1]
    images = [torch.randint(256, (3, 64, 64), dtype=torch.uint8) for _ in label]
    log = model.train_step(dict(inputs=images, data_samples=samples(label)), optim_wrapper)
    assert log['loss'].isfinite()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not torch.equal(model.decode_head.conv_seg.weight, before)


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
    torch.testing.assert_close(objective(build_head(cfg), logits, label), expected)

    pooled = LossMaxPooling(p=math.inf, class_weight=weight, scope='batch')(logits, label)
    torch.testing.assert_close(pooled * valid.float().mean(), expected)


def test_ohem_is_the_mean_over_the_quarter_of_the_pixels_with_the_highest_losses():
    cfg = shapes('ohem')
    crop = cfg.train_pipeline[2].crop_size
    assert cfg.model.decode_head.sampler.min_kept == crop[0] * crop[1] // 4
    logits, label = random_batch(16, crop[0])
    expected = cross_entropies(logits, label).flatten().topk(label.numel() // 4).values.mean()
    torch.testing.assert_close(objective(build_head(cfg), logits, label), expected)


def test_pixel_sampler_equals_the_loss():
    logits, label = random_batch(16, 32, ignored=False)
    by_sampler, by_loss = (objective(build_head(shapes(name)), logits, label) for name in ('lmp-sampler', 'lmp'))
    torch.testing.assert_close(by_sampler, by_loss)


@each([path for path in PAPER if path.name.startswith('lmp_')])
def test_lmp_differs_from_its_baseline_in_the_loss_alone(path: Path):
    ours, base = load(path), load(path.with_name(path.name.replace('lmp_', 'ce_', 1)))
    assert ours.model.decode_head.pop('loss_decode') == dict(type='LossMaxPooling', p=1.3, ratio=0.25)
    assert base.model.decode_head.pop('loss_decode').type == 'CrossEntropyLoss'
    ours.pop('custom_imports')
    assert ours.to_dict() == base.to_dict()


@each([path for path in PAPER if path.name.startswith('ce_')])
def test_baseline_is_the_limit_of_max_pooling(path: Path):
    cfg = load(path)
    logits, label = random_batch(cfg.model.decode_head.num_classes, 32)
    limit = LossMaxPooling(p=math.inf, scope='batch')(logits, label)
    torch.testing.assert_close(objective(build_head(cfg), logits, label), limit)


@each(PAPER)
def test_hyper_parameters_are_the_papers(path: Path):
    cfg = load(path)
    crop, batch, iterations, evaluated = {
        'cityscapes': ((550, 550), 2, 165_000, (150_000, 160_000, 165_000)),
        'pascal_voc12': ((321, 321), 4, 200_000, (180_000, 190_000, 200_000)),
    }[path.parent.name]
    steps = {step.type: step for step in cfg.train_pipeline}
    assert steps['RandomCrop'].crop_size == cfg.model.data_preprocessor.size == crop
    assert steps['RandomResize'].ratio_range == (0.5, 1.5)
    assert steps['RandomFlip'].prob == 0.5
    assert cfg.train_dataloader.batch_size == batch
    assert cfg.train_cfg.max_iters == iterations
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.momentum) == ('SGD', 2.5e-4, 0.9)
    assert cfg.param_scheduler == [dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=iterations, by_epoch=False)]
    assert cfg.model.backbone.depth == 101
    assert all(at % cfg.train_cfg.val_interval == 0 for at in evaluated)
    kept = cfg.default_hooks.checkpoint
    saved = range(kept.interval, iterations + 1, kept.interval)[-kept.max_keep_ckpts :]
    assert set(evaluated) <= set(saved)
    assert f'-{iterations // 1000}k_' in path.name
    assert f'_1xb{batch}-' in path.name
    assert path.stem.endswith(f'-{crop[0]}x{crop[1]}')


@each(PAPER)
def test_training_pipeline_yields_crops_of_the_papers_size(path: Path, tmp_path: Path):
    cfg = load(path)
    height, width = (1024, 2048) if path.parent.name == 'cityscapes' else (375, 500)
    cv2.imwrite(str(tmp_path / 'image.png'), np.full((height, width, 3), 128, np.uint8))
    cv2.imwrite(str(tmp_path / 'label.png'), np.zeros((height, width), np.uint8))
    found = dict(
        img_path=str(tmp_path / 'image.png'),
        seg_map_path=str(tmp_path / 'label.png'),
        seg_fields=[],
        reduce_zero_label=False,
        label_map=None,
    )
    np.random.seed(0)
    crops = []
    for pipeline in training_pipelines(cfg):
        transforms = [TRANSFORMS.build(step) for step in pipeline]
        for _ in range(2):
            item: Any = dict(found, seg_fields=[])
            for transform in transforms:
                item = transform(item)
            crops.append(item)
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


@each([path for path in PAPER if path.parent.name == 'pascal_voc12'])
def test_voc_trains_on_both_parts_of_the_augmented_set_and_evaluates_whole_images(path: Path):
    cfg = load(path)
    parts = cfg.train_dataloader.dataset.datasets
    assert [Path(part.ann_file).stem for part in parts] == ['train', 'aug']
    assert cfg.model.decode_head.num_classes == 21
    assert cfg.model.test_cfg.mode == 'whole'
    assert 'Resize' not in [step.type for step in cfg.test_dataloader.dataset.pipeline]


@each([path for path in PAPER if path.parent.name == 'cityscapes'])
def test_cityscapes_evaluates_five_tiles_of_full_height_that_overlap(path: Path):
    widths = []

    def encode_decode(tile: torch.Tensor, metas: list[dict]) -> torch.Tensor:
        widths.append(tile.shape[3])
        assert tile.shape[2] == 1024
        return tile[:, :1]

    model = SimpleNamespace(test_cfg=load(path).model.test_cfg, out_channels=1, encode_decode=encode_decode)
    image = torch.rand(1, 3, 1024, 2048)
    whole = EncoderDecoder.slide_inference(model, image, [dict(ori_shape=(1024, 2048))])
    assert len(widths) == 5
    assert sum(widths) - 4 * 200 == pytest.approx(2048, abs=2)
    torch.testing.assert_close(whole, image[:, :1])
