import numpy as np
import pytest
import torch
from reference import lovasz as reference
from torchmetrics.functional.classification import multiclass_jaccard_index

from mmseg_nondecomp.functional.jaccard_counts import jaccard_counts, mean_jaccard


def labels(seed=0, n_classes=4, none=0):
    """Decided and true classes [3, 50]; some of class n_classes, which is none, and the last class in no image."""
    rng = np.random.default_rng(seed)
    decided, target = rng.integers(0, n_classes - 1 + none, (2, 3, 50))
    return tuple(torch.tensor(np.where(part == n_classes - 1, n_classes, part)) for part in (decided, target))


@pytest.mark.parametrize('none', [0, 1])
def test_counts_are_those_of_a_loop(none):
    decided, target = labels(none=none)
    mass = torch.tensor(np.random.default_rng(1).integers(0, 3, (3, 50)) / 2)
    expected = torch.zeros(3, 2, 4, dtype=torch.float64)
    for n in range(3):
        for d, t, w in zip(decided[n].tolist(), target[n].tolist(), mass[n].tolist(), strict=True):
            for c in range(4):
                expected[n, 0, c] += w * (d == c and t == c)
                expected[n, 1, c] += w * (d == c or t == c)
    found = jaccard_counts(decided, target, mass, 4)
    assert found.dtype == torch.float64
    assert torch.equal(found, expected)


def test_the_index_is_that_of_the_oracle_and_of_torchmetrics():
    for seed in range(5):
        decided, target = labels(seed)
        ignored = torch.rand(3, 50, generator=torch.Generator().manual_seed(seed)) < 0.2
        found = mean_jaccard(jaccard_counts(decided, target, (~ignored).int(), 4).sum(0)).item()
        target = target.masked_fill(ignored, 255)
        assert found == pytest.approx(float(reference.dataset_miou(decided, target, 4, 255)), rel=1e-12)
        assert found == pytest.approx(multiclass_jaccard_index(decided, target, 4, ignore_index=255).item(), rel=1e-6)


def test_the_index_of_each_image():
    decided, target = labels()
    found = mean_jaccard(jaccard_counts(decided, target, torch.ones(3, 50), 4))
    np.testing.assert_allclose(found, reference.mious_by_image(decided, target, 4).astype(float), rtol=1e-12)


def test_counts_of_images_add_up_to_those_of_all():
    decided, target = labels()
    together = jaccard_counts(decided.view(1, -1), target.view(1, -1), torch.ones(1, 150), 4)
    assert torch.equal(jaccard_counts(decided, target, torch.ones(3, 50), 4).sum(0), together[0])


def test_half_a_million_pixels_are_counted_exactly_in_half_precision():
    same = torch.zeros(1, 500_000, dtype=torch.long)
    assert jaccard_counts(same, same, torch.ones(1, 500_000, dtype=torch.float16), 1).tolist() == [[[5e5], [5e5]]]


def test_a_class_is_averaged_if_it_is_decided_or_true():
    counts = torch.tensor([[3.0, 0.0, 0.0], [4.0, 0.0, 2.0]]).double()
    assert mean_jaccard(counts).item() == 3 / 8


def test_nan_if_there_is_no_class_at_all():
    assert mean_jaccard(torch.zeros(2, 3).double()).isnan()
    assert (
        mean_jaccard(jaccard_counts(torch.zeros(2, 0).long(), torch.zeros(2, 0).long(), torch.zeros(2, 0), 3))
        .isnan()
        .all()
    )
