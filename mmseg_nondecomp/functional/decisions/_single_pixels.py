r"""Several classes without overlap: coordinate ascent by single pixels, with the exact change of the objective.

Each pixel in turn goes to the class to which it adds most, until none moves. The objective never falls, and no pixel
alone can improve the result. The ascent starts from several maps, and once more from the best result with one pixel
changed; the best result is kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.decisions._expectations import (
    Goal,
    Nodes,
    Sums,
    expected_value,
    log_generating,
    nodes_between,
    value_of_none,
)

MOST_SWEEPS = 100
LEAST_GAIN = 1e-12  # below it a pixel is not moved, so that rounding errors do not move it for ever
MOST_CHANGES = 64  # number of changed maps from which the ascent starts once more


def decide_pixel_by_pixel(probs: Tensor, goal: Goal, min_probability: Tensor) -> Tensor:
    """Return the decided class of each pixel, int64 of shape [N, P], for probabilities [N, C, P] and limits [N, 1].

    A pixel with a NaN goes to the class of its first NaN.
    """
    p = probs.nan_to_num(0)
    barred = p.amax(2) < min_probability
    p = p.double().clamp_(max=1)
    barred &= ~barred.all(1, keepdim=True)
    label = _ascend(p, barred, _starts(p, barred), goal)
    maps, held = _changes(p, barred, label, goal)
    label = _ascend(p, barred, maps, goal, held)
    return torch.where(probs.isnan().any(1), probs.max(1).indices, label)


def _ascend(p: Tensor, barred: Tensor, maps: Tensor, goal: Goal, held: Tensor | None = None) -> Tensor:
    """Return the best of the maps [N, P] to which the ascent leads from maps [S, N, P].

    ``held`` is a pixel of each map, int64 of shape [S, N], that the first sweep does not move.
    """
    (n_starts, n_images, n_pixels), n_classes = maps.shape, p.shape[1]
    p, barred, label = p.repeat(n_starts, 1, 1), barred.repeat(n_starts, 1), maps.flatten(0, 1)
    state = _state_of(p, label, goal)
    for _ in range(MOST_SWEEPS):
        before = label.clone()
        for i in range(n_pixels):
            own, pixel = _one_hot(label[:, i], n_classes), p[:, :, i]
            rest = state.moved(pixel, -own)
            gain = (rest.values(pixel) - rest.values()).masked_fill(barred, -torch.inf) + LEAST_GAIN * own
            if held is not None:
                gain = torch.where((held.flatten() == i).unsqueeze(1), own, gain)
            label[:, i] = gain.max(1).indices
            state = rest.moved(pixel, _one_hot(label[:, i], n_classes))
        if held is None and torch.equal(before, label):
            break
        held = None
    best = state.values().sum(1).view(n_starts, n_images).max(0).indices
    return label.view(n_starts, n_images, n_pixels)[best, torch.arange(n_images, device=label.device)]


def _changes(p: Tensor, barred: Tensor, label: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Return the maps that differ from a map [N, P] in the one pixel that costs least, [S, N, P], and this pixel.

    The first is the map itself.
    """
    state, n_classes, gains = _state_of(p, label, goal), p.shape[1], []
    for i in range(label.shape[1]):
        own, pixel = _one_hot(label[:, i], n_classes), p[:, :, i]
        rest = state.moved(pixel, -own)
        gain = rest.values(pixel) - rest.values()
        gains.append((gain - (gain * own).sum(1, keepdim=True)).masked_fill(barred | (own > 0), -torch.inf))
    place = torch.stack(gains, 1).flatten(1).topk(min(MOST_CHANGES, p[0].numel())).indices.t()
    pixel, to = place // n_classes, place % n_classes
    changed = label.expand(len(place), -1, -1).scatter(2, pixel.unsqueeze(2), to.unsqueeze(2))
    return torch.cat([label.unsqueeze(0), changed]), torch.cat([pixel[:1], pixel])


def _starts(p: Tensor, barred: Tensor) -> Tensor:
    """Return the maps from which the ascent starts, int64 of shape [S, N, P].

    They are the most probable classes, the same relative to the mass of each class and to its root, and the most
    probable classes without each of them.
    """
    mass = p.sum(2, keepdim=True).clamp(min=1e-300)
    bars = torch.zeros_like(barred, dtype=p.dtype).masked_fill(barred, -torch.inf).unsqueeze(2)
    without = torch.eye(p.shape[1], dtype=p.dtype, device=p.device).view(p.shape[1], 1, -1, 1)
    scores = torch.cat([torch.stack([p, p / mass, p / mass.sqrt()]), p - 2 * without, p + 2 * without])
    return (scores + bars).max(2).indices


def _one_hot(label: Tensor, n_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(label, n_classes).double()


class _NodeState(NamedTuple):
    """State of the classes for the exact expectation, [S, C] or [S, C, Q]."""

    goal: Goal
    nodes: Nodes
    size: Tensor
    hits: Tensor
    factor: Tensor  # IoU: log G of the misses; Dice: sum of p / (1 - p x) over the decided pixels
    log_all: Tensor  # log G of all pixels
    none: Tensor  # value of an empty set

    def values(self, p: Tensor | None = None) -> Tensor:
        """Return the expected measures [S, C], of the sets with a further pixel if there is one."""
        size, hits, factor = self.size, self.hits, self.factor
        if p is not None:
            size, hits, factor = self.moved(p, torch.ones_like(p))[2:5]
        s, is_iou = self.nodes.s, self.goal.measure == 'iou'
        exponent = factor - size.unsqueeze(2) * s if is_iou else self.log_all - (size + 1).unsqueeze(2) * s
        integral = exponent.exp() @ self.nodes.weight if is_iou else (factor * exponent.exp()) @ self.nodes.weight
        return torch.where(size > 0.5, hits * integral if is_iou else 2 * integral, self.none)

    def moved(self, p: Tensor, change: Tensor) -> '_NodeState':
        """Return the state with pixels of probabilities [S, C] added (1), removed (-1) or neither (0)."""
        is_iou = self.goal.measure == 'iou'
        term = -log_generating(p, self.nodes) if is_iou else self.nodes.density(p)
        return self._replace(
            size=self.size + change, hits=self.hits + change * p, factor=self.factor + change.unsqueeze(2) * term
        )


class _SumState(NamedTuple):
    """State of the classes for the approximate expectations."""

    goal: Goal
    sums: Sums
    none: Tensor

    def values(self, p: Tensor | None = None) -> Tensor:
        """Return the expected measures [S, C], of the sets with a further pixel if there is one."""
        sums = self.sums if p is None else self.sums.plus(p)
        return torch.where(sums.size > 0.5, expected_value(sums, self.goal).value, self.none)

    def moved(self, p: Tensor, change: Tensor) -> '_SumState':
        """Return the state with pixels of probabilities [S, C] added (1), removed (-1) or neither (0)."""
        return self._replace(sums=self.sums.plus(p, change))


def _state_of(p: Tensor, label: Tensor, goal: Goal) -> _NodeState | _SumState:
    """Return the state of maps [S, P] of pixels with probabilities [S, C, P]."""
    own = _one_hot(label, p.shape[1]).movedim(-1, 1)
    none = value_of_none(p.flatten(0, 1), torch.ones_like(p).flatten(0, 1), goal).view(p.shape[:2])
    size, hits = own.sum(2), (own * p).sum(2)
    if goal.expectation != 'exact':
        spread = p * (1 - p)
        return _SumState(goal, Sums(size, hits, (own * spread).sum(2), p.sum(2), spread.sum(2)), none)
    nodes = nodes_between(1.0, p.shape[2] + 1.0, p)
    log_all = torch.zeros(*p.shape[:2], len(nodes.s), dtype=p.dtype, device=p.device)
    factor = torch.zeros_like(log_all)
    for i in range(p.shape[2]):
        log_g, part = log_generating(p[:, :, i], nodes), own[:, :, i : i + 1]
        log_all += log_g
        factor += (1 - part) * log_g if goal.measure == 'iou' else part * nodes.density(p[:, :, i])
    return _NodeState(goal, nodes, size, hits, factor, log_all, none)
