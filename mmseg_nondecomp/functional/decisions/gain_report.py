"""Gain of a fitted decision, estimated on images to which it was not fitted."""

from typing import Any, NamedTuple

from mmseg_nondecomp.functional._inputs import is_number


class GainReport(NamedTuple):
    """A measure before and after a fit."""

    before: float  # of the most probable classes
    fitted: float  # of the decision on the images to which it is fitted: too high
    held_out: float  # of decisions that are fitted to each half of the images and applied to the other

    @property
    def gain(self) -> float:
        """Gain to expect on new images."""
        return self.held_out - self.before


def split_report(state: dict[str, Any]) -> tuple[GainReport | None, dict[str, Any]]:
    """Return the report in a state and the other entries; raise ValueError if it is not a report."""
    if not isinstance(state, dict):
        raise ValueError(f'Parameter `state` should be a dictionary. Found {state!r}.')
    others = {name: value for name, value in state.items() if name != 'report'}
    report = state.get('report')
    if report is None:
        return None, others
    if (
        not isinstance(report, dict)
        or set(report) != set(GainReport._fields)
        or not all(map(is_number, report.values()))
    ):
        raise ValueError(f'Parameter `state` should have a report of {GainReport._fields}. Found {report!r}.')
    return GainReport(**report), others
