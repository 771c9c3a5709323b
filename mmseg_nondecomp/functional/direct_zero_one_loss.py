r"""Direct loss minimisation for the 0-1 loss of binary items.

With labels :math:`y_i = \pm 1`, margins :math:`m_i = y_i s_i`,

.. math:: F(\hat y) = \frac{1}{n} \sum_i \hat y_i s_i, \qquad L(\hat y) = \frac{1}{n} |\{i : \hat y_i \ne y_i\}|,

the two rankings of `direct_ap_loss` become two labellings. They differ where the margin is right but small (the
positive update), or wrong but small (the negative one):

.. math:: \frac{\partial L}{\partial s_i} = -\frac{2 y_i}{\epsilon n} \ \text{ for } \ 0 < m_i < \frac{\epsilon}{2}
   \quad \text{or} \quad -\frac{\epsilon}{2} < m_i < 0,

half of it on the borders. The hinge and the perceptron are the means of :math:`\max(1 - 2 m_i, 0)` and
:math:`\max(-2 m_i, 0)`.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411 (equation 2)
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.direct_ap_loss import check_direct_loss
from mmseg_nondecomp.functional.known_gradient import with_gradient


def direct_zero_one_loss(
    scores: Tensor, target: Tensor, epsilon: float = 0.1, mode: str = 'positive', weight: Tensor | None = None
) -> Tensor:
    """The share of items on the wrong side of 0, with the direct-loss gradient.

    A score of 0 is on the side of label 0.

    Args:
        scores: The scores, of shape [n].
        target: 1 or 0, of shape [n].
        epsilon: The weight of the loss in the labelling that is compared: how far it looks.
        mode: ``'positive'``, ``'negative'``, ``'hinge'`` or ``'perceptron'``, as for `direct_ap_loss`.
        weight: 0 for items that do not count, 1 for others, of shape [n].

    Returns:
        A scalar; 0, attached to the graph, without items.

    Raises:
        TypeError: If ``scores`` is not of floating point, or ``epsilon`` is no number.
        ValueError: If a shape, a label or a parameter is out of range.

    Example:
        >>> scores = torch.tensor([2.0, 0.03, -1.0, 0.5], requires_grad=True)
        >>> loss = direct_zero_one_loss(scores, torch.tensor([1, 1, 0, 0]))
        >>> loss.backward()
        >>> loss, scores.grad
        (tensor(0.2500, grad_fn=<...>), tensor([-0., -5.,  0.,  0.]))
    """
    valid = check_direct_loss(scores, target, weight, epsilon, mode)
    return direct_zero_one_losses(scores.unsqueeze(0), (target == 1).unsqueeze(0), valid.unsqueeze(0), epsilon, mode)[0]


def direct_zero_one_losses(
    scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str, size: Tensor | None = None
) -> Tensor:
    """The loss of each query [K], from [K, n]; float32 or better. See `direct_ap_losses`.

    Of queries that have items elsewhere, too, it is the part of these, if ``size`` [K] says how many there are in all.
    """
    with torch.no_grad():
        exact = scores.detach().double()
        sign = torch.where(is_positive, 1.0, -1.0).double()
        margin = torch.where(valid, sign * exact, torch.inf)
        if mode == 'hinge':
            losses, slope = (1 - 2 * margin).clamp(min=0), 2 * _below(margin, 0.5)
        elif mode == 'perceptron':
            losses, slope = (-2 * margin).clamp(min=0), 2 * _below(margin, 0.0)
        else:
            losses = ((exact > 0) != is_positive).double()
            low, high = (0.0, epsilon / 2) if mode == 'positive' else (-epsilon / 2, 0.0)
            slope = 2 / epsilon * (_below(margin, high) - _below(margin, low))
        n = (valid.sum(1) if size is None else size).clamp(min=1)
        gradient = torch.where(valid, -sign * slope, 0) / n.unsqueeze(1)
        losses = torch.where(valid, torch.where(exact.isnan(), torch.nan, losses), 0).sum(1) / n
    return with_gradient(scores, losses, gradient)


def _below(margin: Tensor, border: float) -> Tensor:
    """1 below the border, 0 above, a half on it."""
    return ((margin < border).double() + (margin <= border).double()) / 2
