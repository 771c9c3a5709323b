"""Picture of a benchmark: time over size for each candidate, or bars for a single size."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import Row

COLUMNS = 3
PEN_WIDTH = 1.6


def draw(results: Sequence[Row], title: str) -> Figure:
    """Draw one plot for each group."""
    groups = list(dict.fromkeys(row['measured'] for row in results))
    n_columns = min(COLUMNS, len(groups))
    n_rows = -(-len(groups) // n_columns)
    figure = Figure(figsize=(5.4 * n_columns + 1, 4.6 * n_rows), layout='constrained')
    figure.suptitle(title)
    axes = figure.subplots(n_rows, n_columns, squeeze=False).flatten()
    in_groups = {group: [row for row in results if row['measured'] == group] for group in groups}
    over_sizes = {group for group, rows in in_groups.items() if len({row['case'] for row in rows}) > 1}
    names = dict.fromkeys(row['candidate'] for group in groups if group in over_sizes for row in in_groups[group])
    colors = {name: f'C{i}' for i, name in enumerate(names)}
    for axis, (group, rows) in zip(axes, in_groups.items(), strict=False):
        axis.set_title(group, fontsize=10)
        if group in over_sizes:
            lines(axis, rows, colors)
        else:
            bars(axis, rows)
    for axis in axes[len(groups) :]:
        axis.set_axis_off()
    return figure


def lines(axis: Axes, rows: Sequence[Row], colors: dict[str, str]) -> None:
    """Plot median times over sizes, with their quartiles; the reference is dashed."""
    for i, name in enumerate(dict.fromkeys(row['candidate'] for row in rows)):
        own = [row for row in rows if row['candidate'] == name]
        axis.errorbar(
            [row['size'] for row in own],
            [row['median ms'] for row in own],
            errors(own),
            label=name,
            marker='o',
            markersize=4,
            capsize=2,
            linewidth=PEN_WIDTH,
            color='black' if i == 0 else colors[name],
            linestyle='--' if i == 0 else '-',
        )
    axis.set_xscale('log')
    axis.set_yscale('log')
    sizes = sorted({row['size'] for row in rows})
    axis.set_xticks(sizes, [f'{size:,}'.replace(',', ' ') for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel(rows[0]['unit'])
    axis.set_ylabel('time (ms)')
    axis.grid(alpha=0.3, which='both')
    axis.legend(loc='upper center', bbox_to_anchor=(0.5, -0.16), fontsize=8, frameon=False)


def bars(axis: Axes, rows: Sequence[Row]) -> None:
    """Plot median times with their quartiles as bars; the reference is grey."""
    names = [row['candidate'] for row in rows]
    axis.barh(
        names,
        [row['median ms'] for row in rows],
        xerr=errors(rows),
        color=['tab:gray', *['tab:blue'] * (len(rows) - 1)],
        capsize=2,
    )
    axis.invert_yaxis()
    axis.tick_params('y', labelsize=8)
    times = [row['median ms'] for row in rows]
    if min(times) > 0 and max(times) > 30 * min(times):
        axis.set_xscale('log')
    else:
        axis.set_xlim(left=0)
    axis.set_xlabel(f'time (ms), {rows[0]["case"]}')
    axis.grid(alpha=0.3, axis='x')


def errors(rows: Sequence[Row]) -> list[list[float]]:
    """Return the distances of the quartiles from the medians, below and above."""
    below = [row['median ms'] - row['quartiles ms'][0] for row in rows]
    return [below, [row['quartiles ms'][1] - row['median ms'] for row in rows]]
