"""What the registered Lovász losses share: sorting, or histograms of the set, of the processes and of the past."""

from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.activations import Activation, activate
from mmseg_nondecomp.functional.error_cells import Cells
from mmseg_nondecomp.functional.error_histogram import error_histogram
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells
from mmseg_nondecomp.functional.lovasz import ClassLosses, occupancy, sorted_losses
from mmseg_nondecomp.functional.lovasz_softmax import check_bins
from mmseg_nondecomp.losses.class_wise import ClassWiseLoss
from mmseg_nondecomp.losses.histogram_memory import HistogramMemory, loss_of_past
from mmseg_nondecomp.losses.scope import reduction_over


class LovaszJaccardLoss(ClassWiseLoss):
    """The Lovász extension of the Jaccard loss of each class.

    Args:
        cells: The cells of a histogram with so many bins.
        bins: How finely errors are told apart; None sorts them.
        memory: How many past batches belong to the set.
        scope: Which items form one set.
        settings: The settings of all losses that are computed class by class.
    """

    def __init__(self, cells: type[Cells], bins: int | None, memory: int, scope: str, **settings: Any) -> None:
        super().__init__(scope=scope, **settings)
        check_bins(bins)
        if not isinstance(memory, int) or isinstance(memory, bool):
            raise TypeError(f'Parameter `memory` should be an integer, the number of batches. Found {memory!r}.')
        if memory < 0:
            raise ValueError(f'Parameter `memory` should not be negative. Found {memory}.')
        if bins is None and (memory or scope == 'world'):
            raise ValueError(
                "Parameter `bins` should be an integer with `memory` or with `scope='world'`: histograms can be kept "
                'and added up over processes, sorted pixels cannot. Found None.'
            )
        if memory and scope == 'image':
            raise ValueError(
                "Parameter `memory` should be 0 with `scope='image'`, where each image is a set of its own."
            )
        self.cells = None if bins is None else cells(bins)
        self.memory = HistogramMemory(memory) if memory else None

    def class_losses(self, items: Items, activation: Activation) -> ClassLosses:
        """Return the extension for each class in each set."""
        per_image = self.scope == 'image'
        if self.cells is None:
            scores = activate(items.scores, activation)
            return sorted_losses(items._replace(scores=scores), self.top, per_image)
        reduce = reduction_over(self.scope)
        histogram = error_histogram(*items, self.cells, per_image, activation)
        mass = histogram.mass
        if reduce.world_size > 1:
            mass = reduce(mass.contiguous() if mass.is_floating_point() else mass.long().contiguous())
        if self.memory is None:
            shares = shares_of_cells(mass)
            losses = reduce.total((histogram.errors * shares).sum((2, 3)))
            return ClassLosses(losses.to(items.scores.dtype), *occupancy(mass))
        past = self.memory.past(mass)
        shares = shares_of_cells(mass + past)
        losses = reduce.total((histogram.errors * shares).sum((2, 3))) + loss_of_past(past, shares, self.cells)
        if self.training:
            self.memory.remember(mass)
        return ClassLosses(losses.to(items.scores.dtype), *occupancy(mass + past))

    def contributions(self, items: Items) -> Tensor:
        """Each item's error times the slope of the loss; asking for them is no step of training."""
        training = self.training
        self.training = False
        try:
            return super().contributions(items)
        finally:
            self.training = training

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'classes={self.classes!r}, scope={self.scope!r}, cells={self.cells}'
