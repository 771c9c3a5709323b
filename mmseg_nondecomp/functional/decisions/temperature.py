r"""Temperature scaling: probabilities that are as certain as they are right.

For logits :math:`z` and labels :math:`y`, the temperature is

.. math:: T = \arg\min_T \; \operatorname{mean} \left[ -\log \operatorname{softmax}(z / T)_y \right].

It changes no argmax. The loss is convex in :math:`\beta = 1 / T`. Its minimum is where the slope

.. math:: \operatorname{mean} \left[ \sum_c p_c z_c - z_y \right], \qquad p = \operatorname{softmax}(\beta z),

changes its sign, which a grid that is refined around this place finds from sums alone.

Reference:
    C. Guo, G. Pleiss, Y. Sun, K. Weinberger: On Calibration of Modern Neural Networks. ICML 2017.
    https://arxiv.org/abs/1706.04599
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    MODES,
    Inputs,
    Reading,
    Reduce,
    check_floating_point,
    check_ignore_index,
    check_integer,
    check_number,
    check_option,
    check_tensor,
    in_one_process,
    read_inputs,
)
from mmseg_nondecomp.functional.decisions._batches import RepeatablePairs, check_repeatable, each

LOWEST, HIGHEST = 1 / 32, 32.0
POINTS = 9  # number of temperatures of a pass


@dataclass(frozen=True)
class Temperature:
    """Division of logits by a temperature.

    Args:
        value: Temperature, positive: above 1 for a network that is too certain.

    Raises:
        ValueError: If it is not positive and finite.
        TypeError: If it is not a number.

    Example:
        >>> Temperature(2.0)(torch.tensor([[4.0, -1.0]]))
        tensor([[ 2.0000, -0.5000]])
    """

    value: float

    def __post_init__(self) -> None:
        check_number('value', self.value, '(0, inf)')

    def __call__(self, logits: Tensor) -> Tensor:
        """Return logits divided by the temperature, in their dtype.

        Raises:
            TypeError: If the logits are not a floating-point tensor.
        """
        check_tensor('logits', logits)
        check_floating_point('logits', logits)
        return logits / self.value

    @classmethod
    def fit(
        cls,
        batches: RepeatablePairs,
        ignore_index: int | None = None,
        mode: str | None = None,
        passes: int = 3,
        reduce: Reduce = in_one_process,
    ) -> 'Temperature':
        """Fit the temperature that minimises the mean cross-entropy.

        The first pass finds the place between nine temperatures from 1/32 to 32, evenly spaced in the logarithm; each
        further pass, between nine temperatures around the place. The last one interpolates: the error of three passes
        is below 0.1 %. Perfectly separated data give 1/32, the lowest temperature. If all temperatures are as good, as
        for logits that are constant over the classes, the temperature is 1.

        Args:
            batches: Pairs of logits [N, C, *] and targets, read as by the losses: class indices, where 255 is ignored
                by default, or shares of classes. They pass several times: a list, a data loader that repeats itself, or
                a function that returns an iterator. Several processes: at least one pair in each.
            ignore_index: Label to leave out.
            mode: ``'multiclass'``, ``'binary'`` or ``'multilabel'``. By default one channel is binary, with a sigmoid,
                and several have a softmax. ``'multilabel'`` has a sigmoid in each channel.
            passes: Number of passes, at least 1.
            reduce: Sum of a float64 tensor over processes; it is called once a pass.

        Raises:
            ValueError: If no item counts; if the cross-entropy is NaN or infinite; if tensors do not belong together.
            TypeError: If the batches can be passed only once, or an argument is of a wrong type.

        Example:
            >>> generator = torch.Generator().manual_seed(0)
            >>> logits = torch.randn(5000, 4, generator=generator)
            >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
            >>> round(Temperature.fit([(3 * logits, labels)]).value, 1)
            3.0
        """
        _check_arguments(batches, ignore_index, mode, passes)
        low, high = math.log(LOWEST), math.log(HIGHEST)
        for _ in range(passes):
            grid = torch.linspace(low, high, POINTS, dtype=torch.float64)
            slopes = _mean_slopes(batches, grid.exp().tolist(), ignore_index, mode, reduce)
            if not slopes.any():
                return cls(1.0)
            n_below = int((slopes > 0).long().cumprod(0).sum())
            if n_below in (0, POINTS):
                return cls(grid[min(n_below, POINTS - 1)].exp().item())
            low, high = grid[n_below - 1 : n_below + 1].tolist()
        before, after = slopes[n_below - 1 : n_below + 1].tolist()
        return cls(math.exp(low + (high - low) * before / (before - after)))


def _check_arguments(batches: Any, ignore_index: Any, mode: Any, passes: Any) -> None:
    """Raise unless the arguments of a fit are valid."""
    check_repeatable(batches)
    check_ignore_index(ignore_index)
    check_integer('passes', passes, lowest=1)
    if mode is not None:
        check_option('mode', mode, MODES)


def _mean_slopes(
    batches: RepeatablePairs, temperatures: list[float], ignore_index: int | None, mode: str | None, reduce: Reduce
) -> Tensor:
    """Return the mean slope at each temperature, float64 on the CPU; raise unless there is one."""
    several = mode == 'multilabel'
    reading = Reading(mode, overlaps=several, has_background=several, is_stated=mode is not None)
    sums: Any = 0
    checked: dict[Any, int] = {}
    for logits, target in each(batches):
        inputs = read_inputs(logits, target, None, ignore_index, reading, 'logits', checked)
        find = _slopes_of_sigmoid if inputs.n_classes == 1 or several else _slopes_of_softmax
        sums = sums + torch.stack([*find(inputs, temperatures), inputs.valid.sum().double()])
    *slopes, n_items = reduce(sums).cpu()
    if n_items == 0:
        raise ValueError('Parameter `batches` should hold an item that is not ignored. Found none.')
    found = torch.stack(slopes)
    if not found.isfinite().all():
        raise ValueError(
            'Parameter `batches` should have a finite cross-entropy. Found NaN or infinity: a logit is NaN or '
            'infinite, or that of a label is -infinity.'
        )
    return found / n_items


def _slopes_of_softmax(inputs: Inputs, temperatures: list[float]) -> list[Tensor]:
    """Return the sum of the slopes of the items at each temperature, float64."""
    scores = _counted_scores(inputs)
    scores = scores - scores.amax(1, keepdim=True)
    if inputs.is_soft:
        mass, of_label = inputs.target.sum(1), _expectation(inputs.target, scores)
    else:
        label = torch.where(inputs.valid, inputs.target, 0)
        mass, of_label = inputs.valid, scores.gather(1, label.unsqueeze(1)).squeeze(1)
    return [
        (mass * _expectation((scores / temperature).softmax(1), scores) - of_label).sum(dtype=torch.float64)
        for temperature in temperatures
    ]


def _slopes_of_sigmoid(inputs: Inputs, temperatures: list[float]) -> list[Tensor]:
    """Return the same for each class by itself."""
    scores = _counted_scores(inputs)
    of_label = _product(inputs.one_hot().to(scores.dtype), scores)
    return [
        (_product((scores / temperature).sigmoid(), scores) - of_label).sum(dtype=torch.float64)
        for temperature in temperatures
    ]


def _counted_scores(inputs: Inputs) -> Tensor:
    """Return the logits, 0 for items that do not count, which have no slope then."""
    return torch.where(inputs.valid.unsqueeze(1), inputs.scores.detach(), 0)


def _expectation(shares: Tensor, scores: Tensor) -> Tensor:
    """Return the mean of scores [N, C, P] by shares of the classes, of shape [N, P]."""
    return _product(shares, scores).sum(1)


def _product(shares: Tensor, scores: Tensor) -> Tensor:
    """Return shares of scores, 0 for a share of 0 of -infinity."""
    return torch.where((shares == 0) & (scores == -torch.inf), 0, shares * scores)
