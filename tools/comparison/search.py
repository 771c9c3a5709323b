"""Search of the learning rate of each config on a validation set."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Learning rates, from the lowest to the highest that may be tried."""
FIRST_RATES = (3e-3, 1e-2, 3e-2)
"""Those that are tried first."""
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

    @property
    def rates_beyond(self) -> tuple[float, ...]:
        """The next rate beyond the edge at which the best one is; none inside, or where `RATES` end."""
        lower = [rate for rate in RATES if rate < self.rate and self.rate == min(self.scores)]
        higher = [rate for rate in RATES if rate > self.rate and self.rate == max(self.scores)]
        return (*lower[-1:], *higher[:1])


def mean_iou(trained: Trained) -> float:
    """Return the mIoU of the validation set at the end of a run, in percent."""
    return trained['mIoU']


def search_rates(
    keys: Iterable[Key],
    jobs: Callable[[Key, float], Sequence[Job]],
    n_at_a_time: int,
    score: Callable[[Trained], float] = mean_iou,
) -> dict[Key, Searched]:
    """Return the best learning rate for each key; ``jobs`` returns its runs with a rate.

    `FIRST_RATES` are tried, then further ones of `RATES` until the best one is not at the edge of those tried.
    """
    rates = dict.fromkeys(keys, FIRST_RATES)
    runs: dict[Key, list[Trained]] = {key: [] for key in rates}
    while any(rates.values()):
        batch = [(key, job) for key in rates for rate in rates[key] for job in jobs(key, rate)]
        for (key, job), result in zip(batch, train_missing([job for _, job in batch], n_at_a_time), strict=True):
            runs[key].append(Trained(result, job.work_dir))
        searched = {key: best_rate(group, score) for key, group in runs.items()}
        rates = {key: found.rates_beyond for key, found in searched.items()}
    return searched


def best_rate(group: Sequence[Trained], score: Callable[[Trained], float]) -> Searched:
    """Return the rate whose runs have the highest score on average."""
    rates = sorted({trained['lr'] for trained in group})
    scores = {rate: statistics.fmean(score(trained) for trained in group if trained['lr'] == rate) for rate in rates}
    return Searched(max(rates, key=scores.__getitem__), scores, sum(trained['seconds'] for trained in group))
