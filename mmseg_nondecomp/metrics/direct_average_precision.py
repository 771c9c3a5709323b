"""The average precision as a metric whose values have the gradient of direct loss minimisation."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from mmseg_nondecomp.functional.direct_ap_loss import direct_ap_losses
from mmseg_nondecomp.functional.items import IGNORED_BY_DEFAULT, can_be_read, valid_items
from mmseg_nondecomp.functional.loss_augmented_ranking import check_epsilon
from mmseg_nondecomp.functional.lovasz_softmax import check_bins
from mmseg_nondecomp.functional.score_histogram import average_precisions, count_scores
from mmseg_nondecomp.metrics.plotted import PlottedMetric
from mmseg_nondecomp.metrics.segmentation import check_ignore_index, check_num_classes


class DirectAveragePrecision(PlottedMetric):
    r"""The average precision of all items seen so far, averaged over the classes that have positives.

    The value is that of torchmetrics' ``BinaryAveragePrecision``, and of its macro average over classes or labels; but
    the scores are ranked as they are, where torchmetrics applies a sigmoid or softmax to logits, which makes large ones
    equal or ranks items by another class too. ``forward`` returns the value of its batch, with the gradient of
    :func:`mmseg_nondecomp.functional.direct_ap_loss`, of the opposite sign.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores, of shape [N, C, *]; of a single class, [N, \*] will do.
    - ``target``: 1 for positives and 0 for negatives, or shares, of the shape of ``preds``; or class indices, of shape
      [N, \*], where each class is ranked against all others. Of a single class, labels are 0 and 1 and 1 is the class.

    All scores are kept, or with ``bins`` their histogram, which does not grow: 1 MB a class for 65 536 cells. Scores in
    one cell are ties; the gradient is that of the scores as they are.

    Args:
        num_classes: The number of classes; ``None``, as 1, for one ranking.
        epsilon: The weight of the loss in the ranking that is compared: how far the gradient looks.
        mode: ``'positive'`` or ``'negative'``, the update that the gradient is of.
        ignore_index: The label that takes an item out. By default 255, where it cannot be a class.
        bins: The number of cells of a histogram of the scores; ``None`` keeps the scores. Cells are finer towards 0 and
            1, so that probabilities do as well as logits.
        kwargs: What any torchmetrics metric takes.

    Raises:
        TypeError: If an argument or an input is of a wrong type.
        ValueError: If an argument or an input is out of range.

    Example:
        >>> metric = DirectAveragePrecision(epsilon=8.0)
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> value = metric(scores, torch.tensor([0, 1, 0]))
        >>> value
        tensor(0.5000, grad_fn=<...>)
        >>> value.backward()
        >>> scores.grad
        tensor([-0.0000,  0.1250, -0.1250])
        >>> DirectAveragePrecision(bins=65536)(scores.detach(), torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """

    is_differentiable = True
    higher_is_better = True
    full_state_update = False

    scores: list[Tensor] | Tensor
    labels: list[Tensor] | Tensor
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
        if num_classes is not None:
            check_num_classes(num_classes)
        check_epsilon(epsilon)
        if mode not in ('positive', 'negative'):
            raise ValueError(
                "Parameter `mode` should be 'positive' or 'negative', the updates whose value is the average "
                f'precision. Found {mode!r}.'
            )
        check_ignore_index(ignore_index)
        self.num_classes = num_classes
        self.epsilon = epsilon
        self.mode = mode
        self.ignore_index = ignore_index
        self.bins = bins
        if bins is not None:
            check_bins(bins)
            counts = torch.zeros(num_classes or 1, 2, bins + 1, dtype=torch.long)
            self.add_state('counts', counts, dist_reduce_fx='sum')
            return
        # Both flat and of one type: a process that has seen nothing joins the others with an empty tensor like these.
        self.add_state('scores', [], dist_reduce_fx='cat')
        self.add_state('labels', [], dist_reduce_fx='cat')

    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        """The value of a batch, which is added to those before it."""
        value = super().forward(preds, target)
        if self.bins is None:
            # The graph of the batch lives as long as its value, not as long as the scores that are kept.
            self.scores = [part.detach() for part in self.scores]
        elif torch.is_grad_enabled() and preds.requires_grad:
            kept = self._average(*self._rankings(preds, target))
            value = value + (kept - kept.detach()).to(value.dtype)
        return value

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep or count the scores of a batch."""
        scores, labels = self._rankings(preds, target)
        if self.bins is None:
            scores = scores if torch.is_grad_enabled() else scores.detach()
            self.scores += [scores.flatten()]  # type: ignore[operator]
            self.labels += [labels.flatten().float()]  # type: ignore[operator]
        else:
            labels = labels.t()
            counts = count_scores(scores.detach().t(), labels == 1, labels >= 0, self.bins)
            self.counts = self.counts.long() + counts  # whatever `set_dtype` has made of them

    def compute(self) -> Tensor:
        """The mean over the classes that have positives in everything seen; NaN if none has."""
        if self.bins is not None:
            return _mean_of_present(average_precisions(self.counts), self.counts[:, 1].any(1)).float()
        if len(self.scores) == 0:
            return torch.full((), torch.nan, device=self.device)
        return self._average(
            *(dim_zero_cat(part).view(-1, self.num_classes or 1) for part in (self.scores, self.labels))
        )

    def _rankings(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of each class and their labels: 1 for positives, 0 for negatives, -1 for neither; [n, C]."""
        if self.num_classes in (None, 1):
            scores, target = _of_one_class(preds, target)
        else:
            scores = preds
        n_classes = self.num_classes or 1
        if scores.dim() < 2 or scores.shape[1] != n_classes:
            raise ValueError(
                f'Parameter `preds` should hold scores of shape [N, {n_classes}, *]. '
                f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
            )
        if target.shape == scores.shape:
            labels = self._of_each_class(scores, target)
        else:
            valid = valid_items(scores, target, None, self.ignore_index, max(n_classes, 2), 'preds').unsqueeze(1)
            classes = torch.arange(n_classes, device=target.device).view(1, -1, *[1] * (scores.dim() - 2))
            labels = torch.where(valid, (target.unsqueeze(1) == classes).int(), -1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return _rows(scores), _rows(labels)

    def _average(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The mean over the classes that have positives, of scores and labels [n, C], with its gradient."""
        is_positive = labels.t() == 1
        losses = direct_ap_losses(scores.t(), is_positive, labels.t() >= 0, self.epsilon, self.mode)
        return _mean_of_present(1 - losses, is_positive.any(1))

    def _of_each_class(self, scores: Tensor, target: Tensor) -> Tensor:
        """1 for positives, 0 for negatives, -1 for what is ignored, of the shape of the scores [N, C, *]."""
        if not scores.is_floating_point():
            raise TypeError(f'Parameter `preds` should be a floating-point tensor. Found {scores.dtype}.')
        ignored = target == (IGNORED_BY_DEFAULT if self.ignore_index is None else self.ignore_index)
        if can_be_read(target):
            allowed = (target >= 0) & (target <= 1)
            if not (allowed | ignored).all():
                raise ValueError(
                    'Parameter `target` should hold 0 and 1, shares in [0, 1] or the ignored label. '
                    f'Found {target[~(allowed | ignored)][0].item()}.'
                )
        return torch.where(ignored, -1, (target > 0.5).int())


def _of_one_class(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and labels of a single class, of shape [N, 1]."""
    if preds.shape != target.shape and (preds.dim() < 2 or (preds.shape[0], *preds.shape[2:]) != target.shape):
        raise ValueError(
            'Parameter `target` should hold labels of the shape of `preds`, or of [N, *] for [N, 1, *]. '
            f'Found {tuple(target.shape)} for {tuple(preds.shape)}.'
        )
    if preds.shape != target.shape and preds.shape[1] != 1:
        raise ValueError(
            'Parameter `preds` should hold scores of shape [N, 1, *] or [N, *], or `num_classes` be given. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    return preds.reshape(-1, 1), target.reshape(-1, 1)


def _mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """The mean of the values [C] of the classes that are present, bool of shape [C]; NaN if none is."""
    return torch.where(present, values, 0).sum() / present.sum()


def _rows(values: Tensor) -> Tensor:
    """Values [N, C, *] item by item, of shape [n, C]."""
    return values.movedim(1, -1).flatten(0, -2)
