"""The soft Jaccard index as a streaming metric."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes
from mmseg_nondecomp.metrics._jaccard import JaccardMetric
from mmseg_nondecomp.metrics.functional._soft_jaccard import (
    _soft_jaccard_index_compute,
    _soft_jaccard_index_update,
)


class SoftJaccardIndex(JaccardMetric):
    r"""The ratio of soft intersection and soft union of all pixels seen so far, averaged over classes.

    See :func:`mmseg_nondecomp.functional.soft_iou`. The pixels of all updates and all processes form one set: this is a
    *data set* IoU. On hard (one-hot) predictions it is ``MulticlassJaccardIndex``. ``forward`` returns the value of its
    batch, with a gradient.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: probabilities, or logits (then softmax is applied, sigmoid to a single class), of shape [N, C, *]; or
      decided classes, integers of shape [N, *].
    - ``target``: class indices, of shape [N, *], or soft labels, of shape [N, C, *].

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: The classes that are averaged: ``'seen'`` (true or decided on any pixel, as in torchmetrics' own
            index), ``'present'`` (true on any pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label of the pixels to ignore. By default 255, where it cannot be a class. A class that is
            ignored counts only if ``classes`` lists it.
        kwargs: The arguments of any torchmetrics metric.

    Raises:
        TypeError: If an argument or an input is of a wrong type.
        ValueError: If an argument or an input is out of range.

    Example:
        >>> metric = SoftJaccardIndex(num_classes=2)
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> metric(probs, torch.tensor([0, 1, 1]))
        tensor(0.4605)
    """

    sums: Tensor

    def __init__(
        self,
        num_classes: int,
        classes: Classes = 'seen',
        average: str | None = 'macro',
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, classes, average, ignore_index, **kwargs)
        self.add_state('sums', torch.zeros(num_classes, 4, dtype=torch.float64), dist_reduce_fx='sum')

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch to the intersections and unions."""
        sums, decided = _soft_jaccard_index_update(preds, target, self.num_classes, self.ignore_index)
        self.sums = self.sums + sums
        self.decided = self.decided + decided
        self.note_type_of(preds)

    def compute(self) -> Tensor:
        """Return the index of all updates."""
        value = _soft_jaccard_index_compute(self.sums, self.decided, self.classes, self.average, self.ignore_index)
        return self.in_type_of_scores(value)
