"""Parallel training runs, one process each."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from comparison.job import Job
from comparison.training import result_of, train_and_score

OUTPUT = 'output.txt'
PRELOADED = ['comparison.training', 'mmseg.datasets', 'mmseg.models']
"""Modules that the process from which runs are forked imports."""
TERMINAL_SECONDS, FILE_SECONDS = 0.5, 30


def train_missing(jobs: Sequence[Job], n_at_a_time: int) -> list[dict[str, Any]]:
    """Return the results of all jobs; run those without a result.

    Ctrl-C stops the runs at once; the same call resumes from their last checkpoints.

    Raises:
        SystemExit: If runs fail, after the others have ended.
    """
    todo = [job for job in jobs if result_of(job) is None]
    print(f'{len(jobs)} runs, {len(jobs) - len(todo)} of them finished before', flush=True)
    if todo:
        train(todo, n_at_a_time)
    return [found for job in jobs if (found := result_of(job))]


def train(jobs: Sequence[Job], n_at_a_time: int) -> None:
    """Train all jobs and show their progress."""
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(PRELOADED)  # imported once, which takes as long as a hundred iterations
    shares = context.Array('d', len(jobs))  # completed share of each run
    waiting, running, failed = list(range(len(jobs))), {}, []
    line = Line([job.settings().train_cfg for job in jobs])
    threads = max(1, (os.cpu_count() or 1) // n_at_a_time)
    tools = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tools, *filter(None, [os.environ.get('PYTHONPATH')])])
    with environment(OMP_NUM_THREADS=str(threads), PYTHONPATH=paths), stops_on_terminate():
        try:
            while waiting or running:
                while waiting and len(running) < n_at_a_time:
                    i = waiting.pop(0)
                    running[i] = context.Process(target=run, args=(jobs[i], i, shares))
                    running[i].start()
                wait([process.sentinel for process in running.values()], timeout=TERMINAL_SECONDS)
                for i in [i for i, process in running.items() if not process.is_alive()]:
                    failed += [i] if running.pop(i).exitcode else []
                    line.say(told(jobs[i], failed=i in failed))
                line.show(list(shares), len(running))
        except KeyboardInterrupt:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.join()
            raise SystemExit('\nstopped; the same command resumes from here') from None
    if failed:
        outputs = '\n'.join(f'  {jobs[i].work_dir / OUTPUT}' for i in failed)
        raise SystemExit(f'{len(failed)} of {len(jobs)} runs failed. Their output is in\n{outputs}')


def run(job: Job, i: int, shares: Any) -> None:
    """Run one job in a process of its own, with its output in a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    job.work_dir.mkdir(parents=True, exist_ok=True)

    def report(share: float) -> None:
        shares[i] = share

    with (job.work_dir / OUTPUT).open('a') as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
        train_and_score(job, report)


def told(job: Job, failed: bool) -> str:
    """Return one line about a finished run."""
    result = None if failed else result_of(job)
    return f'{job.work_dir}: {result["mIoU"]:.2f} mIoU' if result else f'{job.work_dir}: FAILED, see its {OUTPUT}'


class Line:
    """Line with the progress of all runs and the remaining time."""

    def __init__(self, loops: Sequence[dict[str, Any]]) -> None:
        self.lengths = [loop.get('max_iters', loop.get('max_epochs')) for loop in loops]
        self.start = self.shown = time.monotonic()
        self.is_terminal = sys.stderr.isatty()

    def show(self, shares: Sequence[float], n_running: int) -> None:
        """Rewrite the line at intervals."""
        now = time.monotonic()
        if now - self.shown < (TERMINAL_SECONDS if self.is_terminal else FILE_SECONDS):
            return
        self.shown = now
        done = sum(share * length for share, length in zip(shares, self.lengths, strict=True)) / sum(self.lengths)
        left = f'{(now - self.start) * (1 - done) / done / 60:.1f} min left' if done else 'starting'
        bar = ('█' * round(20 * done)).ljust(20, '░') + ' ' if self.is_terminal else ''
        line = f'{bar}{100 * done:.0f} % of {len(shares)} runs, {n_running} running, {left}'
        print(f'\r\033[K{line}' if self.is_terminal else line, end='' if self.is_terminal else '\n', file=sys.stderr)
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        print(f'\r\033[K{text}' if self.is_terminal else text, flush=True)


@contextlib.contextmanager
def environment(**variables: str) -> Any:
    """Set environment variables for processes that are started in the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def stops_on_terminate() -> Any:
    """Make SIGTERM stop the runs as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
