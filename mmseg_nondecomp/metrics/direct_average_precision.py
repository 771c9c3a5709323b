"""Average precision as a metric whose values have the gradient of direct loss minimisation."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from mmseg_nondecomp.metrics._base import UnitMetric
from mmseg_nondecomp.metrics.functional import _average_precision as functional


class DirectAveragePrecision(UnitMetric):
    r"""Average precision of all items seen so far, averaged over the classes that have positives.

    The value is that of torchmetrics' ``BinaryAveragePrecision``, and of its macro average over classes or labels; but
    the scores are ranked as they are, where torchmetrics applies a sigmoid or softmax to logits, which makes large ones
    equal or ranks items by another class too. ``forward`` returns the value of its batch, with the gradient of
    :func:`mmseg_nondecomp.functional.direct_ap_loss`, of the opposite sign.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores, of shape [N, C, *]; of a single class, [N, \*] will do.
    - ``target``: 1 for positives and 0 for negatives, or soft labels, positive above 0.5, of the shape of ``preds``; or
      class indices, of shape [N, \*] or [N, 1, \*], one-vs-rest. Of a single class, labels are 0 and 1 and 1 is the
      class.

    All scores are kept, or with ``bins`` their histogram, which does not grow: 1 MB a class for 65 536 bins. Scores in
    one bin are ties: with few items, or with scores of a narrow range, the value can be off by 0.1 and more; keep the
    scores there. The gradient is that of the exact scores.

    Args:
        num_classes: The number of classes; ``None``, as 1, for one ranking.
        epsilon: The weight of the loss in the ranking that is compared.
        mode: The update that the gradient is of, ``'positive'`` or ``'negative'``.
        ignore_index: The label that removes an item. By default 255, where it cannot be a class.
        bins: The number of bins of a histogram of the scores; ``None`` keeps the scores. Bins are finer towards 0 and
            1, so that probabilities do as well as logits.
        **kwargs: The arguments of any torchmetrics metric.

    Example:
        >>> metric = DirectAveragePrecision(epsilon=8.0)
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> metric(scores, torch.tensor([0, 1, 0])).backward()
        >>> scores.grad
        tensor([-0.0000,  0.1250, -0.1250])
        >>> DirectAveragePrecision(bins=65536)(scores.detach(), torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """

    is_differentiable = True

    scores: list[Tensor]
    labels: list[Tensor]
    counts: Tensor

    def __init__(
        self,
        num_classes: int | None = None,
        epsilon: float = 0.1,
        mode: str = 'positive',
        ignore_index: int | None = None,
        bins: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        functional.check_settings(num_classes, epsilon, mode, ignore_index, bins)
        self.num_classes, self.ignore_index, self.bins = num_classes, ignore_index, bins
        self.epsilon, self.mode = epsilon, mode
        self.add_settings_state(ignore_index=ignore_index)
        if bins is not None:
            counts = torch.zeros(num_classes or 1, 2, bins + 1, dtype=torch.long)
            self.add_state('counts', counts, dist_reduce_fx='sum')
            return
        self.add_state('scores', [], dist_reduce_fx='cat')
        self.add_state('labels', [], dist_reduce_fx='cat')

    @torch.jit.unused
    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        """Return the value of a batch, and add the batch to those before it."""
        value = super().forward(preds, target)
        if self.bins is None:
            # The graph of the batch lives as long as its value, not as long as the scores that are kept.
            self.scores = [part.detach() for part in self.scores]
            return value
        return functional.with_gradient_of_scores(value, *self._rankings(preds, target), self.epsilon, self.mode)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep or count the scores of a batch."""
        scores, is_positive, valid = self._rankings(preds, target)
        if self.bins is None:
            scores = scores if torch.is_grad_enabled() else scores.detach()
            labels = is_positive.float().masked_fill_(~valid, -1)
            self.scores += [scores.flatten()]
            self.labels += [labels.flatten()]
            self.update_dtype(preds)
        else:
            counts = functional.counts_of(scores, is_positive, valid, self.bins)
            self.counts = self.counts.long() + counts  # `set_dtype` may have changed their type

    def compute(self) -> Tensor:
        """Return the mean over the classes that have positives; NaN if none has."""
        if self.bins is not None:
            return functional.mean_of_counts(self.counts)
        if len(self.scores) == 0:
            return torch.full((), torch.nan, device=self.device)
        scores, labels = (dim_zero_cat(part).view(-1, self.num_classes or 1) for part in (self.scores, self.labels))
        return functional.mean_of_scores(scores, labels == 1, labels >= 0, self.epsilon, self.mode)

    def _rankings(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return functional.class_rankings(preds, target, self.num_classes, self.ignore_index, self.checked)
