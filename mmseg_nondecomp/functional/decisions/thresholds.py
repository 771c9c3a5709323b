r"""Decisions by a threshold on the probability of each class, fitted to a promise or to an F-measure."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    MODES,
    Reduce,
    check_classes,
    check_floating_point,
    check_ignore_index,
    check_integer,
    check_option,
    check_tensor,
    in_one_process,
    is_number,
)
from mmseg_nondecomp.functional.decisions._threshold_counts import ThresholdCounts, probabilities, read_logits
from mmseg_nondecomp.functional.decisions._threshold_fit import ClassReport, Criterion, read_criterion
from mmseg_nondecomp.functional.decisions._threshold_state import as_plain, read_plain_criterion, read_plain_row

SMALLEST = 1e-37  # smallest divisor of a probability, with which no ratio is infinite
WITHOUT_THRESHOLD = 0.5  # where each class is decided by itself


class Thresholds:
    r"""Decisions by one threshold :math:`t_c` on the probability :math:`p_c` of each class.

    Probabilities are a sigmoid for one channel and for ``mode='multilabel'``, otherwise a softmax over the channels.

    - One channel: an item is positive if :math:`p \ge t`.
    - ``'multilabel'``: the same for each channel.
    - Several classes: an item is of the class with the largest :math:`p_c / t_c` among those with
      :math:`p_c \ge t_c`. If there is none, it is of the most probable class among those without a threshold, or among
      all if each has one.

    A class without a threshold is decided at 0.5 where it is decided by itself.

    **Promises.** :meth:`fit` promises a recall or a precision of the mask :math:`p_c \ge t_c` of a class. In a map of
    classes, several masks compete for an item. The promise also holds for the map if only one class has a threshold
    (``classes=[k]``), as no other mask competes with it. Each class has its own promise; that all are kept at once is
    less certain.

    Args:
        values: Threshold of each channel, in [0, 1]; NaN or None for no threshold.
        mode: ``'multiclass'``, ``'binary'`` or ``'multilabel'``. By default one channel is binary, and several are
            multiclass.

    Attributes:
        values: Threshold of each channel; NaN for none.
        report: After :meth:`fit`, a row for each fitted class, else empty: ``channel``, ``threshold``, ``n_units`` it
            was fitted on, number of units ``needed`` for a promise, ``recall`` and ``precision`` on the fitted data.
        criterion: After :meth:`fit`, its ``measure``, ``value``, ``confidence``, ``unit`` and ``n_new``, else None.

    Raises:
        ValueError: If a threshold is not in [0, 1], or the mode is not one of the number of channels.
        TypeError: If the thresholds are not numbers.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0, -1.0], [1.0, 0.9, -1.0]])
        >>> logits.argmax(1), Thresholds([None, 0.4, None])(logits)
        (tensor([0, 0]), tensor([0, 1]))
    """

    def __init__(self, values: Sequence[float | None], mode: str | None = None) -> None:
        self.values = _read_values(values)
        if mode is not None:
            check_option('mode', mode, MODES)
        if (mode == 'binary' and len(self.values) > 1) or (mode == 'multiclass' and len(self.values) == 1):
            raise ValueError(f'Parameter `values` does not fit `mode={mode!r}`. Found {len(self.values)} thresholds.')
        self.mode = mode
        self.report: tuple[ClassReport, ...] = ()
        self.criterion: Criterion | None = None
        self._tensors: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __repr__(self) -> str:
        values = [None if math.isnan(value) else value for value in self.values]
        return f'{type(self).__name__}({values}, mode={self.mode!r})'

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {'_tensors': {}}

    def __call__(self, logits: Tensor) -> Tensor:
        """Decide.

        Half precision is computed in float32. A logit may be -infinity. A NaN reaches no threshold: of several classes,
        the decision is then that of ``torch.argmax``.

        Args:
            logits: Of shape [N, C, *]; one channel may be missing, [n], or [N, *] with ``mode='binary'``.

        Returns:
            Decisions, int64: classes of shape [N, *]; for one channel, 0 or 1 of this shape; for ``'multilabel'``, 0 or
            1 of shape [N, C, *].

        Raises:
            ValueError: If the number of channels is not that of the thresholds.
            TypeError: If the logits are not a floating-point tensor.
        """
        probs = probabilities(self._in_channels(logits), self.mode)
        thresholds = self._thresholds_as(probs)
        if probs.shape[1] == 1 or self.mode == 'multilabel':
            decided = (probs >= thresholds.nan_to_num(WITHOUT_THRESHOLD)).long()
            return decided if self.mode == 'multilabel' else decided.squeeze(1)
        reached = probs >= thresholds
        best = torch.where(reached, probs / thresholds.clamp(min=SMALLEST), -1).argmax(1)
        is_left = thresholds.isnan()
        if any(math.isnan(value) for value in self.values):
            probs = torch.where(is_left, probs, -1)
        return torch.where(reached.any(1), best, probs.argmax(1))

    @classmethod
    def fit(
        cls,
        batches: Iterable[tuple[Tensor, Tensor]],
        recall: float | None = None,
        precision: float | None = None,
        f_beta: float | None = None,
        confidence: float = 0.95,
        unit: str | None = None,
        n_new: float | None = None,
        classes: Sequence[int] | None = None,
        mode: str | None = None,
        ignore_index: int | None = None,
        bins: int = 4096,
        reduce: Reduce = in_one_process,
    ) -> 'Thresholds':
        r"""Fit thresholds to logits and targets, which pass once and are not stored.

        For each class, one of the following, from a fixed grid of thresholds:

        - ``recall=r``: the largest threshold with which the recall on new data is at least r, with the probability
          ``confidence`` over the draw of the fitted and the new data.
        - ``precision=p``: the smallest threshold with which a predicted positive is right with a probability of at
          least p, with the probability ``confidence`` over the draw of the fitted data, as found by exact binomial
          tests in fixed sequences.
        - ``f_beta=beta``: the threshold with the largest :math:`F_\beta` on these data, over all items. No promise.

        The promises assume nothing but exchangeable units: fitted and new ones come from one source, in any order. The
        data must not have been used for training.

        - ``unit='item'``: positives are exchangeable (for precision, items). The recall is that of all positives. The
          bound is exact, up to ties and the grid. Not for pixels: those of an image depend on each other.
        - ``unit='image'``: images are exchangeable, whatever their pixels. The recall is the mean, over the images with
          the class, of the recall in the image. The threshold is the largest at which this mean on the fitted images
          reaches a bound that depends on their number: for a recall of 0.9 with confidence 0.95, it is 0.971 with 100
          images and 0.936 with 500. The bound is for the worst distribution: an image is found as a whole or not at
          all.

        A promise holds for all new sets of at least ``n_new`` units. The recall of a small set varies more.

        Args:
            batches: Pairs of logits [N, C, *] and targets, read as by the losses: class indices [N, *], where 255 is
                ignored by default, masks of 0 and 1 for one channel, or several labels, [N, C, *], for
                ``mode='multilabel'``. Several processes: at least one pair in each.
            recall: Promised recall, in (0, 1).
            precision: Promised precision, in (0, 1).
            f_beta: Beta of the F-measure, positive. Exactly one of the three is given.
            confidence: Probability that a promise holds, in (0, 1).
            unit: ``'item'`` or ``'image'``. By default the recall of logits with positions is that of images, and other
                measures are of items.
            n_new: Least number of positives, or of images with the class, in the new data: by default that of the
                fitted data. With math.inf, the promise is about the recall in the population.
            classes: Channels that get a threshold; by default all.
            mode: As in the constructor.
            ignore_index: Label to leave out.
            bins: Number of thresholds of the grid. The default is a step of 1.2 % in the odds.
            reduce: Sum of an integer tensor over processes; it is called once.

        Raises:
            ValueError: If no class gets a threshold, for example since there are fewer units than ``needed``; if logits
                are NaN; if there is no batch; if an argument is out of range, or tensors do not belong together.
            TypeError: If an argument is of a wrong type.

        Warns:
            UserWarning: If some of the classes get no threshold: it is NaN, and the message says what is needed.

        Example:
            >>> generator = torch.Generator().manual_seed(0)
            >>> labels = torch.rand(2000, generator=generator).lt(0.3).long()
            >>> logits = torch.randn(2000, 1, generator=generator) + 3 * labels[:, None] - 2
            >>> thresholds = Thresholds.fit([(logits, labels)], recall=0.9)
            >>> row = thresholds.report[0]
            >>> row.n_units, row.needed, round(row.threshold, 2), round(row.recall, 3), round(row.precision, 3)
            (609, 40, 0.41, 0.933, 0.887)

        Reference:
            A. Angelopoulos, S. Bates, E. Candès, M. Jordan, L. Lei: Learn then Test. 2021.
            https://arxiv.org/abs/2110.01052

            S. Bates, A. Angelopoulos, L. Lei, J. Malik, M. Jordan: Distribution-Free, Risk-Controlling Prediction Sets.
            JACM 2021. https://arxiv.org/abs/2101.02703

            The bounds and their proofs are in ``mmseg_nondecomp/functional/decisions/_promises.py``.
        """
        settings = recall, precision, f_beta, confidence, unit, n_new
        _check_fit(classes, mode, ignore_index, bins)
        read_criterion(*settings, has_positions=None)
        counts: ThresholdCounts | None = None
        checked: dict[Any, int] = {}
        for logits, target in batches:
            inputs = read_logits(logits, target, ignore_index, mode, checked)
            criterion = read_criterion(*settings, has_positions=len(inputs.shape) > 1)
            if counts is None:
                n_channels, first = inputs.n_classes, criterion
                counts = ThresholdCounts(_channels(classes, n_channels), bins, inputs.scores.device)
            if inputs.n_classes != n_channels or criterion != first:
                raise ValueError(
                    f'Parameter `batches` should hold logits of one layout. Found {n_channels} channels '
                    f'with units of {first.unit}s, and then logits of shape {tuple(logits.shape)}.'
                )
            counts.add(inputs, mode)
        if counts is None:
            raise ValueError('Parameter `batches` should hold a pair of logits and targets at least. Found none.')
        counts.sum_over_processes(reduce)
        return cls._from_counts(counts, n_channels, first, mode)

    def state(self) -> dict[str, Any]:
        """Return all that :meth:`from_state` needs, as numbers, strings, lists and dictionaries.

        Example:
            >>> Thresholds([0.3, None]).state()
            {'values': [0.3, None], 'mode': None, 'criterion': None, 'report': []}
        """
        criterion = None if self.criterion is None else as_plain(self.criterion._asdict())
        report = [as_plain(row._asdict()) for row in self.report]
        return {'values': as_plain(list(self.values)), 'mode': self.mode, 'criterion': criterion, 'report': report}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> 'Thresholds':
        """Return the thresholds with this state.

        Raises:
            ValueError: If it is not a state, or an entry is not valid.

        Example:
            >>> Thresholds.from_state({'values': [0.3, None], 'mode': None, 'criterion': None, 'report': []})
            Thresholds([0.3, None], mode=None)
        """
        names = {'values', 'mode', 'criterion', 'report'}
        if not isinstance(state, dict) or set(state) != names:
            found = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f'Parameter `state` should be a dictionary with entries {sorted(names)}. Found {found}.')
        try:
            thresholds = cls(state['values'], state['mode'])
            if state['criterion'] is not None:
                thresholds.criterion = read_plain_criterion(state['criterion'])
            thresholds.report = tuple(read_plain_row(row, thresholds.values) for row in state['report'])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(f'Parameter `state` is not valid: {error}') from error
        return thresholds

    @classmethod
    def _from_counts(
        cls, counts: ThresholdCounts, n_channels: int, criterion: Criterion, mode: str | None
    ) -> 'Thresholds':
        """Return the thresholds that counts give; raise or warn where there is none."""
        report = tuple(criterion.report(counts, row) for row in range(len(counts.classes)))
        missing = [row for row in report if math.isnan(row.threshold)]
        if len(missing) == len(report):
            raise ValueError(criterion.shortage(missing))
        if missing:
            warnings.warn(criterion.shortage(missing), stacklevel=3)
        values = [math.nan] * n_channels
        for row in report:
            values[row.channel] = row.threshold
        thresholds = cls(values, mode)
        thresholds.report, thresholds.criterion = report, criterion
        return thresholds

    def _in_channels(self, logits: Tensor) -> Tensor:
        """Return logits as [N, C, *]."""
        check_tensor('logits', logits)
        check_floating_point('logits', logits)
        n_channels = len(self.values)
        if logits.dim() > 1 and logits.shape[1] == n_channels:
            return logits
        if n_channels == 1 and (logits.dim() == 1 or (logits.dim() > 1 and self.mode == 'binary')):
            return logits.unsqueeze(1)
        raise ValueError(
            f'Parameter `logits` should be of shape [N, {n_channels}, *], as there are {n_channels} thresholds. '
            f'Found {tuple(logits.shape)}.'
        )

    def _thresholds_as(self, probs: Tensor) -> Tensor:
        """Return the thresholds in the dtype and on the device of probabilities, of shape [C, 1, ...]."""
        key = probs.device, probs.dtype
        if key not in self._tensors:  # copying a list to a device synchronises with it
            self._tensors[key] = torch.tensor(self.values, dtype=probs.dtype, device=probs.device)
        return self._tensors[key].view(-1, *[1] * (probs.dim() - 2))


def _read_values(values: Any) -> tuple[float, ...]:
    """Return thresholds as floats, NaN for None; raise unless they are in [0, 1]."""
    is_list = isinstance(values, (Sequence, Tensor)) and not isinstance(values, str)
    listed = values.tolist() if isinstance(values, Tensor) else values
    if not is_list or not isinstance(listed, Sequence) or not all(v is None or is_number(v) for v in listed):
        raise TypeError(f'Parameter `values` should be a list of numbers or None, one for a channel. Found {values!r}.')
    numbers = tuple(math.nan if value is None else float(value) for value in listed)
    if not numbers or not all(math.isnan(value) or 0 <= value <= 1 for value in numbers):
        raise ValueError(f'Parameter `values` should hold probabilities in [0, 1], NaN or None. Found {values!r}.')
    return numbers


def _check_fit(classes: Any, mode: Any, ignore_index: Any, bins: Any) -> None:
    """Raise unless these arguments are valid."""
    if isinstance(classes, str):
        raise TypeError(f'Parameter `classes` should be a list of channels, or None for all. Found {classes!r}.')
    if classes is not None:
        check_classes(classes)
    if mode is not None:
        check_option('mode', mode, MODES)
    check_ignore_index(ignore_index)
    check_integer('bins', bins, lowest=3)


def _channels(classes: Sequence[int] | None, n_channels: int) -> Sequence[int]:
    """Return the channels that get a threshold."""
    if classes is not None and max(classes) >= n_channels:
        raise ValueError(
            f'Parameter `classes` should list channels below {n_channels}, their number. Found {max(classes)}.'
        )
    return range(n_channels) if classes is None else classes
