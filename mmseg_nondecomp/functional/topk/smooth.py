r"""The smooth top-k loss: the label should be among the k highest scores, by a margin.

.. math:: L_{k,\tau}(s, y) = \tau \log \sum_{|A| = k} e^{\frac{1}{\tau} \left( \Delta\,[y \notin A]
   + \frac{1}{k} \sum_{j \in A} s_j \right)}
   - \tau \log \sum_{|A| = k,\ y \in A} e^{\frac{1}{k \tau} \sum_{j \in A} s_j}

over all sets A of k labels. The sets with y and those without give a function of the odds that y is left out of a set
drawn with weight :math:`\prod_{j \in A} e_j`, :math:`e = e^{s / k \tau}`:

.. math:: L_{k,\tau}(s, y) = \tau \log \left( 1 + e^{\Delta / \tau} \frac{P(y \notin A)}{P(y \in A)} \right), \qquad
   \frac{P(y \notin A)}{P(y \in A)} = \frac{\sigma_k(e_{\setminus y})}{e_y\, \sigma_{k-1}(e_{\setminus y})}.

For :math:`\tau \to 0` it is `hard_topk_loss`; with k = 1, :math:`\tau = 1` and :math:`\Delta = 0`, cross-entropy.

For scores of any range, let z be the reciprocals of the k largest of the numbers e, and r the others, both in units of
the k-th largest and at most 1. Over the product of the k largest,

.. math:: \sigma_k(e) \propto \sum_a \sigma_a(z)\, \sigma_a(r), \qquad
   \sigma_{k-1}(e) \propto \sum_a \sigma_{a+1}(z)\, \sigma_a(r).

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
    https://arxiv.org/abs/1802.07595 (equations 9 and 10)
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    Inputs,
    Reading,
    can_be_read,
    check_k,
    check_number,
    check_option,
    number_of_classes,
    read_inputs,
)
from mmseg_nondecomp.functional.topk._symmetric_sums import (
    BLOCK,
    check_degree,
    common_unit,
    scaled_exp,
    sums_dtype,
    sums_gradient,
    symmetric_sums,
)

FEW = 8  # largest k for which each of the k highest is left out in turn: fewer operations; memory grows as its cube
SMALL_TEMPERATURE = 1e-20  # scores divided by less than this may be beyond the range of float32


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
    r"""Compute the smooth top-k loss.

    Cost and memory grow with C k. Soft labels (mixup) cost about ten times as much as labels, since each label is left
    out in turn.

    Args:
        scores: Scores of shape [N, C, *]; -inf for classes that an item does not have.
        target: Class indices of shape [N, *], or soft labels of shape [N, C, *].
        k: The number of labels of a prediction, from 1 to C - 1.
        tau: The temperature; the loss is smoother at a higher one.
        margin: The margin :math:`\Delta`.
        weight: A factor for each item, of shape [N, *]; 0 removes the item.
        ignore_index: The label that removes an item. By default 255, where it cannot be a class.
        reduction: ``'mean'`` over the items that count (0, attached to the graph, if none does), ``'sum'``, or
            ``'none'`` for the losses of shape [N, *].

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]])
        >>> smooth_topk_loss(scores, torch.tensor([1, 3]), k=2, reduction='none')
        tensor([1.0633, 2.1269])
    """
    check_temperature(tau)
    check_number('margin', margin, '[0, inf)')
    check_k(k, number_of_classes(scores, 'scores') or math.inf)
    inputs = read_inputs(scores, target, weight, ignore_index, Reading('multiclass', of_items=True), 'scores')
    losses = smooth_topk_losses(*item_rows(inputs), k, tau, margin)
    return reduce_terms(item_terms(losses, inputs), inputs, reduction)


def smooth_topk_losses(scores: Tensor, target: Tensor, k: int, tau: float, margin: float) -> Tensor:
    """Compute the losses [N, P] of scores [N, P, C] with labels [N, P] or soft labels [N, P, C]."""
    # Beyond the threshold the logarithm of 1 + e^x is x to the last digit of float64.
    losses = tau * F.softplus(log_odds_of_miss(scores, target, k, tau) + margin / tau, threshold=40)
    return expected_loss(losses, target).to(scores.dtype)


def check_temperature(tau: float) -> None:
    """Raise unless the temperature is positive and finite."""
    check_number('tau', tau, '(0, inf)', '; `hard_topk_loss` is the limit')


def item_rows(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return scores [N, P, C] and labels [N, P] or soft labels [N, P, C]; scores are 0 for items that do not count."""
    scores, valid = inputs.scores, inputs.valid
    target = inputs.target.movedim(1, -1) if inputs.is_soft else inputs.target
    if can_be_read(valid) and valid.all():
        return scores.movedim(1, -1), target
    if scores.is_contiguous():  # `masked_fill` returns contiguous tensors: fill in the layout that needs no other copy.
        scores = scores.masked_fill(~valid.unsqueeze(1), 0).movedim(1, -1)
    else:
        scores = scores.movedim(1, -1).masked_fill(~valid.unsqueeze(-1), 0)
    return scores, target if inputs.is_soft else target.clamp(max=inputs.n_classes - 1)


def expected_loss(losses: Tensor, target: Tensor) -> Tensor:
    """Average the losses [N, P, C] for each label by soft labels; return losses [N, P] of labels as they are."""
    if not target.is_floating_point():
        return losses
    return (losses * target).masked_fill(target == 0, 0).sum(-1)


def item_terms(losses: Tensor, inputs: Inputs) -> Tensor:
    """Return the weighted losses [N, P]; 0 for items that do not count, whose losses are finite."""
    return losses * (inputs.valid if inputs.weight is None else inputs.weight)


def reduce_terms(terms: Tensor, inputs: Inputs, reduction: str) -> Tensor:
    """Return the mean of the terms [N, P] over the items that count, their sum, or the terms [N, *]."""
    check_option('reduction', reduction, ('mean', 'sum', 'none'))
    if reduction == 'none':
        return inputs.as_called(terms)
    return terms.sum() if reduction == 'sum' else terms.sum() / inputs.valid.sum().clamp(min=1)


def log_odds_of_miss(scores: Tensor, target: Tensor, k: int, tau: float) -> Tensor:
    """Compute the logarithm of the odds that a label is left out of the set of k, for scores [N, *, C].

    The target holds labels [N, *]; or soft labels [N, *, C], for the odds of each label. The odds have its shape. They
    are -inf for a label with fewer than k others, which is in each set. The gradient is then not 0; the loss, finite
    for odds of 0, has none.
    """
    check_k(k, scores.shape[-1])
    check_degree(k)
    if k * tau < SMALL_TEMPERATURE:
        scores = scores.double()
    rows = scores.reshape(-1, scores.shape[-1])
    if target.is_floating_point():
        return _odds_of_all(rows, k, k * tau).view_as(scores)
    needs_gradient = scores.requires_grad and torch.is_grad_enabled()
    return _LogOdds.apply(rows, target.reshape(-1, 1), k, k * tau, needs_gradient)[0].view_as(target)


class _LogOdds(torch.autograd.Function):
    """Odds of the labels [N, 1] of rows [N, C]. The gradient is computed in the forward pass."""

    @staticmethod
    def forward(
        scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        rows = max(1, BLOCK // scores.shape[-1])
        if not can_be_read(scores) or len(scores) <= rows:
            return _odds(scores, target, k, scale, needs_gradient)
        odds = scores.new_empty(len(scores))
        gradient = torch.empty_like(scores) if needs_gradient else None
        for start in range(0, len(scores), rows):
            block = slice(start, start + rows)
            odds[block], of_block = _odds(scores[block], target[block], k, scale, needs_gradient)
            if gradient is not None and of_block is not None:
                gradient[block] = of_block
        return odds, gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        scores, target, ctx.k, ctx.scale, _ = inputs
        if output[1] is not None:
            ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, target, output[1])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return None, None, None, None, None
        scores, target, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # For the second derivative.
            gradient = _odds(scores, target, ctx.k, ctx.scale, True)[1]
        return gradient * (upstream / ctx.scale).unsqueeze(-1), None, None, None, None


def _odds(scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Compute the log odds [N] of labels [N, 1] and scores [N, C], and the gradient by the scores over the scale."""
    unit = common_unit(scores, k, scale)
    if unit is None:
        return _odds_of_any_range(scores, target, k, scale, needs_gradient)
    e = (scores - unit).div_(scale).exp_()
    own, e = e.gather(-1, target), e.scatter(-1, target, 0)
    sums, prefixes = symmetric_sums(e, k)
    beside, without = sums[:, k - 1 : k], sums[:, k:]
    odds = (without / (beside * own)).log().squeeze(-1)
    if not needs_gradient:
        return odds, None
    seeds = F.pad(torch.cat([-1 / beside, 1 / without], -1), (k - 2, 0))
    return odds, (sums_gradient(e, prefixes, seeds) * e).scatter_(-1, target, -1)


def _odds_of_any_range(
    scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    dtype = sums_dtype(scores, k)
    others = scores.scatter(-1, target, -math.inf).to(dtype)
    y, places = others.topk(k)
    is_certain = y.amin(-1, keepdim=True) == -math.inf
    y = y.masked_fill(is_certain, 0)
    unit = torch.add(y[:, -1:], y[:, :1], alpha=0).detach()  # NaN beside inf
    e, log_size = scaled_exp((others.scatter(-1, places, -math.inf) - unit) / scale, k)
    sums, prefixes = symmetric_sums(e, k)
    z = ((unit - y) / scale).exp()
    some = z.unsqueeze(-2)
    if k <= FEW:  # Row l is without the l-th, the last row with all.
        some = some.masked_fill(torch.eye(k + 1, k, dtype=torch.bool, device=z.device), 0)
    of_some, prefixes_of_some = symmetric_sums(some, k)
    of_z = of_some[:, -1].clamp(min=torch.finfo(dtype).tiny)
    factors, log_unit = _factors(of_z, log_size)
    terms = factors * sums.unsqueeze(-2)
    totals = terms.sum(-1, keepdim=True)
    without, beside = (totals.log() + log_unit).unbind(-2)
    odds = without - beside + (unit - scores.gather(-1, target)) / scale
    odds = odds.masked_fill(is_certain, -math.inf).squeeze(-1).to(scores.dtype)
    if not needs_gradient:
        return odds, None
    factors, terms = factors / totals, terms / totals
    of_rest = sums_gradient(e, prefixes, factors[:, 0, 1:] - factors[:, 1, 1:]) * e
    seeds = (terms[:, 1, :-1] - terms[:, 0, 1:]) / of_z[:, 1:]
    if k <= FEW:
        of_largest = (of_some[:, :-1, :-1] * seeds.unsqueeze(-2)).sum(-1)
    else:
        of_largest = sums_gradient(z, [prefix[:, -1] for prefix in prefixes_of_some], seeds)
    return odds, of_rest.scatter(-1, places, of_largest * z).scatter(-1, target, -1).to(scores.dtype)


def _factors(of_z: Tensor, log_size: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the factors [N, 2, k + 1] of :math:`\sigma_a(r)` in the sums for k and k - 1, and their log units.

    ``of_z`` [N, k + 1] holds :math:`\sigma_0, \dots, \sigma_k` of z, ``log_size`` [N, 1] the log of the divisor of r.
    """
    degrees = torch.arange(of_z.shape[-1], device=of_z.device)
    logarithms = F.pad(of_z.log(), (0, 1), value=-math.inf).unfold(-1, len(degrees), 1)
    logarithms = logarithms + (degrees * log_size).unsqueeze(-2)
    log_unit = logarithms.detach().amax(-1, keepdim=True)
    return (logarithms - log_unit).exp(), log_unit


def _odds_of_all(scores: Tensor, k: int, scale: float) -> Tensor:
    """Compute the log odds of each label in turn, [N, C], of scores [N, C].

    The others of a label that is not among the k highest have the same k highest. The others of one that is have the
    next one instead, in units of which r is measured here.
    """
    dtype = sums_dtype(scores, k)
    tiny = torch.finfo(dtype).tiny
    values, places = scores.to(dtype).topk(k + 1)
    y, following = values.split((k, 1), -1)
    places = places[:, :k]
    is_certain, is_last = (value.amin(-1, keepdim=True) == -math.inf for value in (y, values))
    y = y.masked_fill(is_certain, 0)
    highest = (y[:, -1:] + 0 * y[:, :1]).detach()  # NaN beside inf
    unit = torch.where(is_last, highest, following).detach()
    e, log_size = scaled_exp((scores.to(dtype).scatter(-1, places, -math.inf) - unit) / scale, k)
    sums, prefixes = symmetric_sums(e, k + 1)
    of_z = symmetric_sums(((highest - y) / scale).exp(), k)[0].clamp(min=tiny)
    gap = ((unit - highest) / scale).clamp(min=-torch.finfo(dtype).max / (k + 1))
    factors, log_unit = _factors(of_z, log_size + gap)
    without_each = sums_gradient(e.unsqueeze(-2), [prefix.unsqueeze(-2) for prefix in prefixes], factors)
    without, beside = (without_each.log() + log_unit).unbind(1)
    odds = (without - beside + (highest - scores) / scale).masked_fill(is_certain, -math.inf)
    z = ((unit - y) / scale).exp().unsqueeze(-2)
    z = z.masked_fill(torch.eye(k, dtype=torch.bool, device=z.device), 0)
    of_z = symmetric_sums(z, k)[0][..., :k].clamp(min=tiny).log()
    rest = (sums.clamp(min=tiny).log() + torch.arange(k + 2, device=z.device) * log_size).unsqueeze(-2)
    without, beside = (of_z + rest[..., 1 : k + 1]).logsumexp(-1), (of_z + rest[..., :k]).logsumexp(-1)
    of_highest = (without - beside + (unit - y) / scale).masked_fill(is_last, -math.inf)
    return odds.scatter(-1, places, of_highest).to(scores.dtype)
