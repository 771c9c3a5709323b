"""The pictures of ``docs/concepts``, one file for each: ``compute`` has the numbers, ``draw`` shows them."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that people with any colour vision tell apart (Okabe and Ito), and that differ in lightness.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    '#000000',
    '#E69F00',
    '#56B4E9',
    '#009E73',
    '#0072B2',
    '#D55E00',
    '#CC79A7',
)

STYLE = {
    'font.size': 12,
    'axes.titlesize': 12,
    'legend.fontsize': 10.5,
    'legend.frameon': False,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'lines.linewidth': 1.8,
    'grid.alpha': 0.25,
}
"""Large enough to be read at half the width of a page."""


def two_panels(**settings: object) -> tuple[Figure, Axes, Axes]:
    """A figure with two axes side by side."""
    figure = Figure(figsize=(9, 3.9), layout='constrained')
    left, right = figure.subplots(1, 2, **settings)
    for axes in (left, right):
        axes.grid()
        axes.set_axisbelow(True)
    return figure, left, right
