"""Decisions for expected IoU or Dice, and a dense CRF, compared with a softmax and with rankseg, on one thread."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import Case, Step
from benchmarks.peers import module_of
from benchmarks.scenes import shape_label
from mmseg_nondecomp.functional.decisions.expected_overlap import decide_overlap
from mmseg_nondecomp.functional.decisions.mean_field import dense_crf

Decision = Callable[[Tensor], Tensor]

CRF_UPDATES = 3


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for random logits and for those of smooth regions, of 19 classes and of one."""
    size = (12, 24) if quick else (512, 1024)
    for n_classes in (19, 1):
        for name, scene in (('random logits', random_logits), ('smooth regions', smooth_regions)):
            yield deciding(scene((1, n_classes, *size)), name)


def deciding(logits: Tensor, name: str) -> Case:
    """Return the case of an image; every candidate begins with the logits."""
    n_classes = logits.shape[1]
    is_single = n_classes == 1
    first, activation = ('sigmoid', torch.sigmoid) if is_single else ('softmax', softmax)
    most_probable = 'logits above 0' if is_single else 'argmax of the logits'
    steps: dict[str, Step] = {first: lambda: activation(logits), most_probable: lambda: highest_logit(logits)}
    image = colours(logits)
    decisions = overlaps(is_single) | peers(is_single)
    decisions[f'dense_crf, {CRF_UPDATES} updates'] = lambda p: dense_crf(p, image, iterations=CRF_UPDATES)
    for candidate, decision in decisions.items():
        steps[f'{first}, {candidate}'] = lambda decision=decision: decision(activation(logits))
    group = f'deciding an image, {"one class" if is_single else f"{n_classes} classes"}, {name}'
    on_one = {candidate: on_one_thread(step) for candidate, step in steps.items()}
    return Case(group, shape_label(logits.shape[1:]), logits[0, 0].numel(), 'pixels', on_one, logits)


def overlaps(is_single: bool) -> dict[str, Decision]:
    """Return decisions of the package."""
    found: dict[str, Decision] = {
        'decide_overlap, IoU': decide_overlap,
        'decide_overlap, Dice': lambda p: decide_overlap(p, 'dice'),
        'decide_overlap, IoU to the first order': lambda p: decide_overlap(p, expectation='first_order'),
    }
    if is_single:
        found['decide_overlap, IoU, sorted'] = lambda p: decide_overlap(p, bins=None)
    else:
        found['decide_overlap, IoU, multilabel'] = lambda p: decide_overlap(p, mode='multilabel')
    return found


def peers(is_single: bool) -> dict[str, Decision]:
    """Return the solver of rankseg for large images, without pruning of classes."""
    rankseg = module_of('rankseg.functional')
    if rankseg is None:
        return {}
    options = dict(output_mode='multilabel' if is_single else 'multiclass', solver='RMA', pruning_prob=0.0)
    return {
        'rankseg, IoU': lambda p: rankseg.rankseg(p, 'iou', **options),
        'rankseg, Dice': lambda p: rankseg.rankseg(p, 'dice', **options),
    }


def softmax(logits: Tensor) -> Tensor:
    """Return the probabilities of classes without overlap."""
    return logits.softmax(1)


def highest_logit(logits: Tensor) -> Tensor:
    """Return the most probable classes; of one class, where it is more probable than not."""
    return logits.argmax(1) if logits.shape[1] > 1 else (logits[:, 0] > 0).long()


def random_logits(shape: tuple[int, ...]) -> Tensor:
    """Return independent logits."""
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def smooth_regions(shape: tuple[int, ...]) -> Tensor:
    """Return logits like those of a trained network: blobs of several scales, and a little noise."""
    generator = torch.Generator().manual_seed(0)
    n, n_classes, height, width = shape
    logits = 0.3 * torch.randn(shape, generator=generator)
    for scale, deviation in ((4, 2), (16, 5), (64, 15)):
        coarse = torch.randn(n, n_classes, height // scale + 2, width // scale + 2, generator=generator)
        logits += deviation * F.interpolate(coarse, size=(height, width), mode='bilinear', align_corners=False)
    rarity = torch.linspace(0, 1, n_classes + 1)[1:].view(1, -1, 1, 1)
    return logits - 10 * rarity


def colours(logits: Tensor) -> Tensor:
    """Return an image [1, 3, H, W] whose colours follow the most probable classes, with noise."""
    generator = torch.Generator().manual_seed(0)
    palette = 255 * torch.rand(max(2, logits.shape[1]), 3, generator=generator)
    image = palette[highest_logit(logits)].movedim(-1, 1)
    return (image + 10 * torch.randn(image.shape, generator=generator)).clamp(0, 255).round()


def on_one_thread(step: Step) -> Step:
    """Return a step that uses one thread, whatever the number of the process."""

    def run() -> object:
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return step()
        finally:
            torch.set_num_threads(n_threads)

    return run
