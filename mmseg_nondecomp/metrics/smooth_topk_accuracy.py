"""Smooth top-k accuracy as a metric that accumulates over a data set."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.metrics._base import UnitMetric
from mmseg_nondecomp.metrics.functional import _smooth_topk as functional


class SmoothTopKAccuracy(UnitMetric):
    r"""Probability that the label is in the top-k set, averaged over all items.

    The set is drawn as in :func:`mmseg_nondecomp.functional.smooth_topk_loss`. For a temperature that goes to 0 it is
    the set of the k highest scores, and the metric is ``MulticlassAccuracy(top_k=k, average='micro')``. ``forward``
    returns the value of its batch, with a gradient.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores of shape [N, C, *], not probabilities: the temperature belongs to the scores that were trained.
    - ``target``: class indices of shape [N, *] or [N, 1, *], or soft labels of shape [N, C, *], which add up to 1.

    Args:
        num_classes: The number of classes.
        k: The number of labels of a prediction, below the number of classes.
        tau: The temperature.
        ignore_index: The label that removes an item. By default 255, where it cannot be a class.
        kwargs: Arguments of any torchmetrics metric.

    Example:
        >>> metric = SmoothTopKAccuracy(num_classes=4, k=2)
        >>> metric(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.5891)
    """

    is_differentiable = True

    total: Tensor
    count: Tensor

    def __init__(
        self, num_classes: int, k: int = 5, tau: float = 1.0, ignore_index: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        functional.check_settings(num_classes, k, tau, ignore_index)
        self.num_classes, self.k, self.tau, self.ignore_index = num_classes, k, tau, ignore_index
        self.add_settings_state(k=k, tau=tau, ignore_index=ignore_index)
        self.add_state('total', torch.zeros((), dtype=torch.float64), dist_reduce_fx='sum')
        self.add_state('count', torch.zeros((), dtype=torch.long), dist_reduce_fx='sum')

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add the probabilities of a batch."""
        total, count = functional.sum_of_probabilities(
            preds, target, self.num_classes, self.k, self.tau, self.ignore_index, self.checked
        )
        self.total = self.total + total
        self.count = self.count.long() + count  # `set_dtype` may have changed its type
        self.update_dtype(preds)

    def compute(self) -> Tensor:
        """Return the mean over all items; NaN if there are none."""
        return self.in_value_dtype(self.total.double() / self.count)
