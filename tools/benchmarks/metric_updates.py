"""Metrics of the package compared with those of torchmetrics, MONAI and scikit-learn: one update and the value."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torchmetrics.classification import BinaryAveragePrecision, MulticlassAccuracy, MulticlassJaccardIndex
from torchmetrics.segmentation import MeanIoU

from benchmarks import Case, Step
from benchmarks.peers import module_of
from benchmarks.scenes import half_trained, one_hot, shape_label, sizes
from mmseg_nondecomp.metrics import (
    DirectAveragePrecision,
    JaccardIndexByImage,
    LovaszJaccardIndex,
    SmoothTopKAccuracy,
    SoftJaccardIndex,
)


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for each metric and the closest ones of other libraries."""
    for side in sizes(quick, 128, 256, 512):
        yield of_probabilities((2, 19, side, side))
    for side in sizes(quick, 128, 256, 512):
        yield by_image((2, 19, side, side))
    for n_classes in sizes(quick, 100, 1000, 10_000):
        yield of_topk(256, n_classes)
    for n_items in sizes(quick, 10_000, 100_000, 1_000_000):
        yield of_rankings(n_items)


def of_probabilities(shape: tuple[int, ...]) -> Case:
    """Return the case of data set IoUs: of decisions, and the differentiable ones of probabilities."""
    logits, target = half_trained(shape)
    probs = logits.detach().softmax(1)
    metrics = {
        'MulticlassJaccardIndex of torchmetrics': MulticlassJaccardIndex(19),
        'LovaszJaccardIndex': LovaszJaccardIndex(19),
        'SoftJaccardIndex': SoftJaccardIndex(19),
    }
    steps = {name: update_and_compute(metric, probs, target) for name, metric in metrics.items()}
    return Case('IoU of a batch', shape_label(shape), target.numel(), 'pixels', steps, probs)


def by_image(shape: tuple[int, ...]) -> Case:
    """Return the case of image IoUs of decisions; peers with a single average have no ignored labels."""
    logits, target = half_trained(shape)
    decided = logits.detach().max(1).indices
    n_classes = shape[1]
    steps: dict[str, Step] = {
        'MeanIoU of torchmetrics, image IoU alone': update_and_compute(
            MeanIoU(n_classes, input_format='index'), decided, target
        ),
        'JaccardIndexByImage, five averages': update_and_compute(JaccardIndexByImage(n_classes), decided, target),
    }
    if monai := module_of('monai.metrics'):
        of_monai = monai.MeanIoU()

        def step() -> Any:
            of_monai.reset()
            of_monai(one_hot(decided, n_classes), one_hot(target, n_classes))
            return of_monai.aggregate()

        steps['MeanIoU of MONAI, image IoU alone'] = step
    return Case('IoU by image of a batch', shape_label(shape), target.numel(), 'pixels', steps, decided)


def of_topk(n: int, n_classes: int) -> Case:
    """Return the case of top-5 accuracies, hard and smooth."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n, n_classes, generator=generator)
    target = torch.randint(0, n_classes, (n,), generator=generator)
    metrics = {
        'MulticlassAccuracy(top_k=5) of torchmetrics': MulticlassAccuracy(n_classes, top_k=5, average='micro'),
        'SmoothTopKAccuracy': SmoothTopKAccuracy(n_classes, k=5),
    }
    steps = {name: update_and_compute(metric, scores, target) for name, metric in metrics.items()}
    return Case('top-5 accuracy of a batch', f'{n}x{n_classes}', n_classes, 'classes', steps, scores)


def of_rankings(n: int) -> Case:
    """Return the case of average precision with one positive in twenty scores."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.05).long()
    scores = (torch.randn(n, generator=generator) + 2 * target).sigmoid()
    metrics = {
        'BinaryAveragePrecision of torchmetrics': BinaryAveragePrecision(),
        'BinaryAveragePrecision(thresholds=200)': BinaryAveragePrecision(thresholds=200),
        'DirectAveragePrecision': DirectAveragePrecision(),
        'DirectAveragePrecision(bins=65536)': DirectAveragePrecision(bins=65_536),
    }
    steps = {name: update_and_compute(metric, scores, target) for name, metric in metrics.items()}
    if sklearn := module_of('sklearn.metrics'):
        steps['average_precision_score of scikit-learn'] = lambda: sklearn.average_precision_score(target, scores)
    return Case('average precision of a batch', f'{n} items', n, 'items', steps, scores)


def update_and_compute(metric: Any, preds: Tensor, target: Tensor) -> Callable[[], Any]:
    """Return a function that constructs, updates and computes a metric."""

    def step() -> Any:
        metric.reset()
        metric.update(preds, target)
        return metric.compute()

    return step
