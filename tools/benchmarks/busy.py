"""Losses alone and next to a process that keeps the cores busy, in separate processes for each setting of OpenMP."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch.nn.functional as F

from benchmarks import Row, Step, lovasz
from benchmarks.launches import LOSSES
from benchmarks.measure import training_step
from benchmarks.peers import Loss
from benchmarks.scenes import half_trained
from benchmarks.table import number

SETTINGS = {
    '': {},
    'with OMP_WAIT_POLICY=passive': {'OMP_WAIT_POLICY': 'passive'},
    'with OMP_NUM_THREADS=1': {'OMP_NUM_THREADS': '1'},
}
WORKER = ('-m', 'benchmarks.busy')
"""Arguments of the interpreter that measures."""
OF_OPENMP = ('GOMP_', 'KMP_', 'MKL_NUM_THREADS', 'OMP_')
"""Prefixes of environment variables that are removed."""
SIDE = 512
BLOCKS, SECONDS = 2, 0.8
"""Number and duration of the blocks of steps next to another process."""
OF_SETS = (
    *('LossMaxPooling', 'LovaszSoftmaxLoss', 'LovaszSoftmaxLoss, sorted', 'LovaszHingeLoss', 'SoftIoULoss'),
    *('SMeasureLoss', 'DirectZeroOneLoss', 'SmoothTopKLoss, k = 2', 'HardTopKLoss, k = 2'),
)
SETTLED = 0.02
"""Seconds until idle threads stop spinning."""
COMPETITOR = """
import os, select, sys
if sys.argv[1:]:
    os.sched_setaffinity(0, {int(sys.argv[1])})
import torch
torch.set_num_threads(2)
matrix, at_work = torch.rand(512, 512), False
while True:
    if not at_work or select.select([sys.stdin], [], [], 0)[0]:
        order = sys.stdin.readline()
        if not order:
            break
        at_work = order == 'go\\n'
        print('done', flush=True)
    if at_work:
        matrix @ matrix
"""
"""Program that multiplies matrices on two threads, on one core if one is given, from the line ``go`` to the next line.

It ends when its standard input closes.
"""


def rows(quick: bool) -> list[Row]:
    """Return a row for each loss, with its times in each setting."""
    found: dict[str, Row] = {}
    for name, variables in SETTINGS.items():
        for loss, columns in timed_with(variables, quick).items():
            row = found.setdefault(loss, {'candidate': loss})
            row |= {f'{column} {name}'.strip(): value for column, value in columns.items()}
    return list(found.values())


def timed_with(variables: dict[str, str], quick: bool) -> dict[str, Row]:
    """Return the results of a process with the given OpenMP variables."""
    command = [sys.executable, *WORKER, *(['--quick'] if quick else [])]
    tools = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (tools, os.environ.get('PYTHONPATH'))))
    environment = without_openmp() | {'PYTHONPATH': path} | variables
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=600)  # noqa: S603
    return json.loads(finished.stdout.splitlines()[-1])


def without_openmp() -> dict[str, str]:
    """Return the environment without variables that OpenMP reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_OPENMP)}


class Competitor:
    """Process that multiplies matrices on two threads while it is active."""

    def __init__(self, process: 'subprocess.Popen[str]') -> None:
        self.process = process

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep it active within the context."""
        self._order('go')
        try:
            yield
        finally:
            self._order('stop')

    def _order(self, order: str) -> None:
        self.process.stdin.write(f'{order}\n')
        self.process.stdin.flush()
        if self.process.stdout.readline() != 'done\n':
            raise RuntimeError(f'The competing process has ended with {self.process.wait()}.')
        time.sleep(SETTLED)


@contextmanager
def competitor(*core: int) -> Iterator[Competitor]:
    """Start a process that competes for all cores, or for one, and end it."""
    command = [sys.executable, '-c', COMPETITOR, *map(str, core)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=without_openmp(), stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
        try:
            yield Competitor(process)
        finally:
            process.kill()


def in_blocks(step: Step, others: dict[str, Competitor], seconds: float) -> Row:
    """Return the median time of a step alone, and its multiples next to other processes, in alternating blocks."""
    step()
    times: dict[str, list[float]] = {name: [] for name in ('alone', *others)}
    for _ in range(BLOCKS):
        times['alone'] += times_of(step, seconds / 2)
        for name, other in others.items():
            with other.at_work():
                times[name] += times_of(step, seconds)
    alone, *beside = map(median, times.values())
    return {'ms alone': number(alone)} | {
        f'{name} / alone': number(time / alone) for name, time in zip(others, beside, strict=True)
    }


def times_of(step: Step, seconds: float) -> list[float]:
    """Return the milliseconds of all steps that start within the time, at least one."""
    times: list[float] = []
    while sum(times) < 1e3 * seconds or not times:
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def steps(side: int) -> Iterator[tuple[str, Step]]:
    """Yield a training step of each loss, with few items for average precision."""
    logits, target = half_trained((2, 19, side, side))
    losses: dict[str, Loss] = {'cross-entropy': F.cross_entropy, **{name: LOSSES[name]() for name in OF_SETS}}
    stock = 'LovaszLoss of mmsegmentation'
    losses |= {name: loss for name, loss in lovasz.peers().items() if name == stock}
    for name, loss in losses.items():
        yield name, training_step(loss, logits, target)
    few = side // 4
    yield f'DirectAPLoss, 2 x {few} x {few}', training_step(LOSSES['DirectAPLoss'](), *half_trained((2, 19, few, few)))


def main() -> None:
    """Print the times of all losses, for the parent process."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--quick', action='store_true')
    quick = parser.parse_args().quick
    with competitor() as spread, competitor(max(os.sched_getaffinity(0))) as on_one:
        others = {'beside': spread, 'beside on one core': on_one}
        found = {name: in_blocks(step, others, 0 if quick else SECONDS) for name, step in steps(32 if quick else SIDE)}
    print(json.dumps(found))


if __name__ == '__main__':
    main()
