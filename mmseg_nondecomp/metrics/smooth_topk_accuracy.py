"""The smooth top-k accuracy as a metric that streams over a data set."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import valid_items
from mmseg_nondecomp.functional.label_losses import Labelled, expected_loss, label_loss
from mmseg_nondecomp.functional.topk_odds import log_odds_of_miss
from mmseg_nondecomp.functional.topk_settings import check_k, check_temperature
from mmseg_nondecomp.metrics.plotted import PlottedMetric
from mmseg_nondecomp.metrics.segmentation import check_ignore_index, check_num_classes


class SmoothTopKAccuracy(PlottedMetric):
    r"""The probability that the label is in the top-k set, averaged over all items seen so far.

    The set is drawn as in :func:`mmseg_nondecomp.functional.smooth_topk_loss`. For a temperature that goes to 0 it is
    that of the k highest scores, and this is ``MulticlassAccuracy(top_k=k, average='micro')``. ``forward`` returns the
    value of its batch, with a gradient.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores (not probabilities: the temperature belongs to the scores that were trained), of shape
      [N, C, *].
    - ``target``: class indices, of shape [N, *], or a share for each class, of shape [N, C, *].

    Args:
        num_classes: The number of classes.
        k: How many labels a prediction has, below the number of classes.
        tau: The temperature.
        ignore_index: The label that takes an item out. By default 255, where it cannot be a class.
        kwargs: What any torchmetrics metric takes.

    Raises:
        TypeError: If an argument or an input is of a wrong type.
        ValueError: If an argument or an input is out of range.

    Example:
        >>> metric = SmoothTopKAccuracy(num_classes=4, k=2)
        >>> metric(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.5891)
    """

    is_differentiable = True
    higher_is_better = True
    full_state_update = False

    count: Tensor

    def __init__(
        self, num_classes: int, k: int = 5, tau: float = 1.0, ignore_index: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_num_classes(num_classes)
        check_k(k, num_classes)
        check_temperature(tau)
        check_ignore_index(ignore_index)
        self.num_classes = num_classes
        self.k = k
        self.tau = tau
        self.ignore_index = ignore_index
        self.dtype_of_value = torch.float32
        # A collection merges metrics whose states have the same names and, at first, the same values.
        self.total_name = f'total_{k}_{tau}'.replace('.', '_')
        self.add_state(self.total_name, torch.zeros((), dtype=torch.float64), dist_reduce_fx='sum')
        self.add_state('count', torch.zeros((), dtype=torch.long), dist_reduce_fx='sum')

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add the probabilities of a batch."""
        if preds.dim() < 2 or preds.shape[1] != self.num_classes:
            raise ValueError(
                f'Parameter `preds` should hold scores of shape [N, {self.num_classes}, *]. '
                f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
            )
        hits = label_loss(self._hits, preds, target, None, self.ignore_index, 'sum', 'preds')
        setattr(self, self.total_name, getattr(self, self.total_name) + hits.double())
        self.count = self.count + valid_items(preds, target, None, self.ignore_index, self.num_classes, 'preds').sum()
        self.dtype_of_value = hits.dtype

    def compute(self) -> Tensor:
        """The mean over everything seen; NaN if nothing was."""
        return (getattr(self, self.total_name) / self.count).to(self.dtype_of_value)

    def _hits(self, items: Labelled) -> Tensor:
        hits = torch.sigmoid(-log_odds_of_miss(items, self.k, self.tau))
        if items.target.is_floating_point():
            hits = expected_loss(hits, items.target)
        return hits.to(items.scores.dtype)
