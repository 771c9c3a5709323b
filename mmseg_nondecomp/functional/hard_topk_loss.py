r"""The hard top-k loss, a hinge on the k-th highest of the other scores.

.. math:: l_k(s, y) = \max\left( \Delta + \frac{(s_{\setminus y})_{[k]} - s_y}{k},\ 0 \right)

It is what `smooth_topk_loss` becomes for a temperature that goes to 0: the best set of k labels without y and with the
margin, against the best with y.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
    https://arxiv.org/abs/1802.07595 (appendix A)
"""

from functools import partial

import torch
from torch import Tensor

from mmseg_nondecomp.functional.label_losses import Labelled, expected_loss, label_loss
from mmseg_nondecomp.functional.topk_settings import check_k, check_margin


def hard_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int = 5,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = 'mean',
) -> Tensor:
    r"""The hard top-k loss.

    Args:
        scores: Scores, of shape [N, C, *]; -inf for classes that an item does not have.
        target: Class indices of shape [N, *], or the share of each class, of shape [N, C, *].
        k: How many labels a prediction has, from 1 to C - 1.
        margin: The margin :math:`\Delta`.
        weight: A factor for each item, of shape [N, *]; 0 removes it.
        ignore_index: The label of items that do not count. By default 255, where it cannot be a class.
        reduction: ``'mean'`` over the items that count, ``'sum'``, or ``'none'``.

    Returns:
        A scalar, or the losses of shape [N, *]. 0, attached to the graph, if nothing counts.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape, a label or a parameter is out of range.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
        >>> hard_topk_loss(scores, torch.tensor([1, 3]), k=2, reduction='none')
        tensor([0.5000, 2.0000])
    """
    check_margin(margin)
    losses = partial(hard_topk_losses, k=k, margin=margin)
    return label_loss(losses, scores, target, weight, ignore_index, reduction)


def hard_topk_losses(items: Labelled, k: int, margin: float) -> Tensor:
    """The loss of each item, of shape [N, *]."""
    scores, target = items.scores, items.target
    check_k(k, scores.shape[-1])
    if target.is_floating_point():
        values = scores.topk(k + 1).values
        kth, following = values[..., k - 1 : k], values[..., k:]
        # Without a label that is among the first k, the next one moves up.
        threshold = torch.where(scores >= kth, following, kth)
        return expected_loss(_hinge(threshold, scores, values[..., :1], k, margin), target)
    values, places = scores.detach().topk(k + 1)
    own = target.unsqueeze(-1)
    is_first = (places[..., :k] == own).any(-1, keepdim=True)
    kth = torch.where(is_first, places[..., k:], places[..., k - 1 : k])
    threshold, score = scores.gather(-1, torch.cat([kth, own], -1)).unbind(-1)
    return _hinge(threshold, score, values[..., 0], k, margin)


def _hinge(threshold: Tensor, own: Tensor, highest: Tensor, k: int, margin: float) -> Tensor:
    losses = (margin + (threshold - own) / k).clamp(min=0)
    # With fewer than k others the label is among the first k. NaN counts as the highest score.
    return losses.masked_fill(threshold == -torch.inf, 0).masked_fill(highest.isnan(), torch.nan)
