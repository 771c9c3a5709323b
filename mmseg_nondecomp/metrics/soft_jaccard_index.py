"""The soft Jaccard index as a streaming metric."""

from torch import Tensor

from mmseg_nondecomp.metrics._jaccard import JaccardMetric
from mmseg_nondecomp.metrics.functional._jaccard import soft_index, soft_index_sums


class SoftJaccardIndex(JaccardMetric):
    """The ratio of soft intersection and soft union of all pixels seen so far, averaged over classes.

    See :func:`mmseg_nondecomp.functional.soft_iou`. On hard (one-hot) predictions it is ``MulticlassJaccardIndex``.
    Inputs and arguments are those of :class:`LovaszJaccardIndex`, except ``bins``.

    Example:
        >>> import torch
        >>> metric = SoftJaccardIndex(num_classes=2)
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> metric(probs, torch.tensor([0, 1, 1]))
        tensor(0.4605)
    """

    sums: Tensor

    def sums_of_pixels(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of the sums of each class."""
        return {'sums': (self.num_classes, 4)}

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch to the intersections and unions."""
        self.add(preds, soft_index_sums(preds, target, self.layout))

    def compute(self) -> Tensor:
        """Return the index of all updates."""
        return self.average_of(*soft_index(self.sums))
