"""The average precision and the area under the ROC curve of a histogram are those of the scores in their bins."""

import math

import pytest
import torch
from reference import s_measures as reference
from torchmetrics.functional.classification import binary_average_precision

from mmseg_nondecomp.functional._averaging import (
    LARGEST,
    areas_under_roc,
    average_precisions,
    count_scores,
    score_bins,
)

BINS = 65_536
SCALES = {
    'probabilities': lambda x: x.sigmoid(),
    'probabilities near 0 and 1': lambda x: (5 * x).sigmoid(),
    'logits': lambda x: 3 * x,
    'large': lambda x: 1e6 * x,
}
each_scale = pytest.mark.parametrize('scale', SCALES.values(), ids=SCALES)


def items(scale=SCALES['logits'], n=2000, seed=0):
    """Scores that are higher for positives, in double precision, and labels."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(n, generator=generator) < 0.2).long()
    return scale(torch.randn(n, generator=generator).double() + target), target


def counts_of(scores, target, bins=BINS, valid=None):
    valid = torch.ones_like(target, dtype=torch.bool) if valid is None else valid
    return count_scores(scores[None], target[None] == 1, valid[None], bins)


def exact_ap(scores, target):
    """With all scores pressed into [0, 1] in their order, or torchmetrics takes them for logits."""
    return binary_average_precision(scores.double().unique(return_inverse=True)[1] / len(scores), target).item()


def exact_area(scores, target):
    """The share of pairs in order, where ties are half a pair."""
    return reference.auc_roc(scores.tolist(), target.tolist())


def area_without_ties(scores, target):
    return (scores[target == 1, None] > scores[target == 0]).double().mean().item()


each_measure = pytest.mark.parametrize('measure', [average_precisions, areas_under_roc])


@each_scale
@pytest.mark.parametrize('bins', [1, 2, 7, 256, BINS])
def test_is_that_of_the_scores_rounded_to_their_cells(scale, bins):
    for seed in range(5):
        scores, target = items(scale, seed=seed)
        value = average_precisions(counts_of(scores, target, bins)).item()
        assert value == pytest.approx(exact_ap(score_bins(scores, bins), target), rel=1e-6)
        scores, target = items(scale, 150, seed)
        value = areas_under_roc(counts_of(scores, target, bins)).item()
        assert value == pytest.approx(exact_area(score_bins(scores, bins), target), rel=1e-14)


@each_scale
@pytest.mark.parametrize(('measure', 'exact'), [(average_precisions, exact_ap), (areas_under_roc, area_without_ties)])
def test_many_cells_are_as_good_as_the_scores(scale, measure, exact):
    for seed in range(5):
        scores, target = items(scale, seed=seed)
        assert measure(counts_of(scores, target)).item() == pytest.approx(exact(scores, target), abs=5e-4)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_cells_are_in_the_order_of_the_scores(dtype):
    """Of all sizes down to the smallest numbers, and of those that differ by one bit."""
    largest = math.log10(torch.finfo(dtype).max)
    sizes = torch.logspace(-min(largest, 30), min(largest, 30), 4001, dtype=torch.float64).to(dtype)
    near = [centre + torch.linspace(-1e-3, 1e-3, 4001, dtype=torch.float64).to(dtype) for centre in (0, 0.5, 1, 20)]
    scores = torch.cat([-sizes, torch.zeros(1, dtype=dtype), sizes, *near])
    scores = scores[scores.isfinite()].unique()  # which sorts
    for bins in (1, 10, BINS, 2**24 + 1):
        place = score_bins(scores, bins)
        assert place.dtype == torch.int64
        assert (place.diff() >= 0).all()
        assert place[0] >= 0
        assert place[-1] < bins


def test_all_cells_are_used_and_halves_mirror_each_other():
    near = torch.logspace(-10, -1, 100_001, dtype=torch.float64)
    middle = torch.cat([torch.logspace(-9, 8.99, 100_001, dtype=torch.float64), 0.5 - near, 0.5 + near])
    above, below = (score_bins(0.5 + sign * middle, 100) for sign in (1, -1))
    assert torch.cat([above, below]).unique().tolist() == list(range(100))
    # Where the difference to 0 or 1 is lost in rounding, a score on a border may be on either side of it.
    assert ((above + below - 99).abs() <= 1).all()
    assert (above + below == 99).double().mean() > 0.999


@pytest.mark.parametrize(
    ('score', 'width'), [(0.0, 2e-10), (1.0, 2e-10), (0.5, 6e-4), (10.0, 1e-2), (100.0, 0.1), (-1000.0, 1.0)]
)
def test_cells_are_as_wide_as_is_said(score, width):
    apart, together = (
        score_bins(torch.tensor([score, score + k * width], dtype=torch.float64), BINS) for k in (1.1, 0.05)
    )
    assert apart[1] > apart[0]
    assert together[1] - together[0] <= 1


def test_beyond_the_largest_they_share_a_cell_and_without_an_order_they_have_one_of_their_own():
    huge = torch.tensor([LARGEST, 1e12, 1e30, 3e38, 1e300], dtype=torch.float64)
    assert score_bins(huge, 100).tolist() == [99] * 5
    assert score_bins(-huge, 100).tolist() == [0] * 5
    assert score_bins(huge[:4].float(), 100).tolist() == [99] * 4
    assert score_bins(torch.tensor([65504.0]).half(), BINS) == score_bins(torch.tensor([65504.0]), BINS)
    assert score_bins(torch.tensor([math.nan, math.inf, -math.inf, 0.5]), 10).tolist() == [10, 10, 0, 5]


@pytest.mark.parametrize('poison', [math.nan, math.inf])
@pytest.mark.parametrize('label', [0, 1])
@each_measure
def test_scores_without_an_order_are_not_hidden(measure, label, poison):
    scores, target = items()
    at = int((target == label).nonzero()[0])
    scores[at] = poison
    assert measure(counts_of(scores, target)).isnan()
    kept = torch.arange(len(scores)) != at
    value = measure(counts_of(scores, target, valid=kept))
    assert torch.equal(value, measure(counts_of(scores[kept], target[kept])))


@each_measure
def test_masked_items_are_the_last(measure):
    scores, target = items()
    masked = scores.clone()
    masked[::3] = -math.inf
    expected = measure(counts_of(torch.where(masked < -1e9, -1e8, masked), target))
    torch.testing.assert_close(measure(counts_of(masked, target)), expected, rtol=1e-14, atol=0)


@each_measure
def test_each_problem_has_its_own_counts_and_those_of_parts_add_up(measure):
    problems = [items(seed=seed) for seed in range(3)]
    scores, target = (torch.stack(parts) for parts in zip(*problems, strict=True))
    target[1] = 0
    valid = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    counts, *parts = (
        count_scores(scores[:, part], target[:, part] == 1, valid[:, part], 50)
        for part in (slice(None), slice(700), slice(700, None))
    )
    assert torch.equal(sum(parts), counts)
    assert counts.shape == (3, 2, 51)
    assert torch.equal(counts.sum((1, 2)), valid.sum(1))
    assert torch.equal(counts[:, 1].sum(1), (valid & (target == 1)).sum(1))
    values = measure(counts)
    assert values.dtype == torch.float64
    alone = [measure(counts_of(*problem[:2], 50, problem[2])) for problem in zip(scores, target, valid, strict=True)]
    assert torch.equal(values, torch.cat(alone))


def test_limits_of_average_precision_and_of_the_area():
    scores, target = torch.tensor([3.0, 1.0, 1.0, -2.0, 0.5]), torch.tensor([1, 1, 0, 0, 1])
    assert areas_under_roc(counts_of(scores, target)).item() == pytest.approx((2 + 1.5 + 1) / 6)
    scores, target = torch.arange(5).double(), torch.tensor([0, 0, 0, 1, 1])
    cases = (scores, target), (-scores, target), (0 * scores, target), (scores, 0 * target), (scores, 0 * target + 1)
    counts = [counts_of(*case) for case in (*cases, (scores[:0], target[:0]))]
    assert [areas_under_roc(each).item() for each in counts] == [1, 0, 0.5, 0, 0, 0]
    precisions = [average_precisions(each).item() for each in counts]
    assert precisions == pytest.approx([1, (1 / 4 + 2 / 5) / 2, 2 / 5, 0, 1, 0])
    assert average_precisions(counts_of(scores, target, valid=torch.zeros_like(target, dtype=torch.bool))) == 0
    scores, target = items(n=300)
    area, other = (areas_under_roc(counts_of(scores, t)).item() for t in (target, 1 - target))
    assert area + other == pytest.approx(1, rel=1e-14)


def test_counts_beyond_those_of_floats_and_of_32_bits_are_exact():
    counts = torch.tensor([[[2**40, 2**40, 1, 0], [2**40 + 1, 2**33, 1, 0]]])
    positives, ranked = 1 / 2 + 2**33 * (2**33 + 1) / (2**33 + 1 + 2**40 + 1), 2**40 + 2**33 + 2
    positives += (2**40 + 1) * ranked / (ranked + 2**41 + 1)
    assert average_precisions(counts).item() == pytest.approx(positives / ranked, rel=1e-14)
    counts = torch.tensor([[[2**40, 2**41, 1, 0], [1, 2**40, 2**33, 0]]])
    pairs = 2**39 + 2**40 * (2**40 + 2**40) + 2**33 * (2**40 + 2**41) + 2**32
    expected = pairs / ((2**40 + 2**33 + 1) * (2**40 + 2**41 + 1))
    assert areas_under_roc(counts).item() == pytest.approx(expected, rel=1e-14)
