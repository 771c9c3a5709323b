import math

import numpy as np
import pytest
import torch
from reference import smooth_topk as reference
from topk_scenes import FAMILIES, each_dtype, normal
from torch.autograd import gradcheck, gradgradcheck

from mmseg_nondecomp.functional import log_elementary_symmetric, topk_marginals

pytestmark = pytest.mark.usefixtures('each_arithmetic')

FAMILIES = FAMILIES | {'nothing': lambda rng, n: np.full(n, -np.inf)}


@pytest.mark.parametrize('family', FAMILIES)
@each_dtype
def test_equals_the_enumeration(family, dtype):
    rng, rounding = np.random.default_rng(0), 1e-12 if dtype == torch.float64 else 1e-5
    for n in (2, 3, 5, 8, 12):
        scores = torch.tensor(FAMILIES[family](rng, n)).to(dtype)
        for k in range(1, n):
            expected = reference.topk_marginals(scores, k).astype(float)
            actual = topk_marginals(scores, k, normalize=False)
            assert actual.dtype == dtype
            np.testing.assert_allclose(actual.double(), expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize('tau', [1.0, 0.1, 1e-2, 1e-3, 1e-6])
@each_dtype
def test_add_up_to_k(tau, dtype):
    for k in (1, 5):
        scores = normal(4, 1000, dtype=dtype) / (k * tau)
        total = topk_marginals(scores, k, normalize=False).double().sum(-1)
        rounding = 1e-12 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(total, torch.full_like(total, k), rtol=rounding, atol=0)


@each_dtype
def test_the_softmax_with_k_1(dtype):
    for scale in (0, 1, 100):
        scores = scale * normal(5, 100, dtype=dtype)
        rtol, atol = (1e-12, 0) if dtype == torch.float64 else (1e-4, 1e-7)
        torch.testing.assert_close(topk_marginals(scores, 1), scores.softmax(-1), rtol=rtol, atol=atol)


@pytest.mark.parametrize('k', [1, 2, 5, 19])
def test_increase_with_the_score(k):
    for scale in (1e-3, 1, 30):
        scores = (scale * normal(20, 20)).sort(-1).values
        marginals = topk_marginals(scores, k, normalize=False)
        assert (marginals.diff(dim=-1) >= -1e-14).all()
        assert (marginals <= 1 + 1e-14).all()


@pytest.mark.parametrize('k', [1, 3, 7])
def test_are_what_leaving_each_label_out_gives(k):
    scores = normal(4, 300)
    rest = torch.stack([torch.cat([scores[:, :i], scores[:, i + 1 :]], -1) for i in range(300)], 1)
    others = log_elementary_symmetric(rest, k)
    expected = torch.sigmoid(scores + others[..., k - 1] - others[..., k])
    torch.testing.assert_close(topk_marginals(scores, k, normalize=False), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize('k', [1, 4])
def test_permutation_equivariant_and_shift_invariant_and_normalized_they_add_up_to_1(k):
    scores, order = normal(4, 37), torch.randperm(37, generator=torch.Generator().manual_seed(1))
    marginals = topk_marginals(scores, k)
    assert marginals.equal(topk_marginals(scores, k, normalize=False) / k)
    torch.testing.assert_close(topk_marginals(scores[:, order], k), marginals[:, order], rtol=1e-13, atol=0)
    torch.testing.assert_close(topk_marginals(scores + 7.5, k), marginals, rtol=1e-12, atol=0)


def test_exact_offsets_and_masked_labels_change_nothing_and_nan_is_not_hidden():
    scores = (64 * normal(4, 1000, dtype=torch.float32)).round() / 64
    expected = topk_marginals(scores.double(), 5).float()
    for offset in (0, 8192, -8192):
        torch.testing.assert_close(topk_marginals(scores + offset, 5), expected, rtol=1e-5, atol=0)
    scores = normal(3, 6)
    masked = torch.cat([scores, torch.full((3, 4), -math.inf).double()], -1)
    actual = topk_marginals(masked, 3)
    torch.testing.assert_close(actual[:, :6], topk_marginals(scores, 3), rtol=1e-13, atol=0)
    assert actual[:, 6:].eq(0).all()
    scores = torch.tensor([3.0, -math.inf, -5.0, -math.inf, 0.0])
    assert topk_marginals(scores, 3, normalize=False).tolist() == pytest.approx([1, 0, 1, 0, 1], abs=1e-6)
    scores[2] = math.nan
    assert topk_marginals(scores, 2).isnan().any()


@pytest.mark.parametrize('k', [1, 2, 4])
@pytest.mark.parametrize('normalize', [False, True])
def test_gradcheck_and_gradgradcheck(k, normalize):
    for scores in (normal(2, 5), torch.zeros(1, 5).double()):
        scores.requires_grad_()
        assert gradcheck(lambda x: topk_marginals(x, k, normalize), scores)
        assert gradgradcheck(lambda x: topk_marginals(x, k, normalize), scores, fast_mode=True)


def test_the_covariance_of_two_labels_is_their_derivative():
    """Symmetric, with p (1 - p) on the diagonal, and not positive beside it (labels compete for a place)."""
    scores = normal(7)
    for k in (1, 3, 6):
        covariance = torch.autograd.functional.jacobian(lambda s, k=k: topk_marginals(s, k, normalize=False), scores)
        p = topk_marginals(scores, k, normalize=False)
        torch.testing.assert_close(covariance, covariance.T, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(covariance.diagonal(), p * (1 - p), rtol=1e-10, atol=1e-14)
        assert (covariance - covariance.diagonal().diag() <= 1e-14).all()


def test_a_graph_only_where_it_is_asked_for():
    scores = normal(2, 5)
    expected = topk_marginals(scores, 2)
    assert not expected.requires_grad
    assert not scores.requires_grad
    leaf = scores.clone().requires_grad_()
    assert topk_marginals(leaf, 2).requires_grad
    with torch.no_grad():
        assert not topk_marginals(leaf, 2).requires_grad
    topk_marginals((2 * leaf).exp(), 2)[0, 0].backward()
    assert leaf.grad.isfinite().all()
    with torch.inference_mode():
        made_inside = scores.clone()
        torch.testing.assert_close(topk_marginals(scores, 2), expected)
        torch.testing.assert_close(topk_marginals(made_inside, 2), expected)
    torch.testing.assert_close(topk_marginals(made_inside, 2), expected)


@pytest.mark.parametrize('shape', [(0, 5), (5,), (2, 3, 4, 5), (2, 0, 5)], ids=str)
def test_any_shape_and_any_layout(shape):
    scores = normal(*shape)
    rows = [topk_marginals(row, 2) for row in scores.reshape(-1, 5)]
    expected = torch.stack(rows).reshape(shape) if rows else scores
    for layout in (
        scores,
        torch.stack([scores, scores], -1)[..., 0],
        scores.movedim(0, -1).contiguous().movedim(-1, 0),
    ):
        torch.testing.assert_close(topk_marginals(layout, 2), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: topk_marginals(torch.ones(3), 3), ValueError, '`k`.*3'),
        (lambda: topk_marginals(torch.arange(3), 2), TypeError, r'`\w+`.*int64'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_to_double(dtype):
    scores = (3 * normal(4, 300)).to(dtype)
    expected = topk_marginals(scores.double(), 5)
    torch.testing.assert_close(topk_marginals(scores, 5).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-6)
