"""What the differentiable Jaccard metrics share: their arguments, and the average over classes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes, check_classes
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.metrics.plotted import PlottedMetric
from mmseg_nondecomp.metrics.segmentation import (
    check_ignore_index,
    check_num_classes,
    decided_classes,
    probability_items,
)


class JaccardMetric(PlottedMetric):
    """One minus a Jaccard loss of each class, averaged over classes.

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: Which classes are averaged: ``'seen'`` (true or decided on any pixel, as torchmetrics' own index has
            it), ``'present'`` (true on any pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label that takes a pixel out. By default 255, where it cannot be a class.
        kwargs: What any torchmetrics metric takes.
    """

    is_differentiable = True
    higher_is_better = True
    full_state_update = False

    decided: Tensor
    dtype_of_value = torch.float32

    def __init__(
        self,
        num_classes: int,
        classes: Classes = 'seen',
        average: str | None = 'macro',
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_num_classes(num_classes)
        if classes != 'seen':
            check_classes(classes)
        if not isinstance(classes, str) and max(classes) >= num_classes:
            raise ValueError(
                f'Parameter `classes` should list classes below {num_classes}, the number of classes. '
                f'Found {max(classes)}.'
            )
        if average not in ('macro', 'none', None):
            raise ValueError(f"Parameter `average` should be 'macro' or None. Found {average!r}.")
        check_ignore_index(ignore_index)
        self.num_classes = num_classes
        self.classes: str | Sequence[int] = classes
        self.average = average
        self.ignore_index = ignore_index
        self.add_state('decided', torch.zeros(num_classes, dtype=torch.float64), dist_reduce_fx='sum')

    def read(self, preds: Tensor, target: Tensor) -> Items:
        """The items of a batch; count how often each class is decided for."""
        items = probability_items(preds, target, self.num_classes, self.ignore_index)
        counts = torch.zeros(self.num_classes + 1, dtype=torch.float64, device=preds.device)
        counts.scatter_add_(0, decided_classes(items).flatten(), items.mass.double().flatten())
        self.decided = self.decided + counts[:-1]
        self.dtype_of_value = items.scores.dtype
        return items

    def averaged(self, index: Tensor, present: Tensor) -> Tensor:
        """The average over classes of the index [C] of each, those ``present`` [C] having a true pixel."""
        index = index.to(self.dtype_of_value)
        if self.classes == 'all':
            counted = torch.ones_like(present)
        elif self.classes == 'present':
            counted = present
        elif self.classes == 'seen':
            counted = present | (self.decided > 0)
        else:
            counted = torch.tensor([c in self.classes for c in range(self.num_classes)], device=present.device)
        if self.average != 'macro':
            return torch.where(counted, index, torch.nan)
        return torch.where(counted, index, 0).sum() / counted.sum()
