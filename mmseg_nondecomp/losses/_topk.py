"""Base class of the top-k losses."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Inputs, check_k, check_number
from mmseg_nondecomp.functional.topk.smooth import item_rows, item_terms
from mmseg_nondecomp.losses._base import RegisteredLoss, Value


class TopKLoss(RegisteredLoss):
    """Loss that is 0 where the label is among the k highest scores by a margin; with several k, a weighted mean."""

    default_name = 'loss_topk'
    averages_terms = True

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        margin: float = 1.0,
        *,
        k_weights: Sequence[float] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        check_number('margin', margin, '[0, inf)')
        self.k, self.margin = k, margin
        self.k_weights = _weight_of_each(k if isinstance(k, Sequence) else (k,), k_weights)

    def value(self, inputs: Inputs, **_: Any) -> Value:
        """Compute the mean loss of the items that count."""
        count = inputs.valid.sum().clamp(min=1)
        return Value(self.terms(inputs).sum() / count, statistics=count)

    def terms(self, inputs: Inputs) -> Tensor:
        """Compute the weighted losses of the items, of shape [N, P]."""
        scores, target = item_rows(inputs)
        of_each_k = [(weight, self.losses(scores, target, k)) for k, weight in self.k_weights.items()]
        losses = reduce(torch.add, (losses if weight == 1 else weight * losses for weight, losses in of_each_k))
        return item_terms(losses, inputs)

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
