"""Schedule of the projections and multipliers of an `SMeasureLoss`."""

import math
from typing import Any

from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmseg_nondecomp.functional._inputs import check_flag, check_integer
from mmseg_nondecomp.losses import SMeasureLoss
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class DualAscentHook(Hook):
    """Hook that steps all `SMeasureLoss` of a model, their multipliers on a schedule of their own.

    In each iteration margins, thresholds and τ take a step of descent, as the network does. At the end of each interval
    the τ of the examples since the last one are projected and the multipliers take a step of ascent. ``interval=1``
    stands for the "full projections" of the paper (see :mod:`mmseg_nondecomp.functional.s_measures.problem`), and is
    the default of the loss without this hook; ``interval=1, by_epoch=True`` is the paper's algorithm 1.

    In loops other than MMEngine's ``EpochBasedTrainLoop``, such as MMSegmentation's ``IterBasedTrainLoop``, an epoch
    ends when all processes together have drawn as many examples as the data set has.

    With accumulated gradients, each iteration is still a step. With ``interval`` at the number of accumulated
    iterations, multipliers step together with the network. A step precedes the checkpoint of its iteration. A training
    that is not resumed starts with new multipliers, also with ``load_from``.

    Args:
        interval: Iterations, or epochs, from one ascent to the next.
        by_epoch: Whether ``interval`` counts epochs.

    Example:
        The algorithm of the paper, in a config::

            custom_hooks = [dict(type='DualAscentHook', interval=1, by_epoch=True)]
    """

    priority = 'NORMAL'

    def __init__(self, interval: int = 1, by_epoch: bool = False) -> None:
        check_integer('interval', interval, lowest=1)
        check_flag('by_epoch', by_epoch)
        self.interval, self.by_epoch = interval, by_epoch
        self.losses: list[SMeasureLoss] = []

    def before_train(self, runner: Runner) -> None:
        """Take over the steps of the losses, and start them anew with a new training."""
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
        """Leave the steps to the losses."""
        for loss in self.losses:
            loss.follows_runner = True


def _iterations_of_an_epoch(runner: Runner) -> int:
    """Return the number of iterations that draw the data set once."""
    dataloader = runner.train_dataloader
    if isinstance(runner.train_loop, EpochBasedTrainLoop):
        return len(dataloader)
    batches = dataloader.batch_sampler
    batch_size = 1 if batches is None else getattr(batches, 'batch_size', None)
    try:
        # Not the length of the sampler or the data loader: MMEngine's endless sampler has that of the data set.
        if batch_size is not None:
            return math.ceil(len(dataloader.dataset) / (batch_size * get_world_size()))
        return len(batches)
    except TypeError as error:
        raise ValueError(
            'Parameter `by_epoch` should be False where an epoch has no length. Found True, with '
            f'{type(dataloader.dataset).__name__} and {type(batches).__name__}, which have no length.'
        ) from error
