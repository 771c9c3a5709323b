"""The clock of S-measures: when the variables of an `SMeasureLoss` are projected and its multipliers rise."""

from __future__ import annotations

import math
from typing import Any

from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmseg_nondecomp.losses import SMeasureLoss
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class DualAscentHook(Hook):
    """Takes the steps of all `SMeasureLoss` of a model, those of the multipliers on a clock of their own.

    After each iteration margins, thresholds and τ take a step of descent, as the network does. When the clock strikes,
    the τ that were seen since the last time are projected and the multipliers take a step of ascent:

    ==================================  ==========================================================
    ``interval=1``                      in each iteration: the "full projections" of the paper, and
                                        what a loss does by itself where there is no such hook
    ``interval=100``                    in every hundredth iteration
    ``interval=1, by_epoch=True``       at the end of each epoch, as the paper's algorithm 1 has it
    ==================================  ==========================================================

    MMEngine's ``EpochBasedTrainLoop`` has epochs. In any other loop, such as the ``IterBasedTrainLoop`` that
    MMSegmentation trains by, one is over when as many examples were drawn, by all processes together, as the data set
    has.

    Where gradients are accumulated, an iteration is a step all the same: each hands the losses what they have not seen.
    With ``interval`` at the number of iterations that are accumulated, multipliers wait for the network.

    A step is over before the checkpoint of its iteration is saved. A training that is not resumed begins with new
    multipliers, also with ``load_from``.

    Args:
        interval: Iterations, or epochs, from one ascent to the next.
        by_epoch: Whether ``interval`` counts epochs.

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If ``interval`` is less than 1; when training begins, if the model has no `SMeasureLoss`, or if it
            cannot be told how long an epoch is.

    Example:
        The algorithm of the paper, in a config::

            custom_hooks = [dict(type='DualAscentHook', interval=1, by_epoch=True)]

    Reference:
        S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
        Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, algorithm 1.
        https://arxiv.org/abs/1909.12398
    """

    priority = 'NORMAL'

    def __init__(self, interval: int = 1, by_epoch: bool = False) -> None:
        if isinstance(interval, bool) or not isinstance(interval, int):
            raise TypeError(f'Parameter `interval` should be an integer. Found {interval!r}.')
        if interval < 1:
            raise ValueError(f'Parameter `interval` should be at least 1. Found {interval}.')
        if not isinstance(by_epoch, bool):
            raise TypeError(f'Parameter `by_epoch` should be True or False. Found {by_epoch!r}.')
        self.interval = interval
        self.by_epoch = by_epoch
        self.losses: list[SMeasureLoss] = []

    def before_train(self, runner: Runner) -> None:
        """Take the clock from the losses, and have them begin anew with a new training."""
        self.losses = [module for module in runner.model.modules() if isinstance(module, SMeasureLoss)]
        if not self.losses:
            raise ValueError('DualAscentHook needs a model with a loss of type `SMeasureLoss`. Found none.')
        self.period = self.interval * (_iterations_of_an_epoch(runner) if self.by_epoch else 1)
        for loss in self.losses:
            loss.follows_runner = False
            if runner.iter == 0:
                loss.reset()

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Take the step of this iteration."""
        ascend = self.every_n_train_iters(runner, self.period)
        for loss in self.losses:
            loss.step(ascend=ascend)

    def after_train(self, runner: Runner) -> None:
        """Give the clock back."""
        for loss in self.losses:
            loss.follows_runner = True


def _iterations_of_an_epoch(runner: Runner) -> int:
    """How many iterations draw the data set once."""
    dataloader = runner.train_dataloader
    if isinstance(runner.train_loop, EpochBasedTrainLoop):
        return len(dataloader)
    batches = dataloader.batch_sampler
    batch_size = 1 if batches is None else getattr(batches, 'batch_size', None)
    try:
        # The length of a sampler or a data loader says nothing: MMEngine's endless sampler has that of the data set.
        if batch_size is not None:
            return math.ceil(len(dataloader.dataset) / (batch_size * get_world_size()))
        return len(batches)
    except TypeError as error:
        raise ValueError(
            'Parameter `by_epoch` should be False where nothing says how long an epoch is. Found True, with '
            f'{type(dataloader.dataset).__name__} and {type(batches).__name__}, which have no length.'
        ) from error
