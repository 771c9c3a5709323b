"""Search of the learning rate of each config on a validation set."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from mmengine.config import Config

from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained

RATES = {'Adam': (3e-3, 1e-2, 3e-2), 'SGD': (3e-3, 1e-2, 3e-2)}
"""Learning rates to try, by optimizer."""
Key = TypeVar('Key')


class Searched(NamedTuple):
    """Result of a search."""

    rate: float
    """Rate with the highest score; of equal ones the lowest."""
    scores: dict[float, float]
    """Score of each rate, averaged over its runs."""
    seconds: float
    """Duration of all runs."""

    @property
    def is_at_the_edge(self) -> bool:
        """Whether a rate that was not tried may be better."""
        return self.rate in (min(self.scores), max(self.scores))


def rates_of(config: str) -> tuple[float, ...]:
    """Return the learning rates to try with a config."""
    return RATES[Config.fromfile(config).optim_wrapper.optimizer.type]


def mean_iou(trained: Trained) -> float:
    """Return the mIoU of the validation set at the end of a run, in percent."""
    return trained['mIoU']


def search_rates(
    jobs: Mapping[Key, Sequence[Job]], n_at_a_time: int, score: Callable[[Trained], float] = mean_iou
) -> dict[Key, Searched]:
    """Return the best learning rate for each key; ``jobs`` are its runs with all rates."""
    results = iter(train_missing([job for group in jobs.values() for job in group], n_at_a_time))
    return {
        key: best_rate([Trained(next(results), job.work_dir) for job in group], score) for key, group in jobs.items()
    }


def best_rate(group: Sequence[Trained], score: Callable[[Trained], float]) -> Searched:
    """Return the rate whose runs have the highest score on average."""
    rates = sorted({trained['lr'] for trained in group})
    scores = {rate: statistics.fmean(score(trained) for trained in group if trained['lr'] == rate) for rate in rates}
    return Searched(max(rates, key=scores.__getitem__), scores, sum(trained['seconds'] for trained in group))
