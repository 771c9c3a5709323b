r"""Offsets of the logits of the classes, fitted to a measure of the whole data set.

The mIoU and other measures of a data set are functions of three numbers of each class: hits, decided pixels and true
pixels. With offsets :math:`b` a pixel is decided for :math:`\arg\max_c (z_c + b_c)`. They are fitted to validation
predictions that are not stored. Each pass over them counts how many pixels have class f in the first place and g in the
second, a given difference between the two, and f, g or another class as label. Other offsets move these pixels from f
to g if they raise g over f by more than the difference. The counts thus give the measure as a function of the offsets,
up to pixels that go to their third class. It is maximised by coordinate ascent, and the next pass counts with the new
offsets.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    Reading,
    Reduce,
    at_least_float32,
    check_floating_point,
    check_ignore_index,
    check_integer,
    check_option,
    check_tensor,
    in_one_process,
    is_number,
    read_inputs,
    refuse,
)
from mmseg_nondecomp.functional.decisions._batches import RepeatablePairs, check_repeatable, each, half_of_images
from mmseg_nondecomp.functional.decisions.gain_report import GainReport, split_report

Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
STEP = 0.05  # resolution of the offsets
REACH = 60  # largest change of an offset in a pass, in steps
ROUNDS = 20  # of coordinate ascent in a pass, at most


class Counts(NamedTuple):
    """Counts of the pixels of a data set for given offsets, int64."""

    moves: Tensor  # by first class, second class, steps between them, and label: first, second, other; [C, C, T, 3]
    true: Tensor  # number of pixels of each class, [C]

    @property
    def decided(self) -> Tensor:
        """Number of pixels decided for each class."""
        return self.moves.sum((1, 2, 3))

    @property
    def hits(self) -> Tensor:
        """Number of them that belong to it."""
        return self.moves[..., 0].sum((1, 2))


class ClassOffsets:
    r"""Decisions for the highest logit, after an offset is added to the logit of each class.

    Args:
        values: Offset of each class. With a single channel, whose logits are compared with 0, one offset.

    Attributes:
        values: Offset of each class.
        report: After :meth:`fit`, the measure of the data set before and after, a :class:`GainReport`; else None.

    Raises:
        TypeError: If the offsets are not numbers.
        ValueError: If they are not finite, or there is none.

    Example:
        >>> logits = torch.tensor([[2.0, 1.5, 0.0], [0.0, 1.0, 3.0]])
        >>> logits.argmax(1), ClassOffsets([0.0, 1.0, 0.0])(logits)
        (tensor([0, 2]), tensor([1, 2]))
    """

    def __init__(self, values: Sequence[float]) -> None:
        listed = values.tolist() if isinstance(values, Tensor) else values
        if not isinstance(listed, (list, tuple)) or not all(is_number(value) for value in listed):
            raise TypeError(f'Parameter `values` should be a list of numbers, one for each class. Found {values!r}.')
        self.values = tuple(float(value) for value in listed)
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ValueError(f'Parameter `values` should hold finite numbers. Found {values!r}.')
        self.report: GainReport | None = None

    def __repr__(self) -> str:
        return f'{type(self).__name__}({[round(value, 4) for value in self.values]})'

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the decided classes, int64 of shape [N, *], of logits [N, C, *]; of a single channel, 0 or 1.

        Raises:
            TypeError: If the logits are not a floating-point tensor.
            ValueError: If the number of channels is not that of the offsets.
        """
        check_tensor('logits', logits)
        check_floating_point('logits', logits)
        if logits.dim() < 2 or logits.shape[1] != len(self.values):
            raise ValueError(
                f'Parameter `logits` should be of shape [N, {len(self.values)}, *], as there are {len(self.values)} '
                f'offsets. Found {tuple(logits.shape)}.'
            )
        scores = at_least_float32(logits)
        scores = scores + scores.new_tensor(self.values).view(-1, *[1] * (logits.dim() - 2))
        return (scores.squeeze(1) > 0).long() if logits.shape[1] == 1 else scores.max(1).indices

    def state(self) -> dict[str, Any]:
        """Return all that :meth:`from_state` needs, as numbers, lists and dictionaries."""
        return {'values': list(self.values), 'report': self.report and self.report._asdict()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> 'ClassOffsets':
        """Return the offsets with this state; raise ValueError or TypeError if it is not valid."""
        report, arguments = split_report(state)
        offsets = cls(**arguments)
        offsets.report = report
        return offsets

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        batches: RepeatablePairs,
        measure: str | Measure = 'iou',
        passes: int = 4,
        ignore_index: int | None = None,
        reduce: Reduce = in_one_process,
    ) -> 'ClassOffsets':
        """Fit the offsets that maximise a measure of the data set.

        The gain is estimated on images to which the offsets were not fitted: further offsets are fitted to each half of
        the images (every other one) and applied to the other half.

        Args:
            batches: Pairs of logits [N, C, *] and class indices [N, *], where 255 is ignored by default. They pass
                ``passes + 1`` times: a list, a data loader, or a function that returns an iterator. With several
                processes, image i of process r is image ``i * n_processes + r`` of the data set.
            measure: ``'iou'``, ``'dice'`` or ``'recall'``, the mean over the classes that are true or decided (recall:
                true); or a function of the numbers of hits, of decided and of true pixels, float64 [..., C], that
                returns [...]. Of a single channel it is the measure of label 1.
            passes: Number of times that the offsets are improved.
            ignore_index: Label to leave out.
            reduce: Sum of an integer tensor over processes; it is called once a pass.

        Raises:
            ValueError: If there is no pixel to count, a logit is NaN, or an argument is out of range.
            TypeError: If the batches can be passed only once.

        Example:
            >>> logits = torch.tensor([[2.0, 1.9], [1.0, 0.9], [3.0, 0.0], [2.0, 0.0]])
            >>> offsets = ClassOffsets.fit([(logits, torch.tensor([1, 1, 0, 0]))])
            >>> offsets(logits)
            tensor([1, 1, 0, 0])
        """
        check_ignore_index(ignore_index)
        check_integer('passes', passes, lowest=1)
        if not callable(measure):
            check_option('measure', measure, tuple(MEASURES))
        check_repeatable(batches)
        value_of = MEASURES[measure] if isinstance(measure, str) else measure
        fits = [_Fit(halves, value_of) for halves in ((0, 1), (0,), (1,))]
        for index in range(passes + 1):
            open_fits = [fit for fit in fits if not fit.is_done]
            if not open_fits:
                break
            for fit, counts in zip(open_fits, _count(open_fits, batches, ignore_index, reduce), strict=True):
                fit.improve(counts, is_last=index == passes)
        return cls._of_fits(*fits)

    @classmethod
    def _of_fits(cls, whole: '_Fit', even: '_Fit', odd: '_Fit') -> 'ClassOffsets':
        """Return the offsets and their report."""
        crossed = [even.best[1], odd.best[0]]
        values = whole.best_offsets
        offsets = cls([float(values[1] - values[0])] if whole.is_binary else (values - values.mean()).tolist())
        offsets.report = GainReport(whole.value(whole.first), whole.value(whole.best), whole.value(crossed))
        return offsets


class _Fit:
    """State of the fit to some halves of the images."""

    def __init__(self, halves: tuple[int, ...], value_of: Measure) -> None:
        self.halves, self.value_of = halves, value_of
        self.offsets: Tensor | None = None  # float64 [C]; None before the first pass
        self.best_offsets = torch.zeros(0)
        self.first: list[Counts] = []  # of each half, without offsets
        self.best: list[Counts] = []  # of each half, with the best offsets
        self.reach = REACH
        self.is_binary = self.is_done = False

    def value(self, counts: list[Counts]) -> float:
        """Return the measure of some counts together."""
        numbers = [sum(parts) for parts in zip(*((c.hits, c.decided, c.true) for c in counts), strict=True)]
        return self._value(*numbers).item()

    def _value(self, *numbers: Tensor) -> Tensor:
        """Return the measure of hits, decided and true pixels [..., C]."""
        return self.value_of(*((n[..., 1:] if self.is_binary else n).double() for n in numbers))

    def improve(self, counts: list[Counts], is_last: bool) -> None:
        """Keep the present offsets if they are the best so far, and set those of the next pass."""
        if self.offsets is None:
            self.offsets = torch.zeros(len(counts[0].true), dtype=torch.float64)
            self.first = counts
        own = [counts[half] for half in self.halves]
        if not self.best or self.value(own) > self.value([self.best[half] for half in self.halves]):
            self.best, self.best_offsets = counts, self.offsets
        else:
            self.reach //= 4  # third classes matter: take smaller steps
        if is_last or self.reach == 0:
            self.is_done = True
            return
        parts = [self.best[half] for half in self.halves]
        together = Counts(*(torch.stack(list(tables)).sum(0) for tables in zip(*parts, strict=True)))
        steps = _ascend(together, self._value, self.reach)
        self.is_done = not steps.any()
        self.offsets = self.best_offsets + STEP * steps


def _count(fits: list[_Fit], batches: RepeatablePairs, ignore_index: int | None, reduce: Reduce) -> list[list[Counts]]:
    """Return the counts of both halves of the images, for the offsets of each fit."""
    tables: list[Tensor] = []
    index, first_number, checked = 0, None, dict[Any, int]()
    for logits, target in each(batches):
        inputs = read_inputs(logits, target, None, ignore_index, Reading(), 'logits', checked)
        if inputs.is_soft:
            raise ValueError(f'Parameter `target` should hold class indices. Found shape {tuple(target.shape)}.')
        scores, label = inputs.scores.detach(), inputs.target
        is_nan = scores.isnan().any(1) & inputs.valid
        refuse(is_nan.any(), 'Parameter `batches` should hold logits without NaN.')
        n_classes = inputs.n_classes
        first_number = first_number or n_classes
        if n_classes != first_number:
            raise ValueError(
                'Parameter `batches` should hold logits of one number of channels. '
                f'Found {first_number} channels and then {n_classes}.'
            )
        for fit in fits:
            fit.is_binary = n_classes == 1
        if n_classes == 1:  # the class of a single channel has label 1 and index 0
            scores, label = torch.cat([torch.zeros_like(scores), scores], 1), 1 - label
        parts = scores, label, inputs.valid
        if len(inputs.shape) == 1:  # items without a position are images of one pixel
            parts = scores[0].t().unsqueeze(2), label[0].unsqueeze(1), inputs.valid[0].unsqueeze(1)
        half = half_of_images(index, len(parts[0]), reduce, scores.device)
        index += len(half)
        tables = tables or [_empty_table(scores) for _ in fits]
        for table, fit in zip(tables, fits, strict=True):
            _add_pixels(table, *parts, half, fit.offsets)
    total = reduce(torch.stack(tables)).cpu()
    if total.sum() == 0:
        raise ValueError('Parameter `batches` should hold a pixel that is not ignored. Found none.')
    return [[_of_table(half) for half in table] for table in total]


def _empty_table(scores: Tensor) -> Tensor:
    """Return a table of zeros for the pixels of scores [N, C, P], int64 of shape [2, C, C T 3 + 1].

    There is one for each half of the images. The rows are those of `Counts.moves`, flattened; the last column is
    `Counts.true`.
    """
    n_classes = scores.shape[1]
    width = n_classes * (2 * REACH + 1) * 3 + 1
    return torch.zeros(2, n_classes, width, dtype=torch.int64, device=scores.device)


def _add_pixels(
    table: Tensor, scores: Tensor, label: Tensor, valid: Tensor, half: Tensor, offsets: Tensor | None
) -> None:
    """Count the pixels of scores [N, C, P] in a table, for images of the given halves [N]."""
    n_classes, width = table.shape[1:]
    if offsets is not None:
        scores = scores + offsets.to(scores).view(1, -1, 1)
    highest, first = scores.max(1, keepdim=True)
    second_highest, second = scores.scatter(1, first, -torch.inf).max(1)
    first, highest = first.squeeze(1), highest.squeeze(1)
    steps = ((highest - second_highest) / STEP).nan_to_num(2 * REACH).clamp(0, 2 * REACH).long()
    kind = torch.where(label == first, 0, torch.where(label == second, 1, 2))
    row = half.unsqueeze(1) * n_classes
    place = (row + first) * width + (second * (2 * REACH + 1) + steps) * 3 + kind
    truth = (row + label.clamp(max=n_classes - 1)) * width + width - 1
    for index in (place, truth):
        table.view(-1).index_add_(0, index.flatten(), valid.flatten().long())


def _of_table(table: Tensor) -> Counts:
    """Return the counts of a half."""
    return Counts(table[:, :-1].reshape(len(table), len(table), -1, 3), table[:, -1])


def _ascend(counts: Counts, value_of: Measure, reach: int) -> Tensor:
    """Return the change of each offset that maximises the measure, int64 of shape [C], in at most ``reach`` steps."""
    n_classes = len(counts.true)
    # Pixels in fewer than k steps, which move from f to g where g is raised over f by k steps.
    nearer = counts.moves.cumsum(2).roll(1, 2)
    nearer[:, :, 0] = 0
    candidates = torch.arange(-reach, reach + 1)
    change = torch.zeros(n_classes, dtype=torch.int64)
    best = value_of(counts.hits, counts.decided, counts.true)
    for _ in range(ROUNDS):
        before = change.clone()
        for c in range(n_classes):
            values = value_of(*_moved(nearer, counts, change, c, candidates), counts.true)
            value = values.nan_to_num(-torch.inf).max()
            if value > best:
                # Of equal ones, the smallest change.
                ties = candidates[values == value]
                change[c], best = ties[ties.abs().argmin()], value
        if torch.equal(before, change):
            break
    return change


def _moved(nearer: Tensor, counts: Counts, change: Tensor, c: int, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return hits and decided pixels [G, C] for each candidate for the change of class c."""
    last = nearer.shape[2] - 1
    rank = torch.arange(len(change))
    others = rank != c
    gap = (change - change.unsqueeze(1)).clamp(0, last)
    of_others = nearer[rank.unsqueeze(1), rank, gap] * (others & others.unsqueeze(1)).unsqueeze(2)
    hits = counts.hits - of_others[..., 0].sum(1) + of_others[..., 1].sum(0)
    decided = counts.decided - of_others.sum((1, 2)) + of_others.sum((0, 2))
    leaving = nearer[c, rank, (change - candidates.unsqueeze(1)).clamp(0, last)] * others.unsqueeze(1)
    coming = nearer[rank, c, (candidates.unsqueeze(1) - change).clamp(0, last)] * others.unsqueeze(1)
    hits = hits + leaving[..., 1] - coming[..., 0]
    decided = decided + leaving.sum(2) - coming.sum(2)
    hits[:, c] += (coming[..., 1] - leaving[..., 0]).sum(1)
    decided[:, c] += (coming - leaving).sum((1, 2))
    return hits, decided


def _mean_of_ratios(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return the mean over the classes whose denominator is not 0."""
    return (numerator / denominator).nanmean(-1)


MEASURES: dict[str, Measure] = {
    'iou': lambda hits, decided, true: _mean_of_ratios(hits, decided + true - hits),
    'dice': lambda hits, decided, true: _mean_of_ratios(2 * hits, decided + true),
    'recall': lambda hits, _, true: _mean_of_ratios(hits, true),
}
