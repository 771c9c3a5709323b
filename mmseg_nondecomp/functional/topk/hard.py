r"""The hard top-k loss, a hinge on the k-th highest of the other scores.

.. math:: l_k(s, y) = \max\left( \Delta + \frac{(s_{\setminus y})_{[k]} - s_y}{k},\ 0 \right)

It is the limit of `smooth_topk_loss` for a temperature that goes to 0 (appendix A of its paper): the best set of k
labels without y and with the margin, against the best with y.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Reading, check_k, check_number, number_of_classes, read_inputs
from mmseg_nondecomp.functional.topk.smooth import expected_loss, item_rows, item_terms, reduce_terms


def hard_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int = 5,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = 'mean',
) -> Tensor:
    """Compute the hard top-k loss.

    Arguments and result are those of `smooth_topk_loss`, without the temperature.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
        >>> hard_topk_loss(scores, torch.tensor([1, 3]), k=2, reduction='none')
        tensor([0.5000, 2.0000])
    """
    check_number('margin', margin, '[0, inf)')
    check_k(k, number_of_classes(scores, 'scores') or math.inf)
    inputs = read_inputs(scores, target, weight, ignore_index, Reading('multiclass', of_items=True), 'scores')
    losses = hard_topk_losses(*item_rows(inputs), k, margin)
    return reduce_terms(item_terms(losses, inputs), inputs, reduction)


def hard_topk_losses(scores: Tensor, target: Tensor, k: int, margin: float) -> Tensor:
    """Compute the losses [N, P] of scores [N, P, C] with labels [N, P] or soft labels [N, P, C]."""
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
    losses = margin + (threshold - own) / k
    # The gradient at 0 is that above 0, as of `clamp`, in fewer operations.
    losses = F.threshold(losses, -torch.finfo(losses.dtype).tiny, 0)
    # With fewer than k others the label is among the first k. NaN counts as the highest score.
    return losses.masked_fill(threshold == -torch.inf, 0).masked_fill(highest.isnan(), torch.nan)
