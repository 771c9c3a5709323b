"""The Lovász extension of the Jaccard index as a streaming metric."""

from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes, check_integer
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins
from mmseg_nondecomp.metrics._jaccard import JaccardMetric
from mmseg_nondecomp.metrics.functional._jaccard import lovasz_index, lovasz_sums


class LovaszJaccardIndex(JaccardMetric):
    r"""One minus the Lovász-Softmax loss of all pixels seen so far: a differentiable data set IoU.

    The pixels of all updates and all processes form one set: this is the *data set* IoU of Pascal VOC and Cityscapes,
    not the mean over images. On hard (one-hot) predictions it is ``MulticlassJaccardIndex``; on probabilities it lies
    below the index of the decisions wherever those are right with little confidence.

    The state is a histogram of errors, of a size that does not grow with the data: C · 2 · (3 bins + 1) pairs of
    numbers. The value is within 1 / (2 bins) of the exact one. ``forward`` returns the value of its batch, with a
    gradient.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: probabilities, or logits (then softmax is applied, sigmoid to a single class), of shape [N, C, *]; or
      decided classes, integers of shape [N, *]. Scores of a single class may have no channel.
    - ``target``: class indices, of shape [N, *] or [N, 1, *]; or one-hot or soft labels, of shape [N, C, *], which add
      up to 1 over the classes. Of a single class, labels are 0 and 1, or shares between them.

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: The classes that are averaged: ``'seen'`` (true or decided on any pixel, as in torchmetrics' own
            index), ``'present'`` (true on any pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label of the pixels to ignore. By default 255, where it cannot be a class. A class that is
            ignored counts only if ``classes`` lists it.
        bins: The resolution of the errors.
        mode: ``'multiclass'``, ``'binary'`` for a single class, or ``'multilabel'``: each channel decides by itself,
            with a sigmoid of logits and targets in [0, 1], or decisions of 0 and 1, of shape [N, C, *]. By default the
            number of classes decides between the first two.
        from_logits: Whether scores are logits. By default they are if one of the batch is outside of [0, 1] by more
            than 0.001, the error of interpolated probabilities: logits that may all lie in [0, 1] need ``True``. With
            ``False``, scores outside are refused.
        kwargs: The arguments of any torchmetrics metric.

    Example:
        >>> import torch
        >>> metric = LovaszJaccardIndex(num_classes=2)
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], requires_grad=True)
        >>> metric(probs, torch.tensor([0, 1, 1]))
        tensor(0.5667, grad_fn=<...>)
        >>> metric.compute()
        tensor(0.5667)
    """

    mass: Tensor
    errors: Tensor

    def __init__(
        self,
        num_classes: int,
        classes: Classes = 'seen',
        average: str | None = 'macro',
        ignore_index: int | None = None,
        bins: int = 1024,
        mode: str | None = None,
        from_logits: bool | None = None,
        **kwargs: Any,
    ) -> None:
        check_integer('bins', bins, lowest=1)
        self.bins = bins
        super().__init__(num_classes, classes, average, ignore_index, mode, from_logits, **kwargs)

    def sums_of_pixels(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the sums in each bin."""
        shape = self.num_classes, 2, ProbabilityBins(self.bins).number
        return {'mass': shape, 'errors': shape}

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch to the histogram."""
        self.add(preds, lovasz_sums(preds, target, self.layout, self.bins))

    def compute(self) -> Tensor:
        """Return the index of all updates."""
        return self.average_of(*lovasz_index(self.mass, self.errors))
