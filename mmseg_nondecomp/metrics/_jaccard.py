"""Base class of the differentiable Jaccard metrics."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes
from mmseg_nondecomp.metrics.base import UnitMetric
from mmseg_nondecomp.metrics.functional._jaccard_average import check_jaccard_arguments


class JaccardMetric(UnitMetric):
    """One minus a Jaccard loss of each class, averaged over classes.

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: The classes that are averaged: ``'seen'`` (true or decided on any pixel, as in torchmetrics' own
            index), ``'present'`` (true on any pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label of the pixels to ignore. By default 255, where it cannot be a class. A class that is
            ignored counts only if ``classes`` lists it.
        kwargs: The arguments of any torchmetrics metric.
    """

    is_differentiable = True
    plot_legend_name = 'Class'

    decided: Tensor

    def __init__(
        self,
        num_classes: int,
        classes: Classes = 'seen',
        average: str | None = 'macro',
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_jaccard_arguments(num_classes, classes, average, ignore_index)
        self.num_classes = num_classes
        self.classes = classes
        self.average = average
        self.ignore_index = ignore_index
        self.tell_apart(ignore_index=ignore_index)
        self.add_state('decided', torch.zeros(num_classes, dtype=torch.float64), dist_reduce_fx='sum')
