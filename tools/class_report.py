"""Statistics of a class index, as a table and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from markdown_text import code, escaped, in_one_line

from mmseg_nondecomp.class_index import ClassIndex
from mmseg_nondecomp.class_index._label_mistakes import foreign_labels, saved_with_255

PIXELS_COLOR, IMAGES_COLOR, LINE_COLOR = '#4c72b0', '#a3a9b3', '#444444'
INCHES_PER_LABEL = 0.125
"""Minimum width in inches per class; below it, names in the picture overlap."""
MAX_WIDTH = 20
"""Maximum width in inches; if more classes exist than fit, only some are named."""
SMALL = 0.01
"""Share of images below which a logarithmic axis is used."""
MAX_NAME = 22
"""Maximum number of letters of a name in the picture."""
MOST_LABELS = 4
"""Maximum number of invalid labels that are listed."""


def statistics(index: ClassIndex) -> dict[str, Any]:
    """Return the frequency of each class, from frequent to rare, and summary statistics; shares are from 0 to 1."""
    images, items = index.images_per_class, index.items_per_class
    present = index.present_classes
    is_labelled = index.places.shape[1] > 0
    classes = [
        {
            'number': int(c),
            'name': index.class_names[c],
            'images': int(images[c]),
            'image_share': float(images[c] / len(index)),
            'items': int(items[c]),
            'item_share': float(items[c] / items.sum()),
            'items_per_image': float(items[c] / images[c]) if images[c] else None,
        }
        for c in np.argsort(-items, kind='stable')
    ]
    return {
        'unit': 'pixels' if is_labelled else 'objects',
        'n_images': len(index),
        'n_items': int(index.n_items.sum()),
        'labelled_share': float(items.sum() / index.n_items.sum()) if is_labelled else None,
        **(shares_without_class(index) if is_labelled else {}),
        'mistakes': [text for text in (foreign_labels(index), saved_with_255(index)) if text is not None],
        'classes_per_image': float(images.sum() / len(index)),
        'imbalance': {
            'items': float(items[present].max() / items[present].min()),
            'images': float(images[present].max() / images[present].min()),
        },
        'absent': [index.class_names[c] for c in np.flatnonzero(images == 0)],
        'classes': classes,
    }


def shares_without_class(index: ClassIndex) -> dict[str, Any]:
    """Return the shares of pixels that are ignored and with invalid labels, and those labels, one of each image.

    The shares are None for an index that was cached by an earlier version, which did not tell them apart.
    """
    if index.foreign is None:
        return {'ignored_share': None, 'invalid_share': None, 'invalid_labels': []}
    labels, pixels = index.foreign[index.foreign[:, 1] > 0].T
    n_items, n_invalid = int(index.n_items.sum()), int(pixels.sum())
    return {
        'ignored_share': (n_items - int(index.items_per_class.sum()) - n_invalid) / n_items,
        'invalid_share': n_invalid / n_items,
        'invalid_labels': np.unique(labels).tolist(),
    }


def markdown(stats: dict[str, Any]) -> str:
    """Return a table of the classes from frequent to rare, followed by a summary of the data set."""
    unit = stats['unit']
    lines = [
        *(f'**Check the labels.** {escaped(text)}\n' for text in stats['mistakes']),
        f'| number | class | images | % of images | {unit} | % of {unit} | {unit} per image |',
        '|--:|:--|--:|--:|--:|--:|--:|',
    ]
    for row in stats['classes']:
        mean = row['items_per_image']
        per_image = '' if mean is None else f'{mean:.1f}' if mean < 100 else grouped(round(mean))
        cells = [row['number'], escaped(row['name']), grouped(row['images']), percent(row['image_share'])]
        cells += [grouped(row['items']), percent(row['item_share']), per_image]
        lines.append(f'| {" | ".join(map(str, cells))} |')
    absent = named(stats['absent'], len(stats['absent'])) or 'none'
    imbalance = {key: number(value) for key, value in stats['imbalance'].items()}
    lines += ['', f'- images: {grouped(stats["n_images"])}, with {stats["classes_per_image"]:.1f} classes on average']
    if stats['labelled_share'] is not None:
        lines.append(f'- pixels: {pixels_by_label(stats)}; the shares in the table are of the labelled ones')
    return '\n'.join(
        [
            *lines,
            f'- classes in no image: {absent}',
            f'- imbalance (the most frequent class over the rarest one present): {imbalance["items"]} by {unit}, '
            f'{imbalance["images"]} by images',
        ]
    )


def pixels_by_label(stats: dict[str, Any]) -> str:
    """Return the shares of the pixels that have a class, are ignored and have invalid labels."""
    labelled, ignored, invalid = (stats[f'{kind}_share'] for kind in ('labelled', 'ignored', 'invalid'))
    text = f'{percent(labelled)} % labelled, '
    if invalid is None:
        return text + f'{percent(1 - labelled)} % ignored or with invalid labels'
    text += f'{percent(ignored)} % ignored'
    if invalid:
        labels = ', '.join(map(str, stats['invalid_labels'][:MOST_LABELS]))
        text += f', {percent(invalid)} % with invalid labels (such as {labels})'
    return text


def draw_long_tail(stats: dict[str, Any], path: Path) -> None:
    """Draw bars of the shares of pixels and images of each present class, from frequent to rare."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    rows = [row for row in stats['classes'] if row['images']]
    width = float(np.clip(1.5 + 0.16 * len(rows), 7, MAX_WIDTH))
    shown = range(0, len(rows), max(1, int(np.ceil(len(rows) * INCHES_PER_LABEL / (width - 1.5)))))
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(width, 6.4), sharex=True, height_ratios=(3, 2))
    draw_shares(top, f'share of {stats["unit"]}', [row['item_share'] for row in rows], PIXELS_COLOR, is_log=True)
    top.axhline(100 / len(rows), color=LINE_COLOR, linestyle='--', linewidth=1, label='an even share')
    top.legend(loc='lower right', bbox_to_anchor=(1, 0.99), borderaxespad=0, frameon=False)
    top.set_title(title_of(stats), loc='left')
    of_images = [row['image_share'] for row in rows]
    draw_shares(bottom, 'share of images', of_images, IMAGES_COLOR, is_log=min(of_images) < SMALL)
    names = [short(rows[i]['name']) for i in shown]
    bottom.set_xticks(list(shown), names, rotation=90, fontsize=8 if len(rows) > 40 else 9, parse_math=False)
    bottom.set_xlabel('class, from frequent to rare' + (f' (one of {shown.step} is named)' if shown.step > 1 else ''))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_shares(axis: Any, title: str, shares: list[float], color: str, is_log: bool) -> None:
    """Draw one bar for each share, in percent."""
    axis.bar(np.arange(len(shares)), [100 * share for share in shares], color=color, width=0.8)
    if is_log:
        axis.set_yscale('log')
        axis.set_ylim(100 * 10.0 ** np.floor(np.log10(min(shares) / 1.5)), 100 * 10.0 ** np.ceil(np.log10(max(shares))))
    else:
        axis.set_ylim(0, 100)
    axis.set_ylabel(f'{title} (%{", log" if is_log else ""})')
    axis.yaxis.set_major_formatter(lambda value, _: f'{value:g}')
    axis.set_xlim(-0.7, len(shares) - 0.3)
    axis.grid(axis='y', color='#dddddd', linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[['top', 'right']].set_visible(False)


def title_of(stats: dict[str, Any]) -> str:
    """Return the title of the picture."""
    absent = len(stats['absent'])
    left_out = f' ({absent} in no image left out)' if absent else ''
    return f'{len(stats["classes"]) - absent} classes{left_out} in {grouped(stats["n_images"])} images'


def percent(share: float) -> str:
    """Return a share in percent, with two or three significant digits."""
    value = 100 * share
    if value >= 10 or value == 0:
        return f'{value:.1f}'
    return f'{value:.2f}' if value >= 0.1 else np.format_float_positional(value, 2, fractional=False)


def number(value: float) -> str:
    """Return a positive number with at least two significant digits."""
    return grouped(round(value)) if value >= 10 else f'{value:.2g}'


def grouped(value: int) -> str:
    """Return an integer with its digits in groups of three."""
    return f'{value:_}'.replace('_', ' ')


def named(names: list[str], most: int = 4) -> str:
    """Return a list of names, shortened if there are many."""
    shown = [code(name) for name in names[:most]]
    if len(names) > most:
        return f'{", ".join(shown)} and {len(names) - most} more'
    return ' and '.join(filter(None, [', '.join(shown[:-1]), *shown[-1:]]))


def short(name: str) -> str:
    """Return a name, shortened to fit the picture."""
    name = in_one_line(name)
    return name if len(name) <= MAX_NAME else f'{name[: MAX_NAME - 1]}…'
