r"""Direct loss minimisation for the 0-1 loss of binary items: equation 2 of Song et al.

With labels :math:`y_i = \pm 1`, margins :math:`m_i = y_i s_i`,

.. math:: F(\hat y) = \frac{1}{n} \sum_i \hat y_i s_i, \qquad L(\hat y) = \frac{1}{n} |\{i : \hat y_i \ne y_i\}|,

the two labellings of :mod:`mmseg_nondecomp.functional.direct.general` differ where the margin is right but small (the
positive update), or wrong but small (the negative one):

.. math:: \frac{\partial L}{\partial s_i} = -\frac{2 y_i}{\epsilon n} \ \text{ for } \ 0 < m_i < \frac{\epsilon}{2}
   \quad \text{or} \quad -\frac{\epsilon}{2} < m_i < 0,

half of it on the borders, as the labelling that maximises :math:`F + w L` is the sign of :math:`s_i - y_i \frac{w}{2}`.
The hinge and the perceptron are the means of :math:`\max(1 - 2 m_i, 0)` and :math:`\max(-2 m_i, 0)`.
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.direct._gradient import comparison, one_problem, with_gradient


def direct_zero_one_loss(
    scores: Tensor, target: Tensor, epsilon: float = 0.1, mode: str = 'positive', weight: Tensor | None = None
) -> Tensor:
    """Compute the share of items on the wrong side of 0, with the direct-loss gradient.

    A score of 0 is on the side of label 0. The arguments and errors are those of `direct_ap_loss`; the value is 0,
    attached to the graph, without items.

    Example:
        >>> scores = torch.tensor([2.0, 0.03, -1.0, 0.5], requires_grad=True)
        >>> loss = direct_zero_one_loss(scores, torch.tensor([1, 1, 0, 0]))
        >>> loss.backward()
        >>> loss, scores.grad
        (tensor(0.2500, grad_fn=<...>), tensor([ 0., -5.,  0.,  0.]))
    """
    return direct_zero_one_losses(*one_problem(scores, target, weight, epsilon, mode), epsilon, mode)[0]


def direct_zero_one_losses(scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str) -> Tensor:
    """Return the loss of each problem [K], from [K, n]; float32 or better. See `direct_ap_losses`."""
    return direct_zero_one_sums(scores, is_positive, valid, epsilon, mode) / valid.sum(-1).clamp(min=1)


def direct_zero_one_sums(
    scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str | None
) -> Tensor:
    """Return n times the loss of each problem [...], from [..., n]; float32 or better."""
    with torch.no_grad():
        dtype = torch.promote_types(scores.dtype, torch.float32)
        is_positive = is_positive & valid
        s = torch.where(valid, scores.detach().to(dtype), -torch.inf)  # right by any margin, as label 0
        y = torch.where(is_positive, 1.0, -1.0).to(dtype)
        weight, other_weight, factor = comparison(epsilon, mode)
        gradient = _labelling(s, y, weight)
        if other_weight is None:
            sums = torch.rsub(s * y, weight / 2).clamp_(min=0).mul_(2).sum(-1, dtype=torch.float64).to(dtype)
            gradient = gradient.sub_(y)
        else:
            largest = s.amax(-1) if s.shape[-1] else s.sum(-1)
            sums = torch.where(largest.isnan(), largest, ((s > 0) != is_positive).sum(-1).to(dtype))
            gradient = gradient.sub_(_labelling(s, y, other_weight))
    return with_gradient(scores, sums, gradient, factor)


def _labelling(s: Tensor, y: Tensor, weight: float) -> Tensor:
    """Return sign(s - y · weight / 2), exactly: in two steps, as float32 does not hold every border."""
    border = weight / 2
    if border == 0:
        return s.sign()
    rounded = border
    if s.dtype == torch.float32:
        border = max(min(border, 2.0**127), -(2.0**127))
        rounded = border * (2**29 + 1)
        rounded -= rounded - border  # to 24 bits
    return s.sub(y, alpha=rounded).sub_(y, alpha=border - rounded).sign_()
