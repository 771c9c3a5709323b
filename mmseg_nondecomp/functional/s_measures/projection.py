"""Variables τ and λ of the examples of a data set: section 3.2 of the paper that `problem` cites."""

import itertools
from functools import partial

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Inputs, check_floating_point
from mmseg_nondecomp.functional.s_measures.problem import MAX_MULTIPLIER
from mmseg_nondecomp.functional.s_measures.rates import RatedItems


def project_tau(tau: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the nearest point of :math:`C = \{(\tau, \varepsilon) : \tau_i \le \varepsilon, \; \varepsilon \ge 0\}`.

    .. math:: \operatorname*{arg\,min}_{(t, e) \in C} \; \sum_i (t_i - \tau_i)^2 + (e - \varepsilon)^2

    The bound e is the mean of ε and of the largest τ that exceed it; these are lowered to the bound and the others
    stay. Sorted in descending order, :math:`\tau_{(k)}` is among them as long as it exceeds 0 and the mean of ε with
    the k - 1 before it. With one τ it is the rule of the paper: where τ > ε, both become their mean.

    The paper's Algorithms 2 and 4 are wrong as printed: they miscount by one, and clamp ε before the mean is taken.

    Args:
        tau: Values of shape [..., n].
        eps: Their bound, of shape [...]. It may be negative; its projection is not.

    Returns:
        Both, of the inputs' shapes and types; differentiable wherever the projection is. NaN stays where it is.

    Example:
        >>> project_tau(torch.tensor([4.0, 4.0, 0.5, -1.0]), torch.tensor(1.0))
        (tensor([ 3.0000,  3.0000,  0.5000, -1.0000]), tensor(3.))
    """
    check_tau(tau, eps)
    exact = torch.promote_types(torch.promote_types(tau.dtype, eps.dtype), torch.float32)
    largest = tau.to(exact).sort(-1, descending=True).values
    # Means of ε and of none, one, two, ... of the largest τ; long sums need float64.
    means = torch.cat([eps.unsqueeze(-1), largest], -1).double().cumsum(-1)
    means = means / torch.arange(1, tau.shape[-1] + 2, device=tau.device)
    n_above = (largest > means[..., :-1].clamp(min=0)).sum(-1, keepdim=True)
    bound = means.gather(-1, n_above).clamp(min=0)
    projected = torch.minimum(tau.double(), bound)
    return projected.to(tau.dtype), bound.squeeze(-1).to(eps.dtype)


def check_tau(tau: Tensor, eps: Tensor) -> None:
    """Raise unless there is a bound for each row of values."""
    check_floating_point('tau', tau)
    check_floating_point('eps', eps)
    if tau.dim() == 0 or eps.shape != tau.shape[:-1]:
        raise ValueError(
            'Parameter `eps` should hold one bound for each row of `tau`, of shape [...] for [..., n]. '
            f'Found {tuple(eps.shape)} for {tuple(tau.shape)}.'
        )


class ExampleTable:
    r"""Variables of the constraints :math:`\tau_i \le z_i` of the positives, by the id of their example.

    The Lagrangian has :math:`-w \tau_i + \lambda_i (\tau_i - z_i)` for each, where w is w_A. In each step the τ of its
    examples descend. A projection lowers the τ used since the last one, and no others, to the margin, and moves their
    λ. A new example starts where its score minimises the Lagrangian: at τ = min(ε, z), with λ = w where that is z. The
    table is on the CPU, in float64.
    """

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.values = torch.zeros(0, 1, 3, dtype=torch.float64)
        """τ, λ and the last score of each example in each query, [M, Q, 3]; NaN where it has been no positive."""
        self.positive = torch.zeros(0, 1, dtype=torch.bool)
        """Whether an example was a positive in its last step, [M, Q]."""
        self.touched: set[int] = set()
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def penalties(self, ids: Tensor, scores: Tensor, epsilon: Tensor, w: Tensor, damping: float) -> Tensor:
        r"""Return the penalties of positives times w, [Q, n], with a gradient for the scores z [Q, n] of the ids [n].

        .. math:: w (\varepsilon - \tau) + \lambda (\tau - z) \quad\text{instead of}\quad w \max(0, \varepsilon - z).

        Margins and w, w_A, are [Q, 1]; ``damping`` is the weight of the violation of :math:`\tau_i \le z_i` added to λ.
        """
        z = scores.detach()
        tau, lam = torch.minimum(z, epsilon), w * (z < epsilon)
        rows = [self.rows.get(key, -1) for key in ids.tolist()]
        if max(rows, default=-1) >= 0:
            kept, kept_lam, _ = self.values[[max(row, 0) for row in rows]].to(z).movedim(2, 0).transpose(1, 2)
            is_kept = (torch.tensor(rows, device=z.device) >= 0) & ~kept.isnan()
            tau = torch.where(is_kept, kept, tau)
            lam = torch.where(is_kept, (kept_lam + damping * (kept - z)).clamp(0, MAX_MULTIPLIER), lam)
        return w * (epsilon - tau) + lam * (tau - scores)

    def total(self, ids: Tensor, items: RatedItems, epsilon: Tensor, damping: float, w: Tensor) -> Tensor:
        """Return the sum of `penalties` over the positives of each query, of shape [Q, 1]."""
        of_items = self.penalties(ids, items.scores[0], epsilon.to(items.scores), w.to(items.scores), damping)
        return torch.where(items.positive > 0, of_items * items.positive, 0).sum((0, 2)).view_as(w)

    def add(self, ids: Tensor, scores: Tensor, positive: Tensor) -> None:
        """Add examples for the next step: ids [n], scores [n, Q], and whether they are positives, [n, Q]."""
        self.waiting.append((ids.cpu(), scores.cpu(), positive.cpu().bool()))

    def descend(self, epsilon: Tensor, w: Tensor, eta_tau: float, damping: float) -> None:
        """Start the variables of new examples, take the scores of all that wait, and move their τ down."""
        epsilon, w = epsilon.cpu(), w.cpu()
        for ids, scores, positive in self.waiting:
            last = {key: place for place, key in enumerate(ids.tolist()) if key in self.rows or positive[place].any()}
            if not last:
                continue
            new = [key for key in last if key not in self.rows]
            self.rows.update(zip(new, itertools.count(len(self.rows))))
            self._grow(scores.shape[1])
            rows, places = [self.rows[key] for key in last], list(last.values())
            z, self.positive[rows] = scores[places], positive[places]
            tau, lam, _ = self.values[rows].unbind(-1)
            starts = tau.isnan() & self.positive[rows]
            tau, lam = torch.where(starts, z.minimum(epsilon), tau), torch.where(starts, w * (z < epsilon), lam)
            slope = (lam + damping * (tau - z)).clamp(0, MAX_MULTIPLIER) - w
            tau = torch.where(self.positive[rows], tau - eta_tau * slope, tau)
            self.values[rows] = torch.stack([tau, lam, z], -1)
            self.touched.update(rows)
        self.waiting.clear()

    def _grow(self, n_queries: int) -> None:
        """Allocate space for all rows and half as many again."""
        if len(self.rows) <= len(self.values):
            return
        if len(self.values) == 0:
            self.values, self.positive = self.values.new_zeros(0, n_queries, 3), self.positive.new_zeros(0, n_queries)
        more = len(self.rows) * 3 // 2 - len(self.values)
        self.values = torch.cat([self.values, self.values.new_full((more, n_queries, 3), torch.nan)])
        self.positive = torch.cat([self.positive, self.positive.new_zeros(more, n_queries)])

    def project(
        self, epsilon: Tensor, slope: Tensor, eta_lambda: float, eta_epsilon: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Project the τ of the steps since the last projection, and the margins [Q] with them; move the λ.

        ``slope`` [Q] is the derivative by the margins of the Lagrangian without the τ; without ``eta_epsilon`` margins
        are fixed. Returns the margins, and the means of the projected τ of positives, [Q], NaN where there are none.
        """
        rows = sorted(self.touched)
        self.touched.clear()
        if not rows:
            return epsilon, torch.full_like(epsilon, torch.nan)
        tau, lam, score = self.values[rows].unbind(-1)
        positive = self.positive[rows]
        n = positive.sum(0, dtype=torch.float64)
        bound = epsilon.cpu()
        masked = torch.where(positive, tau, -torch.inf).T
        if eta_epsilon is not None:
            # In the sum over these examples, each of whose τ takes its own steps, the slope counts n times.
            masked, bound = project_tau(masked, torch.where(n > 0, bound - eta_epsilon * n * slope.cpu(), bound))
        tau = torch.where(positive, torch.minimum(masked.T, bound), tau)
        lam = torch.where(positive, (lam + eta_lambda * (tau - score)).clamp(0, MAX_MULTIPLIER), lam)
        self.values[rows] = torch.stack([tau, lam, score], -1)
        mean = torch.where(positive, tau, 0).sum(0) / n
        return bound.to(epsilon.device), mean.to(epsilon.device)

    def as_dict(self) -> dict[str, Tensor]:
        """Return copies of the variables, for a checkpoint."""
        n, n_queries = len(self.rows), self.values.shape[1]
        empty = torch.zeros(0, dtype=torch.long), torch.zeros(0, n_queries).double(), torch.zeros(0, n_queries).bool()
        waiting = [torch.cat(parts) for parts in zip(*self.waiting, strict=True)] if self.waiting else empty
        return {
            'ids': torch.tensor(list(self.rows), dtype=torch.long),
            'values': self.values[:n].clone(),
            'positive': self.positive[:n].clone(),
            'touched': torch.tensor(sorted(self.touched), dtype=torch.long),
            'calls': torch.tensor([len(ids) for ids, _, _ in self.waiting], dtype=torch.long),
            **dict(zip(('waiting_ids', 'waiting_scores', 'waiting_positive'), waiting, strict=True)),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Load the variables of a checkpoint; raise ValueError if a tensor is missing or does not fit."""
        check = partial(check_state, state)
        n, n_queries, _ = check('values', (None, None, 3)).shape
        ids, touched, calls = (
            check(name, shape, torch.long).tolist()
            for name, shape in (('ids', (n,)), ('touched', (None,)), ('calls', (None,)))
        )
        n_waiting = len(check('waiting_ids', (None,), torch.long))
        # Before the first step there are no rows, and `values` does not give the number of queries.
        scores = check('waiting_scores', (n_waiting, n_queries if n else None))
        check('waiting_positive', tuple(scores.shape), torch.bool)
        are_rows = all(0 <= row < n for row in touched) and len(set(touched)) == len(touched)
        if len(set(ids)) < n or not are_rows or min(calls, default=0) < 0 or sum(calls) != n_waiting:
            raise ValueError('The rows of examples in the state of an S-measure loss should belong together.')
        self.rows = {key: row for row, key in enumerate(ids)}
        self.values, self.positive = state['values'].clone(), check('positive', (n, n_queries), torch.bool).clone()
        self.touched = set(touched)
        waiting = (state[f'waiting_{name}'].split(calls) for name in ('ids', 'scores', 'positive'))
        self.waiting = list(zip(*waiting, strict=True))


def finite_examples(ids: Tensor, items: RatedItems) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, scores and positives (0 or 1) of the examples with finite scores, by example."""
    scores, positive = items.scores[0].T, (items.positive[0] > 0).T
    finite = scores.isfinite().all(1)
    return ids[finite].long().to(scores.device), scores[finite].double(), positive[finite].to(torch.uint8)


def check_ids(ids: Tensor | None, inputs: Inputs) -> Tensor:
    """Return the ids; raise ValueError unless there is one for each example."""
    if ids is not None and not ids.is_floating_point() and len(inputs.shape) == 1 and ids.shape == inputs.shape:
        return ids
    actual = 'None' if ids is None else f'{ids.dtype} of shape {tuple(ids.shape)}'
    shape = inputs.shape[0], inputs.n_classes, *inputs.shape[1:]
    raise ValueError(
        'Parameter `ids` should hold a number for each example, of shape [N] for scores [N, C], with '
        f'`per_example=True`. Found {actual} for scores of shape {shape}.'
    )


def check_state(
    state: dict[str, Tensor], name: str, shape: tuple[int | None, ...], dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return a tensor of a checkpoint; raise unless it has this shape, of any size where that is None, and this dtype.

    One that is larger than its memory, as made by `Tensor.expand`, is refused: it could be of any size.
    """
    value: object = state.get(name)
    if isinstance(value, Tensor) and value.dtype == dtype and len(value.shape) == len(shape):
        sizes = zip(shape, value.shape, strict=True)
        if all(size in (None, actual) for size, actual in sizes) and value.nbytes <= value.untyped_storage().nbytes():
            return value
    actual = f'{value.dtype} of shape {tuple(value.shape)}' if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(
        f'The state of an S-measure loss should have `{name}` as {dtype} of shape {shape}. Found {actual}.'
    )
