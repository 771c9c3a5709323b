"""Tables of a comparison."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markdown_text import escaped

from comparison.results import N_LATE, Comparison

Row = dict[str, Any]


def score_rows(comparison: Comparison, schedule: str) -> list[Row]:
    """Return one row for each config: every seed, mean and spread, and the paired differences with their intervals."""
    rows = []
    for name in comparison.configs:
        scores = comparison.scores(schedule, name)
        row = {'config': name}
        if len(scores) > 1:
            row.update({f'seed {seed}': f'{score:.2f}' for seed, score in zip(comparison.seeds, scores, strict=True)})
        row['mIoU'] = spread(scores)
        row['against the first'] = gain(comparison, schedule, name, 'data set')
        row[f'last {N_LATE} validations'] = late(comparison, schedule, name)
        row['mIoU by image'] = spread(comparison.scores(schedule, name, 'image mIoU'))
        row['by image, against the first'] = gain(comparison, schedule, name, 'image')
        rows.append(row)
    return rows


def summary_rows(comparison: Comparison) -> list[Row]:
    """Return one row for each config, with two columns for each schedule."""
    rows = []
    for name in comparison.configs:
        row = {'config': name}
        for schedule in comparison.schedules:
            length = f'{comparison.iterations(schedule)} iterations'
            row[length] = spread(comparison.scores(schedule, name))
            row[f'{length}: against the first'] = gain(comparison, schedule, name, 'data set')
        rows.append(row)
    return rows


def class_rows(comparison: Comparison, schedule: str) -> list[Row]:
    """Return the IoU of each class, the most frequent first, averaged over seeds."""
    pixels = comparison.trainings[0]['pixels']
    total = sum(pixels.values())
    rows = []
    for name in sorted(pixels, key=pixels.get, reverse=True):
        row = {'class': name, 'share of pixels': f'{100 * pixels[name] / total:.2f} %'}
        for config in comparison.configs:
            value = class_iou(comparison, schedule, config, name)
            row[config] = 'absent' if np.isnan(value) else f'{value:.1f}'
        rows.append(row)
    means = {config: f'{np.mean(comparison.scores(schedule, config)):.1f}' for config in comparison.configs}
    return [*rows, {'class': 'mean', 'share of pixels': '', **means}]


def class_iou(comparison: Comparison, schedule: str, config: str, name: str) -> float:
    """Return the IoU of a class, averaged over the seeds in which it occurs in labels or decisions."""
    values = [trained['IoU'][name] for trained in comparison.groups[schedule][config]]
    values = [value for value in values if value is not None]
    return float(np.mean(values)) if values else float('nan')


def spread(values: Sequence[float]) -> str:
    """Return the mean and standard deviation over seeds."""
    return f'{np.mean(values):.1f}' + (f' ± {np.std(values, ddof=1):.1f}' if len(values) > 1 else '')


def late(comparison: Comparison, schedule: str, name: str) -> str:
    """Return the mean and standard deviation over the last validations, both averaged over seeds."""
    scores = [trained.late_scores for trained in comparison.groups[schedule][name]]
    deviations = [np.std(values, ddof=1) for values in scores if len(values) > 1]
    return f'{np.mean([np.mean(values) for values in scores]):.1f}' + (
        f' ± {np.mean(deviations):.1f}' if deviations else ''
    )


def gain(comparison: Comparison, schedule: str, name: str, measure: str) -> str:
    """Return the difference to the first config, its interval, and the number of seeds in which it is above 0."""
    return '' if name == comparison.base_of(name) else str(comparison.difference(schedule, name, measure))


def markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table."""
    titles = list(rows[0])
    cells = [[escaped(title) for title in titles], *([escaped(row[title]) for title in titles] for row in rows)]
    lines = [cells[0], ['---'] * len(titles), *cells[1:]]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
