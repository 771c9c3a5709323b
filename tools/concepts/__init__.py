"""Pictures of ``docs/concepts``, one file each: ``compute`` returns the numbers, ``draw`` plots them."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that are distinguishable with any colour vision (Okabe and Ito) and differ in lightness.
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
"""Style with sizes that are readable at half the width of a page."""


def two_panels(**settings: object) -> tuple[Figure, Axes, Axes]:
    """Return a figure with two adjacent axes."""
    figure = Figure(figsize=(9, 3.9), layout='constrained')
    left, right = figure.subplots(1, 2, **settings)
    for axes in (left, right):
        axes.grid()
        axes.set_axisbelow(True)
    return figure, left, right
