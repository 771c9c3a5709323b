"""Base class of the top-k losses."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    Inputs,
    Reading,
    check_class_weight,
    check_k,
    check_number,
    number_of_classes,
    read_class_weight,
)
from mmseg_nondecomp.functional.topk.smooth import item_rows, item_terms
from mmseg_nondecomp.losses._base import RegisteredLoss, Value

TINY = 1e-30  # sum of weights in place of 0, for a loss of 0


class TopKLoss(RegisteredLoss):
    """Loss that is 0 where the label is among the k highest scores by a margin; with several k, a weighted mean."""

    default_name = 'loss_topk'
    averages_terms = True
    class_weight: Tensor | None
    modes = ('multiclass',)

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        margin: float = 1.0,
        *,
        k_weights: Sequence[float] | None = None,
        class_weight: Sequence[float] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.register_buffer('class_weight', read_class_weight(class_weight), persistent=False)
        check_number('margin', margin, '[0, inf)')
        self.k, self.margin = k, margin
        self.k_weights = _weight_of_each(k if isinstance(k, Sequence) else (k,), k_weights)

    def reading(self, pred: Tensor, target: Any, weight: Tensor | None, avg_factor: Any) -> Reading:
        """Return how a call is read: with a channel for each class."""
        check_k(max(self.k_weights), number_of_classes(pred, 'pred') or math.inf)
        reading = super().reading(pred, target, weight, avg_factor)
        return reading._replace(mode='multiclass', of_items=True)

    def value(self, inputs: Inputs, **_: Any) -> Value:
        """Compute the mean loss of the items that count, weighted by class as `torch.nn.CrossEntropyLoss` does."""
        count = inputs.valid.sum().clamp(min=1)
        total = count if self.class_weight is None else self._class_weights(inputs).sum().clamp(min=TINY)
        return Value(self.terms(inputs).sum() / total, statistics=count)

    def terms(self, inputs: Inputs) -> Tensor:
        """Compute the weighted losses of the items, of shape [N, P]."""
        scores, target = item_rows(inputs)
        of_each_k = [(weight, self.losses(scores, target, k)) for k, weight in self.k_weights.items()]
        losses = reduce(torch.add, (losses if weight == 1 else weight * losses for weight, losses in of_each_k))
        terms = item_terms(losses, inputs)
        return terms if self.class_weight is None else terms * self._class_weights(inputs)

    def _class_weights(self, inputs: Inputs) -> Tensor:
        """Return the weight of the class of each item [N, P]; 0 for items that do not count."""
        check_class_weight(self.class_weight, inputs.n_classes)
        weights: Any = self.class_weight
        weights = weights.to(inputs.scores)
        if inputs.is_soft:
            return torch.einsum('c,ncp->np', weights, inputs.target)
        return torch.cat([weights, weights.new_zeros(1)])[inputs.target]

    def losses(self, scores: Tensor, target: Tensor, k: int) -> Tensor:
        """Compute the losses [N, P] for one k of scores [N, P, C] with labels [N, P] or soft labels [N, P, C]."""
        raise NotImplementedError

    def measures(self, inputs: Inputs, statistics: Any) -> dict[str, Tensor]:
        """Return the top-k accuracy for each k."""
        scores, valid = inputs.scores, inputs.valid
        count = valid.sum().clamp(min=1) if statistics is None else statistics
        target = inputs.target.argmax(1) if inputs.is_soft else inputs.target.clamp(max=inputs.n_classes - 1)
        rank = (scores > scores.gather(1, target.unsqueeze(1))).sum(1)
        return {f'top{k}': ((rank < k) & valid).sum() / count for k in self.k_weights}

    def extra_repr(self) -> str:
        """Return the settings, as ``print(model)`` shows them."""
        k_weights = f', k_weights={tuple(self.k_weights.values())}' if len(self.k_weights) > 1 else ''
        return f'k={self.k}{k_weights}, {super().extra_repr()}'


def _weight_of_each(ks: Sequence[int], weights: Sequence[float] | None) -> dict[int, float]:
    """Return the weight of each k, normalised to a sum of 1; raise unless each k and weight is valid."""
    for k in ks:
        check_k(k)
    if not ks or len(set(ks)) < len(ks):
        raise ValueError(f'Parameter `k` should hold at least one number, and each once. Found {list(ks)}.')
    weights = [1.0] * len(ks) if weights is None else weights
    if not isinstance(weights, Sequence):
        raise TypeError(f'Parameter `k_weights` should be a list of numbers. Found {weights!r}.')
    if not all(isinstance(weight, (int, float)) and 0 < weight < math.inf for weight in weights):
        raise ValueError(f'Parameter `k_weights` should hold positive numbers. Found {list(weights)}.')
    if len(weights) != len(ks):
        raise ValueError(f'Parameter `k_weights` should hold a weight for each `k`, {len(ks)}. Found {list(weights)}.')
    return {k: weight / sum(weights) for k, weight in zip(ks, weights, strict=True)}
