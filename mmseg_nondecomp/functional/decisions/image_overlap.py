"""Decisions of logits for the IoU or Dice of an image, with a fitted temperature."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import jaccard_counts
from mmseg_nondecomp.functional._inputs import (
    Reading,
    Reduce,
    check_absent,
    check_number,
    in_one_process,
    read_inputs,
)
from mmseg_nondecomp.functional.decisions._batches import RepeatablePairs, each, half_of_images
from mmseg_nondecomp.functional.decisions._logits import class_probabilities
from mmseg_nondecomp.functional.decisions.expected_overlap import decide_with_limits, goal_of
from mmseg_nondecomp.functional.decisions.gain_report import GainReport, split_report
from mmseg_nondecomp.functional.decisions.temperature import Temperature

LIMITS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Values of ``min_probability`` to choose from."""


class ImageOverlap:
    """Decisions that maximise the expected IoU or Dice of each image.

    It is :func:`decide_overlap` of the softmax of logits; of a single channel, of the sigmoid.

    Args:
        measure: ``'iou'`` or ``'dice'``.
        temperature: Divisor of the logits.
        min_probability, zero_division, expectation: As in :func:`decide_overlap`.

    Attributes:
        report: After :meth:`fit`, a :class:`GainReport` of the mean over the images of the mean measure of the classes
            that are true or decided in the image; else None.

    Example:
        >>> logits = torch.tensor([[[2.0, -0.4, -0.4, -2.0, -2.0]]])
        >>> ImageOverlap()(logits)
        tensor([[1, 1, 1, 0, 0]])
    """

    def __init__(
        self,
        measure: str = 'iou',
        temperature: float = 1.0,
        min_probability: float = 0.0,
        zero_division: float = 0.0,
        expectation: str = 'exact',
    ) -> None:
        check_number('temperature', temperature, '(0, inf)')
        self.goal = goal_of(measure, expectation, zero_division, min_probability)
        self.measure, self.expectation = measure, expectation
        self.temperature, self.zero_division = float(temperature), float(zero_division)
        self.min_probability = float(min_probability)
        self.report: GainReport | None = None

    def __repr__(self) -> str:
        settings = ', '.join(f'{name}={value!r}' for name, value in self.settings().items())
        return f'{type(self).__name__}({settings})'

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ('measure', 'temperature', 'min_probability', 'zero_division', 'expectation')
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Any]:
        """Return all that :meth:`from_state` needs, as numbers and strings."""
        return {**self.settings(), 'report': self.report and self.report._asdict()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> 'ImageOverlap':
        """Return the decision with this state; raise ValueError or TypeError if it is not valid."""
        report, settings = split_report(state)
        decision = cls(**settings)
        decision.report = report
        return decision

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the decided classes, int64 of shape [N, *], of logits [N, C, *]; of a single channel, 0 or 1."""
        return self._decide(class_probabilities(logits, self.temperature), [self.min_probability])[0]

    def _decide(self, probs: Tensor, limits: Sequence[float]) -> Tensor:
        """Return the decided classes [L, N, *] with each limit as ``min_probability``."""
        return decide_with_limits(probs, self.goal, limits, 'binary' if probs.shape[1] == 1 else 'multiclass')

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        batches: RepeatablePairs,
        measure: str = 'iou',
        ignore_index: int | None = None,
        reduce: Reduce = in_one_process,
        **settings: Any,
    ) -> 'ImageOverlap':
        """Fit the temperature to the cross-entropy, and ``min_probability`` to the measure of the images.

        Args:
            batches: Pairs of logits [N, C, *] and class indices [N, *], where 255 is ignored by default. They pass four
                times: a list, a data loader, or a function that returns an iterator.
            measure: ``'iou'`` or ``'dice'``.
            ignore_index: Label to leave out.
            reduce: Sum of a tensor over processes; it is called once a pass.
            settings: Other arguments of the constructor. With a ``temperature``, none is fitted.

        Example:
            >>> logits = torch.tensor([[[2.0, -0.4, -0.4, -2.0, -2.0]]])
            >>> ImageOverlap.fit([(logits, torch.tensor([[1, 1, 0, 0, 0]]))]).temperature < 1
            True
        """
        check_absent('ImageOverlap.fit chooses the limit', settings, ('min_probability',))
        if 'temperature' not in settings:
            settings['temperature'] = Temperature.fit(batches, ignore_index, reduce=reduce).value
        decision = cls(measure, **settings)
        values = decision._measured(batches, ignore_index, reduce)
        # Column 0 is the measure before, column i + 1 that with limit i.
        best, even, odd = (int(_mean(part)[1:].argmax()) + 1 for part in (values.sum(1), *values.unbind(1)))
        decision.min_probability = LIMITS[best - 1]
        crossed = values[:, 0, odd] + values[:, 1, even]
        report = torch.stack([values[:, :, 0].sum(1), values[:, :, best].sum(1), crossed], 1)
        decision.report = GainReport(*_mean(report).tolist())
        return decision

    def _measured(self, batches: RepeatablePairs, ignore_index: int | None, reduce: Reduce) -> Tensor:
        """Return the sum of the measure over the images of each half, and their number, of shape [2, 2, 1 + limits].

        The measure is that of the most probable classes, and of the decisions with each limit.
        """
        sums: Any = 0
        index, checked = 0, dict[Any, int]()
        for logits, target in each(batches):
            inputs = read_inputs(logits, target, None, ignore_index, Reading(), 'logits', checked)
            if inputs.is_soft:
                raise ValueError(f'Parameter `target` should hold class indices. Found shape {tuple(target.shape)}.')
            if len(inputs.shape) == 1:
                raise ValueError(f'Parameter `logits` should be of images, [N, C, *]. Found {tuple(logits.shape)}.')
            probs = class_probabilities(logits.detach(), self.temperature)
            n_classes = inputs.n_classes
            first = (probs.squeeze(1) > 0.5).long() if n_classes == 1 else probs.max(1).indices
            maps = torch.cat([first.unsqueeze(0), self._decide(probs, LIMITS)]).flatten(2)
            # A single channel decides for label 1, which `read_inputs` gives the index 0.
            maps = 1 - maps if n_classes == 1 else maps
            values = torch.stack(
                [self._measure_of(jaccard_counts(m, inputs.target, inputs.mass, n_classes)) for m in maps]
            )
            half = half_of_images(index, len(logits), reduce, logits.device)
            index += len(logits)
            rows = torch.stack([values.nan_to_num(0), (~values.isnan()).double()])  # [2, 1 + limits, N]
            sums = sums + torch.stack([(rows * (half == parity)).sum(2) for parity in (0, 1)], 1)
        return reduce(sums).cpu()

    def _measure_of(self, counts: Tensor) -> Tensor:
        """Return the mean measure of the classes that are true or decided, [N], from intersections and unions."""
        hits, union = counts.double().unbind(1)
        return (hits / union if self.measure == 'iou' else 2 * hits / (hits + union)).nanmean(1)


def _mean(sums: Tensor) -> Tensor:
    """Return means from sums and numbers [2, ...]; 0 where nothing counts."""
    return sums[0] / sums[1].clamp(min=1)
