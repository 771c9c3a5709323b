"""Base classes of the Jaccard losses: average over classes, terms of pixels, and the memory of the Lovász losses."""

from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp.functional._averaging import (
    ClassLosses,
    averages_over_sets,
    class_average,
    jaccard_counts,
    mean_jaccard,
    set_averages,
)
from mmseg_nondecomp.functional._inputs import (
    Activation,
    Classes,
    Inputs,
    activate,
    check_bins,
    check_classes,
    check_integer,
)
from mmseg_nondecomp.functional.lovasz.histogram import Bins, lovasz_losses
from mmseg_nondecomp.losses._base import SetLoss, Value, training_iteration
from mmseg_nondecomp.losses._distributed import SCOPES


class JaccardLoss(SetLoss):
    """A Jaccard loss of each class of a set, averaged over classes and sets.

    While MMEngine trains, the mean IoU of the decisions on the same pixels is logged as ``train/<loss_name>_miou``.
    """

    shown: tuple[str, ...] = ('classes', 'scope')
    scopes = (*SCOPES, 'class')
    top = 1.0  # score that is no error where the class is present

    def __init__(self, classes: Classes, **common: Any) -> None:
        super().__init__(**common)
        check_classes(classes)
        self.classes = classes
        self.one_vs_rest = self.use_sigmoid or self.layout == 'multilabel'

    @property
    def of_images(self) -> bool:
        """Whether each image is a set."""
        return self.scope in ('image', 'class')

    def class_losses(self, inputs: Inputs, activation: Activation) -> tuple[ClassLosses, Any]:
        """Return the loss of each class in each set, for logits with an activation or for scores, and statistics."""
        raise NotImplementedError

    def value(self, inputs: Inputs, each_set: bool = False, **_: Any) -> Value:
        """Compute the average of the losses of the classes; with ``each_set``, that of each set."""
        losses, statistics = self.class_losses(inputs, self.activation(inputs))
        if each_set:
            return Value(set_averages(losses, self.classes, self.class_weight), statistics)
        return Value(self.average(losses), statistics)

    def average(self, losses: ClassLosses) -> Tensor:
        """Average over the classes of each set and over the sets, or over the sets first."""
        losses = averages_over_sets(losses, self.classes) if self.scope == 'class' else losses
        return class_average(losses, self.classes, self.class_weight)

    def terms(self, inputs: Inputs) -> Tensor:
        """Compute the error of each item times the slope of the loss."""
        scores = activate(inputs.scores, self.activation(inputs))
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            losses, _ = self.class_losses(inputs._replace(scores=leaf), None)
            (slope,) = torch.autograd.grad(self.average(losses), leaf)
        errors = torch.where(inputs.valid.unsqueeze(1), scores - self.top * inputs.one_hot(), 0)
        return (errors * slope).sum(1)

    def activation(self, inputs: Inputs) -> Activation:
        """Return the name of the function that turns logits into scores, here probabilities."""
        return 'sigmoid' if self._decides_each_class(inputs) else 'softmax'

    def measures(self, inputs: Inputs, statistics: Any) -> dict[str, Tensor]:
        """Return the mean IoU of the decisions by logits, over the pixels of all sets together."""
        return {'miou': mean_jaccard(self.decided_areas(inputs))}

    def decided_areas(self, inputs: Inputs) -> Tensor:
        """Return intersections and unions of the decisions by logits, over the pixels of all sets, of shape [2, C]."""
        if self._decides_each_class(inputs):  # each class is a set of items of its own
            true, decided = inputs.target > 0.5 if inputs.is_soft else inputs.one_hot(), inputs.scores > 0
            mass = (inputs.valid if inputs.weight is None else inputs.mass).unsqueeze(1)
            counts = torch.stack([(part * mass).sum((0, 2)) for part in (decided & true, decided | true)]).double()
        else:
            target = inputs.target.argmax(1) if inputs.is_soft else inputs.target
            decided, target, mass = (t.reshape(1, -1) for t in (inputs.scores.max(1).indices, target, inputs.mass))
            counts = jaccard_counts(decided, target, mass, inputs.n_classes)[0].double()
        return self.reduce(counts)

    def _decides_each_class(self, inputs: Inputs) -> bool:
        return self.one_vs_rest or inputs.n_classes == 1


class LovaszLoss(JaccardLoss):
    """The Lovász extension of the Jaccard loss of each class, with the arguments of `LovaszSoftmaxLoss`."""

    binning: type[Bins]  # bins of the histogram

    def __init__(self, classes: Classes, bins: int | None, memory: int, **common: Any) -> None:
        super().__init__(classes, **common)
        check_bins(bins)
        check_integer('memory', memory, lowest=0)
        if bins is None and (memory or self.scope == 'world'):
            raise ValueError(
                "Parameter `bins` should be an integer with `memory` or with `scope='world'`: histograms can be kept "
                'and added up over processes, sorted pixels cannot. Found None.'
            )
        if memory and self.of_images:
            raise ValueError(
                f'Parameter `memory` should be 0 with `scope={self.scope!r}`, where each image is a set of its own.'
            )
        self.bins = bins
        self.memory = HistogramMemory(memory) if memory else None
        self._last_iteration: int | None = None

    def class_losses(self, inputs: Inputs, activation: Activation) -> tuple[ClassLosses, Tensor | None]:
        """Return the extension for each class in each set, and the histogram of the mini-batch."""
        past = None if self.memory is None else self.memory.past
        return lovasz_losses(inputs, self.binning, self.bins, self.of_images, activation, past, self.reduce)

    def observe(self, inputs: Inputs, statistics: Tensor | None) -> None:
        """Keep the histogram of the mini-batch; of the first call, where a head calls its loss several times."""
        iteration = training_iteration()
        is_first = iteration is None or iteration != self._last_iteration
        self._last_iteration = iteration
        if self.memory is not None and statistics is not None and is_first:
            self.memory.append(statistics)


class HistogramMemory(nn.Module):
    """The histograms of the last K mini-batches, in the checkpoint of the model: K · C · 2 · B numbers.

    They are coarser than the histogram of the present mini-batch: B bins for its 3 B.
    """

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches
        self.kept: Tensor | None = None
        """Histograms [K, 1, C, 2, B + 1], oldest first; 0 where there was no mini-batch, so that one graph fits all."""

    def past(self, like: Tensor) -> Tensor:
        """Return the mass of the past mini-batches, in the bins of a histogram [1, C, 2, 3 B + 1]."""
        if self.kept is None:
            return torch.zeros_like(like)
        total = self.kept.sum(0).to(like)
        if total.shape[:3] != like.shape[:3]:
            raise ValueError(
                f'Parameter `pred` should keep its number of channels while a memory is kept. Found histograms of '
                f'{total.shape[1]} classes in the memory and of {like.shape[1]} now.'
            )
        fine = total[..., 1:].repeat_interleave(3, -1) / 3
        return torch.cat([total[..., :1], fine], -1)

    def append(self, mass: Tensor) -> None:
        """Add a histogram [1, C, 2, 3 B + 1] and drop the oldest."""
        mass = mass.double()
        coarse = mass[..., 1:].unflatten(-1, (-1, 3)).sum(-1)
        latest = torch.cat([mass[..., :1], coarse], -1).unsqueeze(0)
        before = latest.new_zeros(self.batches, *latest.shape[1:]) if self.kept is None else self.kept.to(latest.device)
        self.kept = torch.cat([before[1:], latest])

    def get_extra_state(self) -> Tensor:
        """Return the histograms, oldest first, for ``state_dict``."""
        return torch.zeros(0) if self.kept is None else self.kept

    def set_extra_state(self, state: Tensor) -> None:
        """Load the histograms of a checkpoint; raise ValueError if the state is anything else."""
        is_tensor = isinstance(state, Tensor) and state.is_floating_point()
        if not is_tensor or (len(state) and (state.dim() != 5 or state.shape[1] != 1 or state.shape[3] != 2)):
            found = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(f'The state of a memory should be histograms [K, 1, C, 2, B + 1]. Found {found}.')
        missing = max(self.batches - len(state), 0)
        nothing = state.new_zeros(missing, *state.shape[1:])
        self.kept = torch.cat([nothing, state[-self.batches :]]) if len(state) else None

    def extra_repr(self) -> str:
        """Return the setting, as ``print(model)`` shows it."""
        return f'batches={self.batches}'
