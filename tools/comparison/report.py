"""Report of a comparison: numbers as JSON, tables as Markdown, and all of it as one page of HTML."""

import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from whole_file import write_whole

from comparison import charts
from comparison.page import Page
from comparison.results import Comparison
from comparison.tables import class_rows, markdown, score_rows, summary_rows

HOW_TO_READ = (
    'Each seed gives all configs the same initial weights, and the same images where they draw them alike. Differences '
    'are paired by seed; in brackets is the interval that holds 95 % of them when seeds and validation images are '
    'drawn anew, with repetition; then, in how many seeds the config is ahead of the first. With one seed the interval '
    'tells of the images alone. mIoU is the mean over classes of the IoU of the whole validation set, mIoU by image '
    'the mean over images of the mean IoU of the classes in each. For the last validations, the deviation is the one '
    'within a run.'
)


def write_report(comparison: Comparison, out: Path, title: str, command: str) -> Path:
    """Write ``results.json``, ``results.md`` and ``report.html``; return the path of the last one."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {schedule: score_rows(comparison, schedule) for schedule in comparison.schedules}
    document = {
        'metadata': metadata(comparison),
        'table': summary_rows(comparison),
        'tables': tables,
        'trainings': [trained.result for trained in comparison.trainings],
    }
    write_whole(out / 'results.json', json.dumps(document, indent=1, ensure_ascii=False) + '\n')
    write_whole(out / 'results.md', text_report(comparison, tables))
    path = out / 'report.html'
    write_whole(path, html_report(comparison, tables, title, command))
    return path


def metadata(comparison: Comparison) -> dict[str, Any]:
    """Return versions, seeds and lengths of the trainings."""

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    openmmlab = ('mmengine', 'mmcv', 'mmsegmentation')
    packages = ('torch', 'torchmetrics', *openmmlab, *(f'onedl-{name}' for name in openmmlab))
    return {
        **{name: number for name in packages if (number := installed(name))},
        'python': platform.python_version(),
        'machine': platform.machine(),
        'seeds': comparison.seeds,
        **{
            f'{schedule} schedule': f'{comparison.iterations(schedule)} iterations' for schedule in comparison.schedules
        },
        'minutes of training': round(sum(trained['seconds'] for trained in comparison.trainings) / 60, 1),
    }


def text_report(comparison: Comparison, tables: dict[str, list[dict[str, Any]]]) -> str:
    """Return all tables, for a README or a terminal."""
    parts = []
    for schedule, rows in tables.items():
        parts.append(f'## {schedule.capitalize()} schedule: {comparison.iterations(schedule)} iterations')
        parts += [markdown(class_rows(comparison, schedule)), markdown(rows)]
    return '\n\n'.join([*parts, HOW_TO_READ]) + '\n'


@rc_context({'text.parse_math': False})  # Names may contain dollar signs.
def html_report(comparison: Comparison, tables: dict[str, list[dict[str, Any]]], title: str, command: str) -> str:
    """Return the page with all tables and pictures."""
    page = Page(title)
    page.text(HOW_TO_READ)
    for schedule, rows in tables.items():
        page.heading(f'{schedule.capitalize()} schedule: {comparison.iterations(schedule)} iterations')
        page.table(rows)
        page.figure(
            charts.learning_curves(comparison, schedule),
            'The validation set during training: mean over seeds, and from the lowest seed to the highest.',
        )
        compare_classes(page, comparison, schedule)
        show_predictions(page, comparison, schedule)
    page.heading('How it was made')
    page.text(command)
    page.table([{'': key, 'value': value} for key, value in metadata(comparison).items()])
    page.table(training_rows(comparison))
    for name in comparison.configs:
        for schedule in comparison.schedules:
            trained = comparison.groups[schedule][name][0]
            config = trained.work_dir / Path(trained['config']).name
            page.details(f'{name}, {schedule}: the whole config', config.read_text())
    return page.html()


def compare_classes(page: Page, comparison: Comparison, schedule: str) -> None:
    """Add the gains and losses of the classes."""
    page.heading('Classes', 3)
    if len(comparison.configs) > len({comparison.base_of(name) for name in comparison.configs}):
        page.figure(
            charts.gain_over_pixels(comparison, schedule),
            'IoU of each class minus that of the first config, mean over seeds; rare classes on the left.',
        )
    page.table(class_rows(comparison, schedule))


def show_predictions(page: Page, comparison: Comparison, schedule: str) -> None:
    """Add predictions during training, and the images with the largest gains and losses of each config."""
    seed = comparison.seeds[0]
    page.heading('Predictions', 3)
    last = comparison.trainings[0].last
    names = list(comparison.trainings[0]['pixels'])
    page.figure(charts.legend(names, last['palette']))
    page.figure(
        charts.evolution(comparison, schedule),
        f'The same validation images under each config, by iteration (seed {seed}).',
    )
    for name in comparison.configs:
        if name == comparison.base_of(name):
            continue
        page.heading(f'{name}: where it gains and loses most', 4)
        base = comparison.base_of(name)
        chosen, gains = charts.extremes(*(comparison.groups[schedule][key][0] for key in (name, base)))
        if not chosen:
            page.text(f'No image has another mean IoU than with {base}.')
            continue
        page.figure(
            charts.wins_and_losses(comparison, schedule, name, chosen, gains),
            f'Of {len(last["gallery"])} validation images those with the largest gains and the largest losses in mean '
            f'IoU against {base}, in points (seed {seed}).',
        )


def training_rows(comparison: Comparison) -> Sequence[dict[str, Any]]:
    """Return one row for each training."""
    return [
        {
            'training': trained['name'],
            'schedule': trained['schedule'],
            'seed': trained['seed'],
            'mIoU': f'{trained["mIoU"]:.2f}',
            'minutes': f'{trained["seconds"] / 60:.1f}',
            'started': 'once' if trained['starts'] == 1 else f'{trained["starts"]} times',
        }
        for trained in comparison.trainings
    ]
