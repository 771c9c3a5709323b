"""Train configs with paired seeds and compare them: ``python tools/compare.py CONFIG... --seeds 0 1 2``.

Every seed gives each config the same initial weights and the same images. Trainings run side by side, one thread each.
What has been trained before is not trained again; delete its folder to do so.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

from mmengine.config import DictAction
from report import draw_predictions, markdown_table, per_class_table
from training import RESULT, train_and_score


def main() -> None:
    """Parse the command line, train what is missing, write the tables and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0])
    parser.add_argument('--lrs', nargs='+', type=float, help='learning rates to try (default: those of the configs)')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/compare'))
    parser.add_argument('--jobs', type=int, default=os.cpu_count(), help='trainings at a time (default: one per core)')
    args = parser.parse_args()

    jobs = [
        (config, lr, seed, args.out / Path(config).stem / (f'lr{lr:g}' if lr else 'lr') / f'seed{seed}')
        for seed, lr, config in itertools.product(args.seeds, args.lrs or [None], args.configs)
    ]
    results = train_missing(jobs, args.cfg_options, args.jobs)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / 'results.json').write_text(json.dumps(results, indent=1))
    tables = f'{per_class_table(results)}\n\n{markdown_table(results)}\n'
    (args.out / 'results.md').write_text(tables)
    print(tables)
    picture = draw_predictions([work_dir for _, _, seed, work_dir in jobs if seed == args.seeds[0]], args.out)
    print(f'tables: {args.out / "results.md"}\npicture: {picture}')


def train_missing(jobs: list[tuple], options: dict[str, Any], n_at_a_time: int) -> list[dict[str, Any]]:
    """The results of all jobs, training those that have none yet for these settings."""
    settings = [
        {
            **options,
            'randomness.seed': seed,
            'randomness.deterministic': False,
            **({} if lr is None else {'optim_wrapper.optimizer.lr': lr}),
        }
        for _, lr, seed, _ in jobs
    ]
    todo = [i for i, job in enumerate(jobs) if not is_done(job[3], settings[i])]
    print(f'{len(jobs)} trainings, {len(jobs) - len(todo)} of them done before', flush=True)
    start = time.monotonic()
    context = multiprocessing.get_context('spawn')
    os.environ['OMP_NUM_THREADS'] = str(max(1, (os.cpu_count() or 1) // n_at_a_time))
    with concurrent.futures.ProcessPoolExecutor(n_at_a_time, context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(run, jobs[i][0], jobs[i][3], settings[i]): jobs[i][3] for i in todo}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                mean = future.result()['mIoU']
                left = (time.monotonic() - start) / done * (len(todo) - done)
                print(f'[{done}/{len(todo)}] {futures[future]}: {mean:.2f} mIoU, {left:.0f} s left', flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [json.loads((work_dir / RESULT).read_text()) for *_, work_dir in jobs]


def is_done(work_dir: Path, settings: dict[str, Any]) -> bool:
    """Whether a result of exactly these settings is there."""
    path = work_dir / RESULT
    return path.exists() and json.loads(path.read_text())['options'] == settings


def run(config: str, work_dir: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """One training in a process of its own, its output in a file."""
    work_dir.mkdir(parents=True, exist_ok=True)
    with (work_dir / 'output.txt').open('w') as output, contextlib.redirect_stdout(output):
        sys.stderr = output
        return train_and_score(config, work_dir, settings, n_pictures=6)


if __name__ == '__main__':
    main()
