"""Comparison with rankseg, the implementation of RankSEG by its authors."""

import numpy as np
import pytest
import torch
from reference.decisions import value_of_map, value_of_set

from mmseg_nondecomp.functional.decisions.expected_overlap import decide_overlap

functional = pytest.importorskip('rankseg.functional')

SHAPES = [(2, 3, 5), (2, 1, 40), (1, 4, 20, 30)]


def scene(shape, spread, seed=0):
    """Return probabilities [N, C, *] without ties."""
    random = np.random.default_rng(seed)
    n, n_classes, *size = shape
    if n_classes == 1:
        return torch.tensor(random.beta(spread, spread, shape))
    return torch.tensor(random.dirichlet([spread] * n_classes, (n, *size))).movedim(-1, 1)


def reciprocal_moment(probs, measure, mode='multilabel'):
    """Return the decisions of its solver for large images, without smoothing and with all classes."""
    return functional.rankseg(probs, metric=measure, output_mode=mode, solver='RMA', smooth=0.0, pruning_prob=0.0)


@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('spread', [0.1, 0.5, 1, 8])
def test_iou_of_single_channels_to_the_first_order_is_decided_alike(shape, spread):
    for seed in range(5):
        probs = scene(shape, spread, seed)
        ours = decide_overlap(probs, 'iou', None, 'multilabel', 'first_order')
        assert torch.equal(ours, reciprocal_moment(probs, 'iou'))


@pytest.mark.parametrize('measure', ['iou', 'dice'])
@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('spread', [0.1, 0.5, 1, 8])
def test_the_exact_expectation_of_single_channels_is_not_lower(measure, shape, spread):
    """Its Dice has one more pixel in the denominator than the ratio of expectations."""
    better = 0
    for seed in range(3):
        probs = scene(shape, spread, seed)
        decided = [decide_overlap(probs, measure, None, 'multilabel'), reciprocal_moment(probs, measure)]
        rows = probs.flatten(0, 1).flatten(1).numpy()
        ours, theirs = (
            [value_of_set(p, d, measure) for p, d in zip(rows, part.flatten(0, 1).flatten(1).numpy(), strict=True)]
            for part in decided
        )
        assert np.all(np.array(ours) >= np.array(theirs) - 1e-7)
        better += np.sum(np.array(ours) > np.array(theirs) + 1e-7)
    print(f'\n{measure}, {shape}, {spread}: {better} of {3 * len(rows)} channels are better')


@pytest.mark.parametrize('measure', ['iou', 'dice'])
@pytest.mark.parametrize('spread', [0.3, 1, 8])
@pytest.mark.parametrize('n', [30, 300])
def test_maps_without_overlap_have_a_higher_value_on_average(measure, spread, n):
    gains = []
    for seed in range(6):
        probs = scene((1, 4, n), spread, seed)
        ours, theirs = (
            value_of_map(probs[0].numpy(), label[0].numpy(), measure)
            for label in (decide_overlap(probs, measure), reciprocal_moment(probs, measure, 'multiclass'))
        )
        gains.append(ours / theirs - 1)
    print(f'\n{measure}, {spread}, {n} pixels: {np.mean(gains):+.3%}, from {min(gains):+.3%} to {max(gains):+.3%}')
    assert np.mean(gains) > -1e-9
    assert min(gains) > -0.005
