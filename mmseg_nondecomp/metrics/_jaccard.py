"""Base class of the differentiable Jaccard metrics."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes
from mmseg_nondecomp.metrics._base import UnitMetric
from mmseg_nondecomp.metrics.functional._inputs import layout_of
from mmseg_nondecomp.metrics.functional._jaccard import check_averaging, jaccard_average


class JaccardMetric(UnitMetric):
    """One minus a Jaccard loss, averaged over classes. Inputs and arguments are those of `LovaszJaccardIndex`."""

    is_differentiable = True
    plot_legend_name = 'Class'

    decided: Tensor

    def __init__(
        self,
        num_classes: int,
        classes: Classes = 'seen',
        average: str | None = 'macro',
        ignore_index: int | None = None,
        mode: str | None = None,
        from_logits: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.layout = layout_of(num_classes, mode, from_logits, ignore_index, self.checked)
        check_averaging(num_classes, classes, average)
        self.num_classes, self.classes = num_classes, classes
        self.average, self.ignore_index = average, ignore_index
        self.add_settings_state(ignore_index=ignore_index, mode=self.layout.mode, from_logits=from_logits)
        for name, shape in (('decided', (num_classes,)), *self.sums_of_pixels().items()):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx='sum')

    def sums_of_pixels(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the sums over pixels that the losses are computed from."""
        raise NotImplementedError

    def add(self, preds: Tensor, sums: dict[str, Tensor]) -> None:
        """Add the sums of a batch."""
        for name, value in sums.items():
            setattr(self, name, getattr(self, name) + value)
        self.update_dtype(preds)

    def average_of(self, index: Tensor, present: Tensor) -> Tensor:
        """Return the average of the index over the classes that count."""
        value = jaccard_average(index, present, self.decided, self.classes, self.average, self.ignore_index)
        return self.in_value_dtype(value)
