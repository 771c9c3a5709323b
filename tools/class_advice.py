"""Suggestions of samplers and losses for the classes of a data set: rules of thumb, with their numbers."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from class_report import named, number, percent
from markdown_text import code
from mmengine.config import Config

from mmseg_nondecomp.class_index import ClassIndex

WORTH_IT = 1.5
"""Minimum factor by which a sampler has to increase the frequency of the rarest class to be suggested."""
MOST_REPEATS = 10
"""Maximum factor by which equibatch may repeat the images of the rarest class, compared with uniform sampling."""
IMBALANCED = 10
"""Ratio of pixels above which a loss with equal class weights is suggested."""


@dataclass(frozen=True)
class Advice:
    """Suggestion with lines for a config."""

    title: str
    why: str
    lines: str = ''
    numbers: dict[str, Any] = field(default_factory=dict)
    """Numbers that the suggestion follows from, as in the text."""


@dataclass(frozen=True)
class Sightings:
    """Probability that one draw contains each present class, float64 [C]."""

    in_image: np.ndarray
    """Probability that a uniformly drawn image contains the class."""
    in_crop: np.ndarray
    """Probability that a random crop of it contains the class; the same as ``in_image`` without crops."""
    in_image_equi: np.ndarray
    """Probability that an image drawn by equibatch contains the class."""
    in_crop_equi: np.ndarray
    """Probability that its crop, which is moved to the sampled class, contains the class."""


@dataclass(frozen=True)
class Crop:
    """Random crop of a training pipeline."""

    size: tuple[int, int]
    pipeline: list[dict[str, Any]]
    wrappers: tuple[str, ...]
    """Path to the data set with this pipeline: ``dataset`` or ``datasets`` of each wrapper."""


def advise(index: ClassIndex, stats: dict[str, Any], cfg: Config, batch_size: int) -> list[Advice]:
    """Return suggestions of samplers and losses for the training data."""
    names = [index.class_names[c] for c in index.present_classes]
    crop = find_crop(cfg.train_dataloader.dataset) if stats['unit'] == 'pixels' else None
    seen = sightings(index, crop)
    sampler, shown = advise_sampler(names, seen, crop, cfg, stats)
    losses = [*advise_mean_iou(stats, shown, batch_size, cfg), *advise_max_pooling(stats, cfg)]
    if not losses and stats['unit'] == 'pixels':
        ratio = stats['imbalance']['items']
        why = f'The most frequent class has {number(ratio)} times the pixels of the rarest one, less than {IMBALANCED}'
        losses = [Advice('Loss: cross-entropy is sufficient', f'{why} times.', numbers={'imbalance': ratio})]
    elif not losses:
        losses = [Advice('Loss: no suggestion', f'The rules are for pixels of label maps, not for {stats["unit"]}.')]
    return [sampler, *losses]


def sightings(index: ClassIndex, crop: Crop | None) -> Sightings:
    """Return the probability of each class in one draw, of a uniform sampler and of equibatch.

    The probability that a crop contains a class is estimated for one compact patch of the class's size: a patch of side
    f in an image of side 1 intersects a crop of side a with a probability of about (a + f)².
    """
    present = index.present_classes
    images = index.images_per_class
    row = np.repeat(np.arange(len(index)), np.diff(index.starts))
    # Equibatch draws an image of each class in turn, so the frequency of an image depends on its classes.
    drawn = np.bincount(row, 1 / images[index.classes], len(index)) / len(present)
    in_image = images[present] / len(index)
    in_image_equi = np.bincount(index.classes, drawn[row], index.n_classes)[present]
    visible = np.ones(len(present))
    if crop is not None:
        shown = min(1.0, math.prod(crop.size) / index.n_items.mean())
        holders = np.bincount(index.classes, index.n_items[row], index.n_classes)
        patch = index.items_per_class[present] / holders[present]
        visible = np.minimum(1, (math.sqrt(shown) + np.sqrt(patch)) ** 2)
    for_it = 1 / len(present)
    return Sightings(
        in_image=in_image,
        in_crop=in_image * visible,
        in_image_equi=in_image_equi,
        in_crop_equi=for_it + (in_image_equi - for_it) * visible,
    )


def advise_sampler(
    names: list[str], seen: Sightings, crop: Crop | None, cfg: Config, stats: dict[str, Any]
) -> tuple[Advice, np.ndarray]:
    """Return the suggested sampler and the probability of each class in one of its draws."""
    rarest = int(seen.in_crop.argmin())
    name, at_rarest = names[rarest], {key: float(values[rarest]) for key, values in asdict(seen).items()}
    gain = at_rarest['in_crop_equi'] / at_rarest['in_crop']
    repeats = at_rarest['in_image_equi'] / at_rarest['in_image']
    numbers = {'rarest': name, **at_rarest, 'gain': gain, 'repeats': repeats}
    plain, equi = (one_of(at_rarest[key], 'images') for key in ('in_image', 'in_image_equi'))
    sampler = 'EquiBatchSampler'
    if crop is not None:
        size = ' × '.join(map(str, crop.size))
        plain += f' and, by an estimate, in {one_of(at_rarest["in_crop"], "crops")} of {size} (resizing not counted)'
        equi += f' and {one_of(at_rarest["in_crop_equi"], "crops")}'
        sampler += ' with RandomCropOnClass'
    why = (
        f'With uniform sampling, {code(name)} is in {plain}. {sampler} takes the {len(names)} classes in turn, which '
        f'gives {equi}: {gain:.1f} times as often (suggested from {WORTH_IT} times on).'
    )
    if gain < WORTH_IT:
        return Advice('Sampler: no change', why + in_all_images(stats), numbers=numbers), seen.in_crop
    sampler, shown = 'EquiBatchSampler', seen.in_crop_equi
    if repeats > MOST_REPEATS and stats['unit'] == 'pixels':
        why += (
            f' But the images of {code(name)} would be drawn {number(repeats)} times as often as now (limit: '
            f'{MOST_REPEATS}), and the model may memorise them. IoUAdaptiveSampler draws half of the images uniformly '
            'and prefers a class only while its training IoU is low.'
        )
        sampler, shown = 'IoUAdaptiveSampler', (seen.in_crop + seen.in_crop_equi) / 2  # while all IoU are equal
    lines = sampler_lines(sampler, crop, cfg)
    return Advice(f'Sampler: {sampler}', why + in_all_images(stats), lines, numbers), shown


def one_of(share: float, things: str) -> str:
    """Return a share in words."""
    return f'{percent(share)} % of the {things}' if share > 0.5 else f'one of {number(1 / share)} {things}'


def in_all_images(stats: dict[str, Any]) -> str:
    """Return a note on the classes that occur in every image."""
    even = 1 / sum(row['images'] > 0 for row in stats['classes'])
    names = [r['name'] for r in stats['classes'] if r['images'] == stats['n_images'] and r['item_share'] < even]
    if not names or stats['unit'] != 'pixels':
        return ''
    return (
        f' Samplers have no effect on {named(names)}, in every image; a crop on the class (RandomCropOnClass) may help.'
    )


def advise_mean_iou(stats: dict[str, Any], shown: np.ndarray, batch_size: int, cfg: Config) -> list[Advice]:
    """Suggest the loss for mean IoU if classes are imbalanced."""
    ratio = stats['imbalance']['items']
    if stats['unit'] != 'pixels' or ratio < IMBALANCED:
        return []
    expected = expected_classes(shown, batch_size)
    why = (
        f'The most frequent class has {number(ratio)} times the pixels of the rarest one, and both count equally in '
        f'the mIoU (suggested from {IMBALANCED} times on). The loss is cross-entropy and the Lovász loss, in '
        'proportions that follow the training. It averages over the classes of a batch: one of '
        f'{batch_size}, sampled as above, is expected to contain {expected:.1f} of {len(shown)}.'
    )
    lines = loss_lines([dict(type='MetricLoss', measure='miou')], cfg)
    numbers = {'imbalance': ratio, 'batch_size': batch_size, 'expected_classes': expected}
    return [Advice('Loss: MetricLoss for the mean IoU', why, lines, numbers)]


def advise_max_pooling(stats: dict[str, Any], cfg: Config) -> list[Advice]:
    """Suggest loss max-pooling if few classes hold most of the pixels."""
    n_present = sum(row['images'] > 0 for row in stats['classes'])
    limit = min(0.01, 1 / (5 * n_present))
    rare = [row['item_share'] for row in stats['classes'] if row['images'] and row['item_share'] < limit]
    if stats['unit'] != 'pixels' or not rare:
        return []
    why = (
        f'Classes below {100 * limit:.2g} % of the pixels (1 %, or a fifth of an even share if that is less): '
        f'{len(rare)} of {n_present}. In total they have {percent(sum(rare))} % of the pixels, and of the weight '
        'in a mean over pixels. This loss gives hard pixels larger weights, whatever their class; p = 1.3 and ratio = '
        '0.25 are those of its paper. Its gradients are larger: for SGD, tools/gradient_scale.py shows by how much.'
    )
    loss = dict(type='LossMaxPooling', p=1.3, ratio=0.25)
    numbers = {'limit': limit, 'rare_classes': len(rare), 'rare_share': sum(rare)}
    return [Advice('Loss: LossMaxPooling instead of cross-entropy', why, loss_lines([loss], cfg), numbers)]


def expected_classes(shown: np.ndarray, n_draws: int) -> float:
    """Return the expected number of classes in a number of draws."""
    return float((1 - (1 - shown) ** n_draws).sum())


def find_crop(dataset: dict[str, Any], wrappers: tuple[str, ...] = ()) -> Crop | None:
    """Return the first random crop in the pipelines of a data set and of the data sets that it wraps."""
    for step in dataset.get('pipeline') or []:
        if str(step['type']).rpartition('.')[2] in ('RandomCrop', 'RandomCropOnClass'):
            size = step['crop_size']
            size = (size, size) if isinstance(size, int) else tuple(size)
            return Crop(size, [plain_dict(step) for step in dataset['pipeline']], wrappers)
    if 'datasets' in dataset:
        return find_crop(dataset['datasets'][0], (*wrappers, 'datasets'))
    return find_crop(dataset['dataset'], (*wrappers, 'dataset')) if 'dataset' in dataset else None


def head_lines(cfg: Config, path: str) -> str:
    """Return the first lines of a config that inherits the given one."""
    imports = (cfg.get('custom_imports') or {}).get('imports') or []
    imports = [imports] if isinstance(imports, str) else list(imports)
    lines = [f'_base_ = {spelled([f"./{Path(path).name}"])}']
    if 'mmseg_nondecomp' not in imports:
        imports = ['mmseg_nondecomp', *imports]
        lines.append(f'custom_imports = {spelled(dict(imports=imports, allow_failed_imports=False))}')
    return '\n'.join(lines)


def sampler_lines(name: str, crop: Crop | None, cfg: Config) -> str:
    """Return config lines for a class-driven sampler and a crop for the sampled class."""
    loop = cfg.get('train_cfg') or {}
    # Without something to delete, MMEngine passes `_delete_` on as an argument.
    delete = dict(_delete_=True) if 'sampler' in cfg.train_dataloader else {}
    sampler: dict[str, Any] = {**delete, 'type': name}
    if loop.get('by_epoch') or 'EpochBased' in str(loop.get('type')):
        sampler['infinite'] = False
    lines, loader = [], [f'    sampler={spelled(sampler)},']
    if crop is not None:
        steps = [with_class(step) for step in crop.pipeline]
        lines += ['train_pipeline = [', *(f'    {spelled(step)},' for step in steps), ']']
        if 'datasets' in crop.wrappers:  # MMEngine replaces lists as a whole.
            loader.append('    # and `pipeline=train_pipeline` in each data set that is joined')
        else:
            nested = 'dict(dataset=' * len(crop.wrappers) + 'dict(pipeline=train_pipeline)' + ')' * len(crop.wrappers)
            loader.append(f'    dataset={nested},')
    lines += ['train_dataloader = dict(', *loader, ')']
    if name == 'IoUAdaptiveSampler':
        hooks = [plain_dict(hook) for hook in cfg.get('custom_hooks') or [] if hook['type'] != 'TrainIoUHook']
        lines.append(f'custom_hooks = {spelled([*hooks, dict(type="TrainIoUHook")])}')
    return '\n'.join(lines)


def with_class(step: dict[str, Any]) -> dict[str, Any]:
    """Return the stock crop as a crop for the sampled class, with the same arguments."""
    is_crop = str(step['type']).rpartition('.')[2] == 'RandomCrop'
    return {**step, 'type': 'RandomCropOnClass'} if is_crop else step


def loss_lines(losses: list[dict[str, Any]], cfg: Config) -> str:
    """Return config lines for these losses in the head."""
    head = (cfg.get('model') or {}).get('decode_head')
    lines = ['losses = [', *(f'    {spelled(loss)},' for loss in losses), ']']
    if isinstance(head, dict) and 'loss_decode' in head:
        return '\n'.join([*lines, 'model = dict(decode_head=dict(loss_decode=losses))'])
    return '\n'.join(['# for the `loss_decode` of a decode head', *lines])


def plain_dict(value: Any) -> Any:
    """Return a part of a config as a Python dict."""
    return value.to_dict() if hasattr(value, 'to_dict') else value


def spelled(value: Any) -> str:
    """Return a value in the syntax of configs."""
    if isinstance(value, dict) and all(isinstance(key, str) and key.isidentifier() for key in value):
        return f'dict({", ".join(f"{key}={spelled(item)}" for key, item in value.items())})'
    if isinstance(value, list):
        return f'[{", ".join(map(spelled, value))}]'
    return repr(value)


def told(advice: list[Advice], head: str) -> str:
    """Return the suggestions as Markdown."""
    if not advice:
        return 'Suggestions are for training and come with `--split train`.'
    parts = ['## Suggestions', 'These are rules of thumb; measure the gain with tools/compare.py.']
    if any(item.lines for item in advice):
        parts += ['Add the lines below, with one of the losses, to a config that starts with', block(head)]
    for item in advice:
        parts += [f'### {item.title}', item.why, *([block(item.lines)] if item.lines else [])]
    return '\n\n'.join(parts)


def block(code: str) -> str:
    """Return lines of a config as Markdown."""
    return f'```python\n{code}\n```'
