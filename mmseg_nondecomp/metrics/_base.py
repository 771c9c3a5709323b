"""Base class of the metrics: plots, states in collections and synchronisation between processes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors


class UnitMetric(Metric):
    """A metric with values from 0 to 1, in float64 if it was given scores of float64 and in float32 otherwise.

    All that a value depends on is in the states: only these are shared within a collection, saved and synchronised.
    """

    full_state_update = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    of_doubles: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checked: dict[Any, int] = {}  # number of calls whose values were checked, as `read_inputs` counts them
        self.add_state('of_doubles', torch.zeros((), dtype=torch.long), dist_reduce_fx='max')

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot a value of ``forward`` or ``compute``, or a list of them, with Matplotlib; return figure and axis.

        By default it is the value of ``compute``, in a new axis.

        Example:
            >>> from mmseg_nondecomp.metrics import SoftJaccardIndex
            >>> figure, axis = SoftJaccardIndex(num_classes=2).plot([torch.tensor(0.5), torch.tensor(0.6)])
        """
        return self._plot(val, ax)

    def add_settings_state(self, **settings: Any) -> None:
        """Add a state named after the settings with which ``update`` reads a batch.

        A collection lets metrics share their states if names and, after the first batch, values are the same: also
        metrics that ignore different labels, if the first batch has none of these. The name keeps them apart.
        """
        name = '_'.join(f'{setting}_{value}' for setting, value in settings.items()).replace('.', '_')
        self.add_state(f'read_with_{name}', torch.zeros(()), dist_reduce_fx='max')

    def update_dtype(self, preds: Tensor) -> None:
        """Record whether scores are float64."""
        if preds.dtype == torch.float64:
            self.of_doubles = torch.ones_like(self.of_doubles)

    def in_value_dtype(self, value: Tensor) -> Tensor:
        """Return a value in float64 if there were scores of float64, else in float32."""
        return value.to(torch.float64 if self.of_doubles else torch.float32)

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any | None = None
    ) -> None:
        # Processes exchange tensors of one dtype and number of dimensions. A process without an update has no tensor to
        # infer them from: list states are flat, and in float64 if one process has that.
        wide = torch.stack(list(dist_sync_fn(self.of_doubles, group=process_group or self.process_group))).any()
        dtype = torch.float64 if wide else torch.float32
        for name, default in self._defaults.items():
            if isinstance(default, list):
                nothing = torch.zeros(0, dtype=dtype, device=self.device)
                setattr(self, name, [part.to(dtype) for part in getattr(self, name)] or [nothing])
        super()._sync_dist(dist_sync_fn, process_group)
