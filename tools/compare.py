"""Train configs with paired seeds and compare them: ``python tools/compare.py CONFIG... --seeds 0 1 2``.

For each seed all configs use the same initial weights and images. Runs are parallel, one thread each. The folder
``--out`` receives numbers (``results.json``), tables (``results.md``) and one page with everything (``report.html``).
Finished runs are not repeated, and interrupted ones resume from their last checkpoint, unless their settings have
changed.
"""

import argparse
import itertools
import os
import shlex
import sys
from pathlib import Path

from comparison.job import Job
from comparison.pool import train_missing
from comparison.report import write_report
from comparison.results import Comparison, Trained
from comparison.schedule import SCHEDULES
from mmengine.config import DictAction


def main() -> None:
    """Parse the command line, do the missing runs and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+', help='configs; the others are compared with the first')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0])
    parser.add_argument(
        '--schedule',
        nargs='+',
        choices=SCHEDULES,
        default=['short'],
        help='short: the length in the config; long: five times that',
    )
    parser.add_argument('--lrs', nargs='+', type=float, help='learning rates to try (default: those of the configs)')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/compare'))
    parser.add_argument('--jobs', type=int, default=os.cpu_count(), help='parallel runs (default: one per core)')
    args = parser.parse_args()
    missing = [config for config in args.configs if not Path(config).is_file()]
    if missing:
        parser.error(f'no such config: {", ".join(missing)}')
    given = {**vars(args), 'configs': [Path(config).stem for config in args.configs]}  # they name the runs
    for name in ('configs', 'seeds', 'schedule', 'lrs'):
        values = given[name] or []
        if len(set(values)) < len(values):
            parser.error(f'{name} should differ by name. Found {" ".join(map(str, values))}')

    jobs = [
        Job(config, seed, args.out, schedule, lr, args.cfg_options)
        for schedule, seed, lr, config in itertools.product(args.schedule, args.seeds, args.lrs or [None], args.configs)
    ]
    results = train_missing(jobs, args.jobs)
    trainings = [Trained(result, job.work_dir) for result, job in zip(results, jobs, strict=True)]
    title = f'Comparison of {len(args.configs)} configs'
    page = write_report(Comparison(trainings), args.out, title, f'python {shlex.join(sys.argv)}')
    print(f'\n{(args.out / "results.md").read_text()}\nreport: {page}')


if __name__ == '__main__':
    main()
