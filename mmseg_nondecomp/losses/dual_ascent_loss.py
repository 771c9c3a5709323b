"""A loss with variables of its own beside the network, which it moves down and up by itself."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.rate_problem import AREAS, RateProblem
from mmseg_nondecomp.losses.base import SetLoss
from mmseg_nondecomp.losses.dual_state import DualState, StepSizes, check_step_sizes
from mmseg_nondecomp.losses.example_table import ExampleTable
from mmseg_nondecomp.losses.monitor import is_traced_in_training, training_iteration


class DualAscentLoss(SetLoss):
    """What an S-measure loss keeps and when it moves: margins, thresholds and τ down, multipliers up.

    None of it is a parameter. It is the same on all processes, in the ``state_dict``, and begins anew with a training.

    Args:
        problem: The costs and constraints of the measure.
        measure: Its name.
        sizes: How far the variables go in a step.
        proxy: Whether margins and multipliers follow the true rates; by default they do, but not with ``per_example``.
        per_example: Whether each example has a τ and a λ.
        kwargs: What `SetLoss` takes.
    """

    def __init__(
        self,
        problem: RateProblem,
        measure: str,
        sizes: StepSizes,
        proxy: bool | None,
        per_example: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, flag in (('per_example', per_example), ('proxy', proxy)):
            if not isinstance(flag, bool) and (flag is not None or name == 'per_example'):
                raise TypeError(f'Parameter `{name}` should be True or False. Found {flag!r}.')
        check_step_sizes(sizes)
        self.problem, self.measure, self.sizes = problem, measure, sizes
        self.proxy = not per_example if proxy is None else proxy
        self.per_example = per_example
        self.follows_runner = True
        self.reset()

    def reset(self) -> None:
        """Forget all that was seen, and begin anew."""
        self.state: DualState | None = None
        self.examples = ExampleTable() if self.per_example else None
        self._iteration: int | None = None

    @torch.no_grad()
    def step(self, ascend: bool = True) -> None:
        """Move margins, thresholds and τ down, and with ``ascend``, project the τ and move the multipliers up.

        It goes by what was seen since the last step in calls that a gradient was to be taken of. All processes have
        to do it together. Where nothing was seen, nothing moves.
        """
        state = self.state
        if state is None:
            return
        # Asking whether anything was seen would wait for the device.
        before, nothing = state.as_dict(), ~state.pending.any() & (state.steps == 0)
        state.learn(self.problem)
        rates = state.rates()
        violation = state.violation(self.problem, rates, self.proxy)
        by_tau = self.per_example and not self.proxy and self.measure == 'f_beta'
        if self.measure == 'f_beta' and not by_tau:
            state.move_epsilon(self.problem, rates, self.sizes, self.proxy)
        if self.examples is not None:
            pay, charge = self.problem.prices(state.price, rates.r)
            self.examples.descend(state.epsilon[:, 0], pay[:, 0], self.sizes)
            if ascend:
                slope = self.problem.cost_epsilon + charge * rates.b_by_epsilon
                bound, tau = self.examples.project(state.epsilon[:, 0], slope[:, 0], self.sizes, by_tau)
                state.epsilon = bound.clamp(min=1).unsqueeze(1)
                if not self.proxy:
                    from_tau = self.problem.violation(tau.unsqueeze(1), rates.b, rates.r)
                    violation = torch.where(from_tau.isnan(), violation, from_tau)
        if self.measure in AREAS:
            state.move_threshold(self.problem, rates, self.sizes)
        if ascend:
            state.ascend(violation, self.sizes)
        state.put_back(before, nothing)

    def keep_time(self) -> None:
        """Step once in each iteration of a Runner, before what it has to say next; begin anew with a training."""
        if is_traced_in_training():
            torch._dynamo.disable(self.keep_time)()  # a graph knows no iteration: it breaks here
            return
        iteration = training_iteration()
        if iteration is None or iteration == self._iteration:
            return
        if iteration == 0:
            self.reset()
        else:
            self.step()
        self._iteration = iteration

    def state_of(self, scores: Tensor) -> DualState:
        """The variables of the queries with these scores, of shape [N, Q, P]."""
        n_queries, device = scores.shape[1], scores.device
        if self.state is None:
            self.state = DualState.start(n_queries, len(self.problem.cost), device)
        if len(self.state.epsilon) != n_queries:
            raise ValueError(
                'Parameter `pred` should keep its number of classes: there are multipliers for '
                f'{len(self.state.epsilon)}. Found {n_queries}.'
            )
        if self.state.epsilon.device != device:
            self.state = self.state.to(device)
        if self.problem.cost.device != device:
            self.problem = self.problem.to(device)
        return self.state

    def get_extra_state(self) -> dict[str, dict[str, Tensor]]:
        """Margins, thresholds, multipliers and counts, for ``state_dict``."""
        kept = {'queries': self.state, 'examples': self.examples}
        return {name: part.as_dict() for name, part in kept.items() if part is not None}

    def set_extra_state(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Take those of a checkpoint."""
        self.reset()
        if 'queries' in state:
            self.state = DualState.from_dict(state['queries'])
        if 'examples' in state and self.examples is not None:
            self.examples.load(state['examples'])

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *others: Any,
    ) -> None:
        """A checkpoint of a training with another loss has no such state, and need not."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *others)
        missing_keys[:] = [key for key in missing_keys if key != f'{prefix}_extra_state']
