"""Match detections with objects, so that each score of a box is right or wrong."""

import torch
from torch import Tensor

OVERLAP = 0.5  # Least intersection over union of a detection and its object, as in Pascal VOC


def hits(boxes: Tensor, scores: Tensor, labels: Tensor, true_boxes: Tensor, true_labels: Tensor) -> Tensor:
    """Return whether each detection of an image is matched with an object of its class, bool [n].

    From the highest score down, each detection takes the remaining object with which it overlaps most.
    """
    overlaps = torch.where(labels.unsqueeze(1) == true_labels, intersections_over_unions(boxes, true_boxes), 0)
    is_hit = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    if len(true_boxes) == 0:
        return is_hit
    for place in scores.argsort(descending=True, stable=True).tolist():
        overlap, best = overlaps[place].max(0)
        if overlap >= OVERLAP:
            is_hit[place] = True
            overlaps[:, best] = 0
    return is_hit


def lie_within(boxes: Tensor, labels: Tensor, regions: Tensor, region_labels: Tensor) -> Tensor:
    """Return whether half of a box or more lies within a region of its class, bool of shape [n]."""
    shares = _intersections(boxes, regions) / _areas(boxes).clamp(min=torch.finfo(boxes.dtype).tiny).unsqueeze(1)
    return ((labels.unsqueeze(1) == region_labels) & (shares >= OVERLAP)).any(1)


def intersections_over_unions(one: Tensor, other: Tensor) -> Tensor:
    """Return the overlap of each box of one set with each of another, [n, m]; 0 for two boxes without an area."""
    shared = _intersections(one, other)
    union = _areas(one).unsqueeze(1) + _areas(other) - shared
    return torch.where(union > 0, shared / union, 0)


def _intersections(one: Tensor, other: Tensor) -> Tensor:
    corner, end = torch.maximum(one[:, None, :2], other[:, :2]), torch.minimum(one[:, None, 2:], other[:, 2:])
    return (end - corner).clamp(min=0).prod(2)


def _areas(boxes: Tensor) -> Tensor:
    return (boxes[:, 2:] - boxes[:, :2]).prod(1)
