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

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.label_losses import Labelled, expected_loss, label_loss
from mmseg_nondecomp.functional.topk_odds import log_odds_of_miss
from mmseg_nondecomp.functional.topk_settings import check_margin, check_temperature


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

    Cost and memory grow with C k. Shares of labels (mixup) cost about ten times as much as single labels, since
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
        >>> import torch
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
    losses = -tau * F.logsigmoid(-margin / tau - log_odds_of_miss(items.scores, items.target, k, tau))
    if items.target.is_floating_point():
        losses = expected_loss(losses, items.target)
    return losses.to(items.scores.dtype)
