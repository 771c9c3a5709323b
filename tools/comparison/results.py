"""Results of a comparison."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from comparison.statistics import Areas, Difference, paired_difference
from comparison.watch import LAST, PICTURES

N_LATE = 5
"""Number of the last validations that are averaged."""


class Trained:
    """Result and files of a finished run."""

    def __init__(self, result: dict[str, Any], work_dir: Path) -> None:
        self.result, self.work_dir = result, work_dir

    def __getitem__(self, key: str) -> Any:
        return self.result[key]

    @property
    def checkpoint(self) -> Path:
        """Final weights."""
        return self.work_dir / Path((self.work_dir / 'last_checkpoint').read_text()).name

    @property
    def late_scores(self) -> list[float]:
        """MIoU at the last `N_LATE` validations."""
        return [point['data set'] for point in self['curve'][-N_LATE:]]

    @property
    def last(self) -> dict[str, Any]:
        """Areas of each image and class, and thumbnails, of the last validation."""
        with np.load(self.work_dir / LAST) as file:
            return dict(file)

    @cached_property
    def areas(self) -> Areas:
        """Intersection, union and labelled pixels of each image and class [N, 3, C]."""
        with np.load(self.work_dir / LAST) as file:
            return file['areas']

    @property
    def pictures(self) -> dict[int, np.ndarray]:
        """Predictions on the tracked images, by iteration."""
        with np.load(self.work_dir / PICTURES) as file:
            return {int(iteration): file[iteration] for iteration in file}


class Comparison:
    """Finished runs, grouped by schedule and config (and learning rate), in the order of seeds."""

    def __init__(self, trainings: Sequence[Trained], names: dict[str, str] | None = None) -> None:
        self.trainings, self.names = trainings, names or {}
        self.groups: dict[str, dict[str, list[Trained]]] = {}
        for trained in trainings:
            name = self.names.get(trained['name'], trained['name'])
            self.groups.setdefault(trained['schedule'], {}).setdefault(name, []).append(trained)

    @property
    def schedules(self) -> list[str]:
        """Schedules, in the requested order."""
        return list(self.groups)

    @property
    def configs(self) -> list[str]:
        """Names of the configs, in the requested order."""
        return list(self.groups[self.schedules[0]])

    @property
    def seeds(self) -> list[int]:
        """Seeds, in the requested order."""
        return [trained['seed'] for trained in self.groups[self.schedules[0]][self.configs[0]]]

    def iterations(self, schedule: str) -> int:
        """Return the length of the runs of a schedule."""
        return self.groups[schedule][self.configs[0]][0]['iterations']

    def scores(self, schedule: str, name: str, key: str = 'mIoU') -> list[float]:
        """Return a score for each seed."""
        return [trained[key] for trained in self.groups[schedule][name]]

    def base_of(self, name: str) -> str:
        """Return the name of the config to compare with: the first one, at the same learning rate."""
        lr = self.groups[self.schedules[0]][name][0]['lr']
        return next(other for other in self.configs if self.groups[self.schedules[0]][other][0]['lr'] == lr)

    def difference(self, schedule: str, name: str, measure: str = 'data set') -> Difference:
        """Return the difference to the first config, paired by seed and image."""
        ours, theirs = (self.groups[schedule][key] for key in (name, self.base_of(name)))
        return paired_difference([t.areas for t in ours], [t.areas for t in theirs], measure)
