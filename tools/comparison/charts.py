"""Pictures of a comparison."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from comparison.results import Comparison, Trained
from comparison.statistics import iou_of_images
from comparison.tables import class_iou

N_EVOLUTION = 2
"""Number of images whose predictions are shown during training."""
N_EXTREMES = 3
"""Number of images with the largest gain, and of those with the largest loss."""


def learning_curves(comparison: Comparison, schedule: str) -> Figure:
    """Plot the mean IoU of the validation set over the iterations: mean and range over seeds."""
    figure = Figure(figsize=(10, 4), layout='constrained')
    for axis, key, title in zip(
        figure.subplots(1, 2), ('data set', 'image'), ('mIoU of the data set', 'mIoU by image'), strict=True
    ):
        for name, color in colors_of(comparison).items():
            curves = [trained['curve'] for trained in comparison.groups[schedule][name]]
            common = sorted(set.intersection(*({point['iteration'] for point in curve} for curve in curves)))
            by_iteration = [{point['iteration']: point[key] for point in curve} for curve in curves]
            values = np.array([[curve[i] for i in common] for curve in by_iteration])
            axis.plot(common, values.mean(0), color=color, marker='.', label=name)
            axis.fill_between(common, values.min(0), values.max(0), color=color, alpha=0.12, linewidth=0)
        axis.set_xlabel('iteration')
        axis.set_ylabel(f'{title} (%)')
        axis.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=3, frameon=False)
    return figure


def gain_over_pixels(comparison: Comparison, schedule: str) -> Figure:
    """Plot the gain of each class over the first config against its number of pixels (paper: Fig. 3)."""
    others = [name for name in comparison.configs if name != comparison.base_of(name)]
    figure = Figure(figsize=(8, 2.9 * len(others) + 0.3), layout='constrained')
    pixels = comparison.trainings[0]['pixels']
    classes = sorted((name for name in pixels if pixels[name]), key=pixels.get)
    for axis, name in zip(figure.subplots(len(others), 1, squeeze=False, sharex=True)[:, 0], others, strict=True):
        base = comparison.base_of(name)
        gains = [class_iou(comparison, schedule, name, c) - class_iou(comparison, schedule, base, c) for c in classes]
        place = np.arange(len(classes))
        axis.bar(place, gains, color=['tab:blue' if gain >= 0 else 'tab:red' for gain in gains])
        ahead = sum(gain > 0 for gain in gains)
        axis.set_title(f'{name} against {base}: {ahead} of {len(classes)} classes gain', fontsize=10)
        axis.axhline(0, color='black', linewidth=0.8)
        axis.set_ylabel('IoU, points')
        axis.grid(alpha=0.3, axis='y')
        axis.set_xticks(place, [f'{c}\n{pixels[c]:.1e}' for c in classes], rotation=90, fontsize=8)
    figure.axes[-1].set_xlabel('class and its validation pixels, rare to frequent')
    return figure


def evolution(comparison: Comparison, schedule: str) -> Figure:
    """Show predictions of each config on the same images during training (paper: Fig. 4), for the first seed."""
    trainings = {name: comparison.groups[schedule][name][0] for name in comparison.configs}
    first = next(iter(trainings.values())).last
    shown = most_classes(first, N_EVOLUTION)
    iterations = sorted(set.intersection(*(set(trained.pictures) for trained in trainings.values())))
    rows = [(place, *item) for place in shown for item in trainings.items()]
    figure = Figure(figsize=(1.15 * (len(iterations) + 2) + 2.2, 1.22 * len(rows)), layout='constrained')
    axes = figure.subplots(len(rows), len(iterations) + 2, squeeze=False)
    for axis, title in zip(axes[0], ('image', 'label', *iterations), strict=True):
        axis.set_title(title, fontsize=9)
    for i, (line, (place, name, trained)) in enumerate(zip(axes, rows, strict=True)):
        image = first['thumbnails'][list(first['gallery']).index(first['shown'][place])]
        seen_before = i % len(trainings) > 0
        show(line[0], None if seen_before else image[:, :, :3])
        show(line[1], None if seen_before else colored(image[:, :, 3], first))
        line[0].set_ylabel(name, rotation=0, ha='right', va='center', fontsize=9)
        for axis, iteration in zip(line[2:], iterations, strict=True):
            show(axis, colored(trained.pictures[iteration][place], first))
    return figure


def most_classes(last: dict[str, np.ndarray], n: int) -> list[int]:
    """Return the tracked images with the most classes."""
    present = last['areas'][last['shown']][:, 1] > 0
    return sorted(range(len(present)), key=lambda i: -present[i].sum())[:n]


def wins_and_losses(
    comparison: Comparison, schedule: str, name: str, chosen: Sequence[int], gains: Sequence[float]
) -> Figure:
    """Show images on which a config gains or loses against the first, with both predictions, for the first seed.

    ``chosen`` and ``gains`` are the results of :func:`extremes`.
    """
    ours, theirs = (comparison.groups[schedule][key][0] for key in (name, comparison.base_of(name)))
    mine, other = ours.last, theirs.last
    figure = Figure(figsize=(2.0 * len(chosen) + 1, 8.2), layout='constrained')
    axes = figure.subplots(4, len(chosen), squeeze=False)
    for column, gain, place in zip(axes.T, gains, chosen, strict=True):
        image = mine['thumbnails'][place]
        layers = [image[:, :, :3], colored(image[:, :, 3], mine)]
        layers += [colored(last['thumbnails'][place][:, :, 4], mine) for last in (other, mine)]
        for axis, layer in zip(column, layers, strict=True):
            show(axis, layer)
        column[0].set_title(f'{gain:+.1f}', fontsize=10, color='tab:blue' if gain > 0 else 'tab:red')
    for axis, title in zip(axes[:, 0], ('image', 'label', comparison.base_of(name), name), strict=True):
        axis.set_ylabel(title, fontsize=8)
    return figure


def extremes(ours: Trained, theirs: Trained) -> tuple[list[int], list[float]]:
    """Return the gallery indices of the largest gains, then of the largest losses; and the gains, in points."""
    gallery = ours.last['gallery']
    gains = 100 * (iou_of_images(ours.areas) - iou_of_images(theirs.areas))[gallery]
    places = [place for place in np.argsort(-gains) if not np.isnan(gains[place])]
    best = [place for place in places[:N_EXTREMES] if gains[place] > 0]
    worst = [place for place in places[-N_EXTREMES:] if gains[place] < 0 and place not in best]
    return [*best, *worst], [float(gains[place]) for place in (*best, *worst)]


def colors_of(comparison: Comparison) -> dict[str, tuple[float, ...]]:
    """Return a color for each config."""
    palette = colormaps['tab10' if len(comparison.configs) <= 10 else 'tab20'].colors
    return {name: palette[i % len(palette)] for i, name in enumerate(comparison.configs)}


def colored(label: np.ndarray, last: dict[str, np.ndarray]) -> np.ndarray:
    """Return a label map in the data set's colors; ignored pixels are black."""
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(last['palette'])] = last['palette']
    return palette[label]


def show(axis: Axes, picture: np.ndarray | None) -> None:
    """Show a picture without ticks, or an empty axis."""
    axis.set(xticks=[], yticks=[])
    if picture is None:
        axis.spines[:].set_visible(False)
    else:
        axis.imshow(picture, interpolation='nearest')


def legend(names: Sequence[str], palette: np.ndarray) -> Figure:
    """Draw a legend of the colors of the classes."""
    figure = Figure(figsize=(10, 0.32 * -(-len(names) // 8) + 0.1), layout='constrained')
    handles = [Patch(facecolor=color / 255) for color in palette]
    figure.legend(handles, names, ncols=8, loc='center', frameon=False, fontsize=9)
    return figure
