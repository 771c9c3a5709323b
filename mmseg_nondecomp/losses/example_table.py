"""A variable τ and a multiplier λ for each example of a data set, as the S-measures paper has them."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor

from mmseg_nondecomp.functional.project_tau import project_tau
from mmseg_nondecomp.losses.dual_state import MOST, StepSizes, check_kept
from mmseg_nondecomp.losses.scope import lengths_by_process, rows_by_process


class ExampleTable:
    r"""The variables of the constraints :math:`\tau_i \le z_i` of the positives, found by the id of their example.

    The Lagrangian has :math:`-w \tau_i + \lambda_i (\tau_i - z_i)` for each, where w is what it pays for a true
    positive. In each step the τ of the examples seen in it descend. A projection takes those seen since the last, and
    no others, below the margin, and raises their λ. An example that is new starts where its score has the Lagrangian
    least: at τ = min(ε, z), with λ = w where that is z. All is kept on the CPU, in float64.
    """

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.values = torch.zeros(0, 1, 3, dtype=torch.float64)
        """τ, λ and the last score of each example in each query, [M, Q, 3]; NaN where it has been no positive."""
        self.positive = torch.zeros(0, 1, dtype=torch.bool)
        """Where it was one when it was last seen, [M, Q]."""
        self.touched: set[int] = set()
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def penalties(self, ids: Tensor | None, scores: Tensor, epsilon: Tensor, pay: Tensor, damping: float) -> Tensor:
        r"""What stands for the penalty of positives.

        .. math:: w (\varepsilon - \tau) + \lambda (\tau - z) \quad\text{for}\quad w \max(0, \varepsilon - z).

        Args:
            ids: Which examples they are, of shape [n].
            scores: Their scores z, of shape [Q, n].
            epsilon: The margins, of shape [Q, 1].
            pay: What the Lagrangian pays for a true positive, w, of shape [Q, 1].
            damping: What the present violation adds to λ.

        Returns:
            Of shape [Q, n], with a gradient for the scores.
        """
        z = scores.detach()
        tau, price = torch.minimum(z, epsilon), pay * (z < epsilon)
        places = [] if ids is None else [self.rows.get(key, -1) for key in ids.tolist()]
        if max(places, default=-1) >= 0:
            kept, lam, _ = self.values[[max(place, 0) for place in places]].to(z).movedim(2, 0).transpose(1, 2)
            known = (torch.tensor(places, device=z.device) >= 0) & ~kept.isnan()
            tau = torch.where(known, kept, tau)
            price = torch.where(known, (lam + damping * (kept - z)).clamp(0, MOST), price)
        return pay * (epsilon - tau) + price * (tau - scores)

    def see(self, ids: Tensor | None, scores: Tensor, positive: Tensor) -> None:
        """Take down examples of all processes for the next step; those whose scores are no numbers are left out."""
        if ids is None:
            return
        finite = scores.isfinite().all(1)
        own = ids[finite].long().to(scores.device), scores[finite].double(), positive[finite].to(torch.uint8)
        lengths = lengths_by_process(len(own[0]), scores.device)
        of_all = [torch.cat(rows_by_process(part, lengths)).cpu() for part in own]
        self.waiting.append((of_all[0], of_all[1], of_all[2].bool()))

    def descend(self, epsilon: Tensor, pay: Tensor, sizes: StepSizes) -> None:
        """Start the variables of new examples, take the scores of all that wait, and move their τ downhill."""
        epsilon, pay = epsilon.cpu(), pay.cpu()
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
            tau, lam = torch.where(starts, z.minimum(epsilon), tau), torch.where(starts, pay * (z < epsilon), lam)
            slope = (lam + sizes.damping * (tau - z)).clamp(0, MOST) - pay
            tau = torch.where(self.positive[rows], tau - sizes.eta_tau * slope, tau)
            self.values[rows] = torch.stack([tau, lam, z], -1)
            self.touched.update(rows)
        self.waiting.clear()

    def _grow(self, n_queries: int) -> None:
        """Room for all rows, and half as many again."""
        if len(self.rows) <= len(self.values):
            return
        if len(self.values) == 0:
            self.values, self.positive = self.values.new_zeros(0, n_queries, 3), self.positive.new_zeros(0, n_queries)
        more = len(self.rows) * 3 // 2 - len(self.values)
        self.values = torch.cat([self.values, self.values.new_full((more, n_queries, 3), torch.nan)])
        self.positive = torch.cat([self.positive, self.positive.new_zeros(more, n_queries)])

    def project(self, epsilon: Tensor, slope: Tensor, sizes: StepSizes, free: bool) -> tuple[Tensor, Tensor]:
        """Project the τ that were seen, and the margins with them; raise the λ.

        Args:
            epsilon: The margins, of shape [Q].
            slope: The derivatives by the margins of what the Lagrangian has beside the τ, of shape [Q].
            sizes: The step sizes.
            free: Whether the margins move.

        Returns:
            The margins, and the means of the τ of positives that were seen, NaN where there are none; of shape [Q].
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
        if free:
            # In the sum over these examples, each of whose τ takes steps of its own, the slope counts n times.
            masked, bound = project_tau(masked, torch.where(n > 0, bound - sizes.eta_epsilon * n * slope.cpu(), bound))
        tau = torch.where(positive, torch.minimum(masked.T, bound), tau)
        lam = torch.where(positive, (lam + sizes.eta_lambda * (tau - score)).clamp(0, MOST), lam)
        self.values[rows] = torch.stack([tau, lam, score], -1)
        mean = torch.where(positive, tau, 0).sum(0) / n
        return bound.to(epsilon.device), mean.to(epsilon.device)

    def as_dict(self) -> dict[str, Tensor]:
        """For a checkpoint."""
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
        """Take what a checkpoint has.

        Raises:
            ValueError: If it has something else.
        """
        check = partial(_checked, state)
        n, n_queries, _ = check('values', (None, None, 3), torch.float64).shape
        ids, touched, calls = (
            check(name, shape, torch.long).tolist()
            for name, shape in (('ids', (n,)), ('touched', (None,)), ('calls', (None,)))
        )
        n_waiting = len(check('waiting_ids', (None,), torch.long))
        # Before the first step there are no rows, which would tell how many queries there are.
        scores = check('waiting_scores', (n_waiting, n_queries if n else None), torch.float64)
        check('waiting_positive', tuple(scores.shape), torch.bool)
        are_rows = all(0 <= row < n for row in touched) and len(set(touched)) == len(touched)
        if len(set(ids)) < n or not are_rows or min(calls, default=0) < 0 or sum(calls) != n_waiting:
            raise ValueError('The rows of examples in the state of an S-measure loss should belong together.')
        self.rows = {key: row for row, key in enumerate(ids)}
        self.values, self.positive = state['values'].clone(), check('positive', (n, n_queries), torch.bool).clone()
        self.touched = set(touched)
        waiting = (state[f'waiting_{name}'].split(calls) for name in ('ids', 'scores', 'positive'))
        self.waiting = list(zip(*waiting, strict=True))


def _checked(state: dict[str, Tensor], name: str, shape: tuple[int | None, ...], dtype: torch.dtype) -> Tensor:
    return check_kept(name, state.get(name), shape, dtype)
