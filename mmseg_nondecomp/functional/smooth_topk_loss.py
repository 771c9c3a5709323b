r"""The smooth top-k loss: the label should be among the k highest scores, by a margin.

.. math:: L_{k,\tau}(s, y) = \tau \log \sum_{|A| = k} e^{\frac{1}{\tau} \left( \Delta\,[y \notin A]
   + \frac{1}{k} \sum_{j \in A} s_j \right)}
   - \tau \log \sum_{|A| = k,\ y \in A} e^{\frac{1}{k \tau} \sum_{j \in A} s_j}

over all sets A of k labels. With :math:`e = e^{s / k \tau}`, the sets with y and those without are

.. math:: L_{k,\tau}(s, y) = \tau \log \left( 1 + e^{\Delta / \tau}
   \frac{\sigma_k(e_{\setminus y})}{e_y\, \sigma_{k-1}(e_{\setminus y})} \right).

For :math:`\tau \to 0` it is `hard_topk_loss`; with k = 1, :math:`\tau = 1` and :math:`\Delta = 0`, cross-entropy.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
    https://arxiv.org/abs/1802.07595 (equations 9 and 10)
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.elementary_symmetric import log_elementary_symmetric
from mmseg_nondecomp.functional.label_losses import Labelled, expected_loss, label_loss, without_own
from mmseg_nondecomp.functional.leave_one_out import log_leave_one_out
from mmseg_nondecomp.functional.topk_marginals import check_k

SMALL_TEMPERATURE = 1e-20
"""Scores divided by less than this may be beyond the range of float32."""


def smooth_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int = 5,
    tau: float = 1.0,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = 'mean',
) -> Tensor:
    r"""The smooth top-k loss.

    Cost and memory grow with C k. Shares of labels (mixup) cost about three times as much as single labels, since
    each label is left out in turn.

    Args:
        scores: Scores, of shape [N, C, *]; -inf for classes that an item does not have.
        target: Class indices of shape [N, *], or the share of each class, of shape [N, C, *].
        k: How many labels a prediction has, from 1 to C - 1.
        tau: The temperature: how smooth it is.
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
        >>> smooth_topk_loss(scores, torch.tensor([1, 3]), k=2, reduction='none')
        tensor([1.0633, 2.1269])
    """
    check_temperature(tau)
    check_margin(margin)
    losses = partial(smooth_topk_losses, k=k, tau=tau, margin=margin)
    return label_loss(losses, scores, target, weight, ignore_index, reduction)


def smooth_topk_losses(items: Labelled, k: int, tau: float, margin: float) -> Tensor:
    """The loss of each item, of shape [N, *]."""
    check_k(k, items.scores.shape[-1])
    e = items.scores.double() if k * tau < SMALL_TEMPERATURE else items.scores
    # Shifted by the highest score: it is the differences that decide.
    highest = e.detach().amax(-1, keepdim=True)
    e = (e - torch.where(highest.isfinite(), highest, 0)) / (k * tau)
    if items.target.is_floating_point():
        losses = expected_loss(_smoothed(log_leave_one_out(e, k), e, tau, margin), items.target)
    else:
        others, own = without_own(e, items.target)
        losses = _smoothed(log_elementary_symmetric(others, k), own, tau, margin)
    return losses.to(items.scores.dtype)


def _smoothed(others: Tensor, own: Tensor, tau: float, margin: float) -> Tensor:
    """The loss from the polynomials [..., k + 1] of the other labels, and the own one."""
    without, beside = others[..., -1], others[..., -2]
    # With fewer than k others the label is in each set.
    certain = without == -math.inf
    ratio = torch.where(certain, 0, without) - torch.where(certain, 0, beside) - own
    return tau * torch.where(certain, 0, F.softplus(margin / tau + ratio))


def check_temperature(tau: float) -> None:
    """Raise unless the temperature is positive."""
    if isinstance(tau, bool) or not isinstance(tau, (int, float)):
        raise TypeError(f'Parameter `tau` should be a number. Found {tau!r}.')
    if not 0 < tau < math.inf:
        raise ValueError(f'Parameter `tau` should be positive and finite; `hard_topk_loss` is its limit. Found {tau}.')


def check_margin(margin: float) -> None:
    """Raise unless the margin is a number that is not negative."""
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(f'Parameter `margin` should be a number. Found {margin!r}.')
    if not 0 <= margin < math.inf:
        raise ValueError(f'Parameter `margin` should be finite and not negative. Found {margin}.')
