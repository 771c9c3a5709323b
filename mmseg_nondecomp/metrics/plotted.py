"""Metrics that can draw their values."""

from typing import Any

from torchmetrics import Metric


class PlottedMetric(Metric):
    """A metric from 0 to 1 that can draw its values, which torchmetrics leaves to each metric."""

    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw a value, or several, into a Matplotlib figure.

        Args:
            val: What ``forward`` or ``compute`` returned, or a list of such values; what ``compute`` returns if
                omitted.
            ax: The axis to draw into; a new one if omitted.

        Returns:
            The figure and the axis.
        """
        return self._plot(val, ax)
