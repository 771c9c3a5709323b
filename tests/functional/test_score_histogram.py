"""The average precision and the area under the ROC curve of a histogram are those of the scores in their cells."""

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
    score_cells,
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


def from_histogram(scores, target, bins=BINS, valid=None):
    valid = torch.ones_like(target, dtype=torch.bool) if valid is None else valid
    counts = count_scores(scores[None], target[None] == 1, valid[None], bins)
    return average_precisions(counts).item()


def exact(scores, target):
    """With all scores pressed into [0, 1] in their order, or torchmetrics takes them for logits."""
    return binary_average_precision(scores.double().unique(return_inverse=True)[1] / len(scores), target).item()


@each_scale
@pytest.mark.parametrize('bins', [1, 2, 7, 256, BINS])
def test_is_that_of_the_scores_rounded_to_their_cells(scale, bins):
    for seed in range(5):
        scores, target = items(scale, seed=seed)
        assert from_histogram(scores, target, bins) == pytest.approx(exact(score_cells(scores, bins), target), rel=1e-6)


@each_scale
def test_many_cells_are_as_good_as_the_scores(scale):
    for seed in range(5):
        scores, target = items(scale, seed=seed)
        assert from_histogram(scores, target) == pytest.approx(exact(scores, target), abs=5e-4)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_cells_are_in_the_order_of_the_scores(dtype):
    """Of all sizes down to the smallest numbers, and of those that differ by one bit."""
    largest = math.log10(torch.finfo(dtype).max)
    sizes = torch.logspace(-min(largest, 30), min(largest, 30), 4001, dtype=torch.float64).to(dtype)
    near = [centre + torch.linspace(-1e-3, 1e-3, 4001, dtype=torch.float64).to(dtype) for centre in (0, 0.5, 1, 20)]
    scores = torch.cat([-sizes, torch.zeros(1, dtype=dtype), sizes, *near])
    scores = scores[scores.isfinite()].unique()  # which sorts
    for bins in (1, 10, BINS, 2**24 + 1):
        cells = score_cells(scores, bins)
        assert cells.dtype == torch.int64
        assert (cells.diff() >= 0).all()
        assert cells[0] >= 0
        assert cells[-1] < bins


def test_all_cells_are_used_and_halves_mirror_each_other():
    near = torch.logspace(-10, -1, 100_001, dtype=torch.float64)
    middle = torch.cat([torch.logspace(-9, 8.99, 100_001, dtype=torch.float64), 0.5 - near, 0.5 + near])
    above, below = (score_cells(0.5 + sign * middle, 100) for sign in (1, -1))
    assert torch.cat([above, below]).unique().tolist() == list(range(100))
    # Where the difference to 0 or 1 is lost in rounding, a score on a border may be on either side of it.
    assert ((above + below - 99).abs() <= 1).all()
    assert (above + below == 99).double().mean() > 0.999


@pytest.mark.parametrize(
    ('score', 'width'), [(0.0, 2e-10), (1.0, 2e-10), (0.5, 6e-4), (10.0, 1e-2), (100.0, 0.1), (-1000.0, 1.0)]
)
def test_cells_are_as_wide_as_is_said(score, width):
    apart, together = (
        score_cells(torch.tensor([score, score + k * width], dtype=torch.float64), BINS) for k in (1.1, 0.05)
    )
    assert apart[1] > apart[0]
    assert together[1] - together[0] <= 1


def test_beyond_the_largest_they_share_a_cell():
    huge = torch.tensor([LARGEST, 1e12, 1e30, 3e38, 1e300], dtype=torch.float64)
    assert score_cells(huge, 100).tolist() == [99] * 5
    assert score_cells(-huge, 100).tolist() == [0] * 5
    assert score_cells(huge[:4].float(), 100).tolist() == [99] * 4
    assert score_cells(torch.tensor([65504.0]).half(), BINS) == score_cells(torch.tensor([65504.0]), BINS)


def test_scores_without_an_order_have_a_cell_of_their_own():
    scores = torch.tensor([math.nan, math.inf, -math.inf, 0.5])
    assert score_cells(scores, 10).tolist() == [10, 10, 0, 5]


@pytest.mark.parametrize('poison', [math.nan, math.inf])
@pytest.mark.parametrize('label', [0, 1])
def test_scores_without_an_order_are_not_hidden(poison, label):
    scores, target = items()
    at = int((target == label).nonzero()[0])
    scores[at] = poison
    assert math.isnan(from_histogram(scores, target))
    kept = torch.arange(len(scores)) != at
    found = from_histogram(scores, target, valid=kept)
    assert found == pytest.approx(from_histogram(scores[kept], target[kept]), rel=1e-14)


def test_masked_items_are_the_last():
    scores, target = items()
    masked = scores.clone()
    masked[::3] = -math.inf
    expected = from_histogram(torch.where(masked < -1e9, -1e8, masked), target)
    assert from_histogram(masked, target) == pytest.approx(expected, rel=1e-14)


def test_all_equal_is_the_share_of_positives():
    scores, target = items()
    assert from_histogram(torch.zeros_like(scores), target) == pytest.approx(target.double().mean().item())


def test_nothing_to_find_is_0_and_nothing_to_confuse_it_with_is_1():
    scores, target = items()
    assert from_histogram(scores, torch.zeros_like(target)) == 0
    assert from_histogram(scores, torch.ones_like(target)) == 1
    assert from_histogram(scores[:0], target[:0]) == 0
    assert from_histogram(scores, target, valid=torch.zeros_like(target, dtype=torch.bool)) == 0


def test_each_query_has_its_own_counts():
    queries = [items(seed=seed) for seed in range(3)]
    scores, target = (torch.stack(parts) for parts in zip(*queries, strict=True))
    valid = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    counts = count_scores(scores, target == 1, valid, 50)
    assert counts.shape == (3, 2, 51)
    assert torch.equal(counts.sum((1, 2)), valid.sum(1))
    assert torch.equal(counts[:, 1].sum(1), (valid & (target == 1)).sum(1))
    for k, found in enumerate(average_precisions(counts)):
        assert found == from_histogram(scores[k], target[k], 50, valid[k])
        assert found.dtype == torch.float64


def test_counts_of_parts_add_up():
    scores, target = items()
    valid = torch.ones(1, len(scores), dtype=torch.bool)
    whole, *parts = (
        count_scores(scores[None, part], target[None, part] == 1, valid[:, part], BINS)
        for part in (slice(None), slice(700), slice(700, None))
    )
    assert torch.equal(sum(parts), whole)


def test_counts_beyond_those_of_floats_and_of_32_bits_are_exact():
    counts = torch.zeros(1, 2, 4, dtype=torch.long)
    counts[0, 0, :3] = torch.tensor([2**40, 2**40, 1])
    counts[0, 1, :3] = torch.tensor([2**40 + 1, 2**33, 1])
    positives, ranked = 1 / 2 + 2**33 * (2**33 + 1) / (2**33 + 1 + 2**40 + 1), 2**40 + 2**33 + 2
    positives += (2**40 + 1) * ranked / (ranked + 2**41 + 1)
    assert average_precisions(counts).item() == pytest.approx(positives / ranked, rel=1e-14)


class TestAreaUnderRoc:
    """Against the share of pairs in order, where ties are half a pair."""

    @staticmethod
    def counts(scores, target, bins=BINS, valid=None):
        valid = torch.ones_like(target, dtype=torch.bool) if valid is None else valid
        return count_scores(scores[None], target[None] == 1, valid[None], bins)

    @each_scale
    @pytest.mark.parametrize('bins', [1, 2, 7, 256, BINS])
    def test_is_that_of_the_scores_rounded_to_their_cells(self, scale, bins):
        for seed in range(3):
            scores, target = items(scale, 150, seed)
            expected = reference.auc_roc(score_cells(scores, bins).tolist(), target.tolist())
            assert areas_under_roc(self.counts(scores, target, bins)).item() == pytest.approx(expected, rel=1e-14)

    @each_scale
    def test_many_cells_are_as_good_as_the_scores(self, scale):
        scores, target = items(scale, 2000)
        expected = (scores[target == 1, None] > scores[target == 0]).double().mean().item()
        assert areas_under_roc(self.counts(scores, target)).item() == pytest.approx(expected, abs=5e-4)

    def test_of_few_scores(self):
        scores, target = torch.tensor([3.0, 1.0, 1.0, -2.0, 0.5]), torch.tensor([1, 1, 0, 0, 1])
        assert areas_under_roc(self.counts(scores, target)).item() == pytest.approx((2 + 1.5 + 1) / 6)

    def test_in_order_in_reverse_and_all_equal(self):
        target = torch.tensor([0, 0, 0, 1, 1])
        scores = torch.arange(5).double()
        assert areas_under_roc(self.counts(scores, target)).item() == 1
        assert areas_under_roc(self.counts(-scores, target)).item() == 0
        assert areas_under_roc(self.counts(0 * scores, target)).item() == 0.5

    def test_the_other_order_has_the_rest(self):
        scores, target = items(n=300)
        area, other = (areas_under_roc(self.counts(scores, t)).item() for t in (target, 1 - target))
        assert area + other == pytest.approx(1, rel=1e-14)

    @pytest.mark.parametrize('label', [0, 1])
    def test_without_pairs_it_is_0(self, label):
        scores, target = items(n=20)
        assert areas_under_roc(self.counts(scores, torch.full_like(target, label))).item() == 0
        assert areas_under_roc(self.counts(scores[:0], target[:0])).item() == 0

    @pytest.mark.parametrize('poison', [math.nan, math.inf])
    @pytest.mark.parametrize('label', [0, 1])
    def test_scores_without_an_order_are_not_hidden(self, poison, label):
        scores, target = items(n=200)
        at = int((target == label).nonzero()[0])
        scores[at] = poison
        assert areas_under_roc(self.counts(scores, target)).isnan()
        kept = torch.arange(len(scores)) != at
        found = areas_under_roc(self.counts(scores, target, valid=kept))
        assert torch.equal(found, areas_under_roc(self.counts(scores[kept], target[kept])))

    def test_each_query_has_its_own(self):
        queries = [items(n=100, seed=seed) for seed in range(3)]
        scores, target = (torch.stack(parts) for parts in zip(*queries, strict=True))
        target[1] = 0
        found = areas_under_roc(count_scores(scores, target == 1, torch.ones_like(target).bool(), 50))
        assert found.dtype == torch.float64
        expected = [areas_under_roc(self.counts(*query, 50)) for query in zip(scores, target, strict=True)]
        assert torch.equal(found, torch.cat(expected))

    def test_counts_beyond_those_of_32_bits(self):
        counts = torch.zeros(1, 2, 4, dtype=torch.long)
        counts[0, 0, :3] = torch.tensor([2**40, 2**41, 1])
        counts[0, 1, :3] = torch.tensor([1, 2**40, 2**33])
        pairs = 2**39 + 2**40 * (2**40 + 2**40) + 2**33 * (2**40 + 2**41) + 2**32
        expected = pairs / ((2**40 + 2**33 + 1) * (2**40 + 2**41 + 1))
        assert areas_under_roc(counts).item() == pytest.approx(expected, rel=1e-14)
