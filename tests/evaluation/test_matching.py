"""Detections against all ways to hand out objects, and the cases that a definition has to settle."""

import itertools

import pytest
import torch

from mmseg_nondecomp.evaluation._matching import OVERLAP, hits, intersections_over_unions, lie_within


def boxes(n, generator):
    corner = 10 * torch.rand(n, 2, generator=generator)
    return torch.cat([corner, corner + 1 + 8 * torch.rand(n, 2, generator=generator)], 1)


def overlap_by_pixels(one, other, size=400, extent=20):
    places = (torch.arange(size) + 0.5) * extent / size
    inside = [
        ((places >= box[0]) & (places < box[2])).unsqueeze(0) & ((places >= box[1]) & (places < box[3])).unsqueeze(1)
        for box in (one, other)
    ]
    return ((inside[0] & inside[1]).sum() / (inside[0] | inside[1]).sum()).item()


def test_overlaps_are_those_of_the_pixels():
    generator = torch.Generator().manual_seed(0)
    one, other = boxes(4, generator), boxes(5, generator)
    found = intersections_over_unions(one, other)
    for (i, a), (j, b) in itertools.product(enumerate(one), enumerate(other)):
        assert found[i, j].item() == pytest.approx(overlap_by_pixels(a, b), abs=0.02)


def test_boxes_without_an_area_overlap_nothing():
    empty, box = torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    assert intersections_over_unions(empty, empty).item() == 0
    assert intersections_over_unions(empty, box).item() == 0
    assert intersections_over_unions(box, box).item() == 1


def greedy(boxes, scores, labels, true_boxes, true_labels):
    left, found = set(range(len(true_boxes))), [False] * len(boxes)
    overlaps = intersections_over_unions(boxes, true_boxes).tolist()
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i].item()):
        best = max((j for j in left if true_labels[j] == labels[i]), key=lambda j: overlaps[i][j], default=None)
        if best is not None and overlaps[i][best] >= OVERLAP:
            found[i] = True
            left.remove(best)
    return found


@pytest.mark.parametrize('n', [0, 1, 2, 4, 6, 8])
@pytest.mark.parametrize('m', [0, 1, 3, 5, 8])
def test_are_handed_out_from_the_highest_score(n, m):
    generator = torch.Generator().manual_seed(10 * n + m)
    true = boxes(m, generator)
    near = true[torch.randint(max(m, 1), (n,), generator=generator)] if m else boxes(n, generator)
    found = near + torch.rand(n, 4, generator=generator)
    scores = torch.rand(n, generator=generator)
    labels, true_labels = (torch.randint(2, (size,), generator=generator) for size in (n, m))
    expected = greedy(found, scores, labels, true, true_labels)
    assert hits(found, scores, labels, true, true_labels).tolist() == expected


def test_within_a_region_of_the_class():
    region = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [8.0, 0.0, 12.0, 2.0], [9.0, 0.0, 13.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    labels = torch.tensor([1, 1, 1, 1])
    assert lie_within(boxes, labels, region, torch.tensor([1])).tolist() == [True, True, False, False]
    assert not lie_within(boxes, labels, region, torch.tensor([2])).any()
    assert not lie_within(boxes, labels, region[:0], torch.zeros(0)).any()
