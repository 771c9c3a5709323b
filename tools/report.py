"""Tables and pictures of a comparison."""

from pathlib import Path
from typing import Any

import numpy as np


def name_of(result: dict[str, Any]) -> str:
    """The config, and the learning rate where it was set."""
    lr = result['options'].get('optim_wrapper.optimizer.lr')
    return Path(result['config']).stem + ('' if lr is None else f' lr {lr:g}')


def by_name(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The results of each config (and learning rate), in the order of the seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(name_of(result), []).append(result)
    return groups


def markdown_table(results: list[dict[str, Any]]) -> str:
    """Mean, spread and paired differences to the first config at the same learning rate, over seeds."""
    groups = by_name(results)
    first = results[0]['config']
    seeds = [result['options']['randomness.seed'] for result in next(iter(groups.values()))]
    lines = [
        f'| config | {" | ".join(f"seed {seed}" for seed in seeds)} | mIoU (mean ± std) | against the first |',
        f'|---|{"---|" * (len(seeds) + 2)}',
    ]
    for name, group in groups.items():
        values = np.array([result['mIoU'] for result in group])
        base = groups[name_of({**group[0], 'config': first})]
        gain = values - np.array([result['mIoU'] for result in base])
        spread = values.std(ddof=1) if len(values) > 1 else 0.0
        lines.append(
            f'| {name} | {" | ".join(f"{value:.2f}" for value in values)} | {values.mean():.2f} ± {spread:.2f} '
            f'| {gain.mean():+.2f} (in {(gain > 0).sum()} of {len(gain)} seeds) |'
        )
    return '\n'.join(lines)


def per_class_table(results: list[dict[str, Any]]) -> str:
    """IoU of each class, the most frequent first, averaged over seeds."""
    groups = by_name(results)
    pixels = results[0]['pixels']
    total = sum(pixels.values())
    lines = [f'| class | share of pixels | {" | ".join(groups)} |', f'|---|---|{"---|" * len(groups)}']
    for name in sorted(pixels, key=pixels.get, reverse=True):
        cells = []
        for group in groups.values():
            values = [result['IoU'][name] for result in group if result['IoU'][name] is not None]
            cells.append(f'{np.mean(values):.1f}' if values else 'absent')
        lines.append(f'| {name} | {100 * pixels[name] / total:.2f} % | {" | ".join(cells)} |')
    means = [f'**{np.mean([result["mIoU"] for result in group]):.1f}**' for group in groups.values()]
    return '\n'.join([*lines, f'| **mean** | | {" | ".join(means)} |'])


def draw_predictions(work_dirs: list[Path], out: Path) -> Path:
    """The same validation images under each training: image, label, and one row of predictions each."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    columns = [np.load(work_dir / 'pictures.npz') for work_dir in work_dirs]
    titles = ['image', 'label', *(work_dir.parent.parent.name for work_dir in work_dirs)]
    n_images = len(columns[0]['pictures'])
    colors = np.vstack([columns[0]['palette'], [[0, 0, 0]]])  # ignored pixels are black
    figure, axes = plt.subplots(len(titles), n_images, figsize=(2.2 * n_images, 2.3 * len(titles)), squeeze=False)
    for i in range(n_images):
        image, label = columns[0]['pictures'][i, :3].transpose(1, 2, 0), columns[0]['pictures'][i, 3]
        maps = [label, *(column['pictures'][i, 4] for column in columns)]
        rows = [image, *(colors[np.where(label == 255, len(colors) - 1, m)] for m in maps)]
        for axis, row, title in zip(axes[:, i], rows, titles, strict=True):
            axis.imshow(row, interpolation='nearest')
            axis.set_xticks([])
            axis.set_yticks([])
            if i == 0:
                axis.set_ylabel(title)
    figure.tight_layout()
    path = out / 'predictions.png'
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
