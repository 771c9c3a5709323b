"""What all metrics here share: how they are drawn, kept apart in collections and joined over processes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors


class UnitMetric(Metric):
    """A metric with values from 0 to 1, in float64 if it was given scores of float64 and in float32 otherwise.

    Whatever a value depends on is in the states: only they are shared within a collection, stored and sent to others.
    """

    full_state_update = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    of_doubles: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state('of_doubles', torch.zeros((), dtype=torch.long), dist_reduce_fx='max')

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw a value, or several, into a Matplotlib figure.

        Args:
            val: What ``forward`` or ``compute`` returned, or a list of such values; what ``compute`` returns if
                omitted.
            ax: The axis to draw into; a new one if omitted.

        Returns:
            The figure and the axis.

        Example:
            >>> from mmseg_nondecomp.metrics import SoftJaccardIndex
            >>> metric = SoftJaccardIndex(num_classes=2)
            >>> probs, target = torch.tensor([[0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1])
            >>> values = [metric(probs, target), metric(1 - probs, target)]
            >>> figure, axis = metric.plot(values)
            >>> axis.get_ylabel()
            'SoftJaccardIndex'
        """
        return self._plot(val, ax)

    def tell_apart(self, **settings: Any) -> None:
        """Name the settings by which ``update`` reads a batch.

        A collection lets metrics share a state if the names of its parts are the same and, after the first batch, so
        are the values: that of metrics which ignore different labels, as long as there are none of them.
        """
        name = '_'.join(f'{setting}_{value}' for setting, value in settings.items()).replace('.', '_')
        self.add_state(f'read_with_{name}', torch.zeros(()), dist_reduce_fx='max')

    def note_type_of(self, preds: Tensor) -> None:
        """Remember scores of float64."""
        if preds.dtype == torch.float64:
            self.of_doubles = torch.ones_like(self.of_doubles)

    def in_type_of_scores(self, value: Tensor) -> Tensor:
        """The value in the type that it is returned in."""
        return value.to(torch.float64 if self.of_doubles else torch.float32)

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any | None = None
    ) -> None:
        # Tensors that processes exchange are of one type and number of dimensions. A process that has seen nothing has
        # no tensor to tell which: list states are flat, and in float64 if one process has that.
        wide = torch.stack(list(dist_sync_fn(self.of_doubles, group=process_group or self.process_group))).any()
        dtype = torch.float64 if wide else torch.float32
        for name, default in self._defaults.items():
            if isinstance(default, list):
                nothing = torch.zeros(0, dtype=dtype, device=self.device)
                setattr(self, name, [part.to(dtype) for part in getattr(self, name)] or [nothing])
        super()._sync_dist(dist_sync_fn, process_group)
