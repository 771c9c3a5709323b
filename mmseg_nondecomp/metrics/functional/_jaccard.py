"""The differentiable Jaccard indices of a batch: one minus the Jaccard losses, averaged over classes."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes, Inputs, check_classes, check_integer
from mmseg_nondecomp.functional.lovasz.extension import shares_of_bins
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins, error_histogram, loss_of_bins
from mmseg_nondecomp.functional.overlap import SoftSums, losses_of_sums, soft_sums
from mmseg_nondecomp.metrics.functional._inputs import (
    Layout,
    decided_classes,
    is_decided,
    layout_of,
    probability_inputs,
    value_dtype,
)


def lovasz_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
    bins: int = 1024,
    mode: str | None = None,
    from_logits: bool | None = None,
) -> Tensor:
    """Compute one minus the Lovász-Softmax loss of all pixels, averaged over classes, or of each class [C].

    Arguments are those of :class:`mmseg_nondecomp.metrics.LovaszJaccardIndex`; this is its value for a single batch.

    Example:
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> lovasz_jaccard_index(probs, torch.tensor([0, 1, 1]), num_classes=2)
        tensor(0.5667)
    """
    layout = layout_of(num_classes, mode, from_logits, ignore_index)
    check_averaging(num_classes, classes, average)
    check_integer('bins', bins, lowest=1)
    state = lovasz_sums(preds, target, layout, bins)
    index = lovasz_index(state['mass'], state['errors'])
    return jaccard_average(*index, state['decided'], classes, average, ignore_index).to(value_dtype(preds))


def lovasz_sums(preds: Tensor, target: Tensor, layout: Layout, bins: int) -> dict[str, Tensor]:
    """Return mass and sum of errors in each bin [C, 2, T], and the number of pixels decided for each class [C]."""
    inputs = probability_inputs(preds, target, layout)
    mass, errors = error_histogram(inputs, ProbabilityBins(bins), per_image=False)
    return {'mass': mass[0], 'errors': errors[0], 'decided': count_decided(preds, inputs, layout)}


def lovasz_index(mass: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of each class, and whether it has a true pixel."""
    mass = mass.double()
    return 1 - loss_of_bins(errors, shares_of_bins(mass)), mass[:, 1].sum(1) > 0


def soft_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
    mode: str | None = None,
    from_logits: bool | None = None,
) -> Tensor:
    """Compute the ratio of soft intersection and soft union of all pixels, averaged over classes, or of each class [C].

    Arguments are those of :class:`mmseg_nondecomp.metrics.SoftJaccardIndex`; this is its value for a single batch.

    Example:
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> soft_jaccard_index(probs, torch.tensor([0, 1, 1]), num_classes=2)
        tensor(0.4605)
    """
    layout = layout_of(num_classes, mode, from_logits, ignore_index)
    check_averaging(num_classes, classes, average)
    state = soft_index_sums(preds, target, layout)
    index = soft_index(state['sums'])
    return jaccard_average(*index, state['decided'], classes, average, ignore_index).to(value_dtype(preds))


def soft_index_sums(preds: Tensor, target: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return the `SoftSums` of each class [C, 4], and the number of pixels decided for it [C]."""
    inputs = probability_inputs(preds, target, layout)
    sums = torch.stack(soft_sums(inputs, per_image=False), 2)[0]
    return {'sums': sums, 'decided': count_decided(preds, inputs, layout)}


def soft_index(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of each class, and whether it has a true pixel."""
    losses, present, _ = losses_of_sums(SoftSums(*sums.double().unsqueeze(0).unbind(2)))
    return 1 - losses[0], present[0]


def check_averaging(num_classes: int, classes: Classes, average: str | None) -> None:
    """Raise unless these are arguments of an average over classes."""
    if classes != 'seen':
        check_classes(classes)
    if not isinstance(classes, str) and max(classes) >= num_classes:
        raise ValueError(
            f'Parameter `classes` should list classes below {num_classes}, the number of classes. Found {max(classes)}.'
        )
    if average not in ('macro', 'none', None):
        raise ValueError(f"Parameter `average` should be 'macro' or None. Found {average!r}.")


def count_decided(preds: Tensor, inputs: Inputs, layout: Layout) -> Tensor:
    """Return the number of items that are decided for each class, of shape [C]."""
    if layout.mode == 'multilabel':
        return (is_decided(inputs) & inputs.valid.unsqueeze(1)).sum((0, 2))
    mass = inputs.mass.flatten()
    counts = mass.new_zeros(inputs.n_classes + 1)
    return counts.scatter_add_(0, decided_classes(preds, inputs).flatten(), mass)[:-1]


def is_ignored_class(num_classes: int, ignore_index: int | None) -> bool:
    """Return whether the label to ignore is a class, which then counts in no average."""
    # Labels of a single class, 0 and 1, are not the indices of classes.
    return ignore_index is not None and num_classes > 1 and 0 <= ignore_index < num_classes


def jaccard_average(
    index: Tensor, present: Tensor, decided: Tensor, classes: Classes, average: str | None, ignore_index: int | None
) -> Tensor:
    """Average the index [C] over the classes that count, or return it, NaN where a class does not count.

    ``present`` [C] is whether a class has a true item, ``decided`` [C] the number of items that are decided for it. An
    ignored label that is a class counts only where it is listed.
    """
    n_classes = len(index)
    if classes == 'all':
        counted = torch.ones_like(present)
    elif classes == 'present':
        counted = present
    elif classes == 'seen':
        counted = present | (decided > 0)
    else:
        counted = torch.tensor([c in classes for c in range(n_classes)], device=present.device)
    if isinstance(classes, str) and is_ignored_class(n_classes, ignore_index):
        counted = counted & (torch.arange(n_classes, device=counted.device) != ignore_index)
    if average != 'macro':
        return torch.where(counted, index, torch.nan)
    return torch.where(counted, index, 0).sum() / counted.sum()
