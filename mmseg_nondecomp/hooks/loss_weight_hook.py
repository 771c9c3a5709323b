"""Loss weights that change during training, as from cross-entropy to the Lovász loss."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import nn

from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class LossWeightHook(Hook):
    """Schedule of the ``loss_weight`` of losses.

    It has no state: a resumed training continues with the weights of its iteration. A loss of weight 0 is still
    computed and logged (as 0).

    Args:
        weights: For each ``loss_name`` a list of (share, weight): the share of training, from 0 to 1, from which the
            weight applies. All losses of that name are set, also in auxiliary heads.

    Example:
        Cross-entropy for the first half of the training and the Lovász loss for the second::

            weights = dict(loss_ce=[(0, 1.0), (0.5, 0.0)], loss_lovasz=[(0, 0.0), (0.5, 1.0)])
            custom_hooks = [dict(type='LossWeightHook', weights=weights)]
    """

    def __init__(self, weights: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        if not isinstance(weights, Mapping) or not weights:
            raise TypeError(
                f'Parameter `weights` should map loss names to lists of (share, weight). Found {weights!r}.'
            )
        for name, points in weights.items():
            _check_points(name, points)
        self.weights = weights
        self.losses: dict[str, list[Any]] = {}

    def before_train(self, runner: Runner) -> None:
        """Find the losses by their names."""
        losses = list(losses_of(runner.model))
        missing = set(self.weights) - {loss.loss_name for loss in losses}
        if missing:
            raise ValueError(
                'Parameter `weights` should name losses of the model, which are '
                f'{sorted({loss.loss_name for loss in losses})}. Found {sorted(missing)}.'
            )
        self.losses = {name: [loss for loss in losses if loss.loss_name == name] for name in self.weights}

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Set the weights of this iteration."""
        progress = runner.iter / runner.max_iters
        for name, points in self.weights.items():
            for loss in self.losses[name]:
                loss.loss_weight = [weight for share, weight in points if share <= progress][-1]


def _check_points(name: str, points: Any) -> None:
    is_list = isinstance(points, Sequence) and all(isinstance(p, Sequence) and len(p) == 2 for p in points)
    if not is_list or not all(isinstance(number, (int, float)) for point in points for number in point):
        raise TypeError(
            f'Parameter `weights` should give {name!r} a list of (share, weight), both numbers. Found {points!r}.'
        )
    shares = [share for share, _ in points]
    if not shares or shares[0] != 0 or not all(a < b for a, b in itertools.pairwise([*shares, 1])):
        raise ValueError(
            'Parameter `weights` should list shares of training that start at 0 and grow, each below 1. '
            f'Found {shares} for {name!r}.'
        )
    if not all(math.isfinite(weight) for _, weight in points):
        raise ValueError(f'Parameter `weights` should be finite. Found {points!r} for {name!r}.')


def losses_of(module: nn.Module) -> Iterator[Any]:
    """Yield the losses of a model, but not those that a loss contains."""
    for child in module.children():
        if isinstance(getattr(child, 'loss_name', None), str) and hasattr(child, 'loss_weight'):
            yield child
        else:
            yield from losses_of(child)
