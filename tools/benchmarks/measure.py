"""Time and memory of candidates, in turns, so that a busy machine slows all of them equally."""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import Case, Row, Step

LEAST_ROUNDS = 3

os.environ.setdefault('KINETO_LOG_LEVEL', '6')  # Otherwise the profiler logs every step.


def measured(case: Case, repeats: int, seconds: float) -> list[Row]:
    """Return a row for each candidate: time, and the peak memory of the tensors of a preceding step."""
    memory = {name: peak_memory(step) for name, step in case.steps.items()}
    rows = summaries(in_turns(case.steps, repeats, seconds), case.label)
    found = []
    for row in rows:
        of_tensors = memory[row['candidate']]
        place = {'measured': case.group, 'unit': case.unit, 'size': case.size}
        columns: Row = {'peak MiB': round(of_tensors / 2**20, 4)} if of_tensors else {}
        if case.data is not None:
            columns['peak memory / input'] = round(of_tensors / n_bytes(case.data), 2)
        found.append(place | row | columns | case.also(row))
    return found


def in_turns(steps: Mapping[str, Step], repeats: int, seconds: float = math.inf) -> dict[str, list[float]]:
    """Return the milliseconds of each step in each round, for at most the given number of rounds or the given time."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    begin = time.perf_counter()
    for n_rounds in range(repeats):
        if n_rounds >= LEAST_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    return times


def summaries(times: Mapping[str, list[float]], case: str) -> list[Row]:
    """Return median and interquartile range of each candidate, and of its ratio to the first one in the same round."""
    first = next(iter(times))
    rows = []
    for name, own in times.items():
        low, median, high = statistics.quantiles(own, n=4, method='inclusive')
        ratios = [t / reference for t, reference in zip(own, times[first], strict=True)]
        ratio_low, ratio, ratio_high = statistics.quantiles(ratios, n=4, method='inclusive')
        rows.append(
            {
                'case': case,
                'candidate': name,
                'rounds': len(own),
                'median ms': round(median, 4),
                'quartiles ms': [round(low, 4), round(high, 4)],
                'IQR ms': round(high - low, 4),
                f'time against {first}': round(ratio, 4),
                'IQR of that': round(ratio_high - ratio_low, 4),
            }
        )
    return rows


def timed(steps: Mapping[str, Step], case: str, repeats: int) -> list[Row]:
    """Return times alone, after a warm-up step."""
    for step in steps.values():
        step()
    return summaries(in_turns(steps, repeats), case)


def compare(steps: Mapping[str, Step], case: str, data: Tensor, repeats: int) -> list[Row]:
    """Return times, and the peak memory relative to that of ``data``."""
    rows = timed(steps, case, repeats)
    return [
        {**row, 'peak memory / input': round(peak_memory(steps[row['candidate']]) / n_bytes(data), 2)} for row in rows
    ]


def training_step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Step:
    """Return a step with the forward and backward pass down to the logits."""

    def step() -> Tensor:
        value = loss(logits, target)
        value.backward()
        logits.grad = None
        return value

    return step


def peak_memory(step: Callable[[], Any]) -> int:
    """Return the peak number of bytes allocated for tensors during a step."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    held = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == '[memory]':
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def n_bytes(data: Tensor) -> int:
    """Return the number of bytes of a tensor."""
    return data.numel() * data.element_size()
