r"""The odds that a label is left out of the top-k set.

The set A of k labels is drawn with weight :math:`\prod_{j \in A} e_j`, :math:`e = e^{s / k \tau}`; for
:math:`\tau \to 0` it is that of the highest scores. Then

.. math:: \log \frac{P(y \notin A)}{P(y \in A)}
   = \log \frac{\sigma_k(e_{\setminus y})}{e_y\, \sigma_{k-1}(e_{\setminus y})}.
"""

import math

import torch
from torch import Tensor

from mmseg_nondecomp.functional.elementary_symmetric import highest, log_elementary_symmetric
from mmseg_nondecomp.functional.label_losses import Labelled, without_own
from mmseg_nondecomp.functional.leave_one_out import log_leave_one_out
from mmseg_nondecomp.functional.topk_settings import check_k

SMALL_TEMPERATURE = 1e-20
"""Scores divided by less than this may be beyond the range of float32."""


def log_odds_of_miss(items: Labelled, k: int, tau: float) -> Tensor:
    """The logarithm of the odds against the label of each item, [N, *], or against each label, [N, *, C], for shares.

    Where there are fewer than k others, it is -inf: the label is in each set.
    """
    check_k(k, items.scores.shape[-1])
    scores = items.scores.double() if k * tau < SMALL_TEMPERATURE else items.scores
    if items.target.is_floating_point():
        own = (scores - highest(scores)) / (k * tau)
        others = log_leave_one_out(own, k)
    else:
        others, own = without_own(scores, items.target)
        origin = highest(others)
        others = log_elementary_symmetric((others - origin) / (k * tau), k)
        own = (own - origin.squeeze(-1)) / (k * tau)
    without, beside = others[..., -1], others[..., -2]
    certain = without == -math.inf
    odds = torch.where(certain, 0, without) - torch.where(certain, 0, beside) - own
    return torch.where(certain, -math.inf, odds)
