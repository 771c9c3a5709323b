import numpy as np
import pytest
import torch
from reference import smooth_topk as reference
from topk_scenes import FAMILIES, INF, each_dtype, each_kind, normal, one_hot, scene, value_and_gradient
from torch.autograd import gradcheck

from mmseg_nondecomp.functional import hard_topk_loss


@pytest.mark.parametrize('family', FAMILIES)
@each_dtype
def test_equals_the_enumeration(family, dtype):
    rng, eps = np.random.default_rng(0), 4 * torch.finfo(dtype).eps
    for n, k in ((c, k) for c in (2, 3, 5, 12) for k in range(1, c)):
        row = torch.tensor(FAMILIES[family](rng, n)).to(dtype)
        labels = torch.arange(n)[row > -INF]
        scores, scale = row.expand(len(labels), n), max(1, row[row > -INF].abs().max().item())
        for margin in (0, 1):
            expected = [reference.hard_topk_loss(row, int(y), k, margin) for y in labels]
            values, gradients = (np.array(x, float) for x in zip(*expected, strict=True))
            for target in (labels, one_hot(labels, n)):
                value, gradient = value_and_gradient(
                    lambda s, t=target, k=k, m=margin: hard_topk_loss(s, t, k, m, reduction='none'), scores
                )
                np.testing.assert_allclose(value.double(), values, rtol=eps, atol=eps * scale)
                if family in ('normal', 'huge') and margin > 0:  # elsewhere at a kink, or beside one
                    np.testing.assert_allclose(gradient.double(), gradients, rtol=eps, atol=eps)


@pytest.mark.parametrize('k', [1, 5, 999])
def test_many_classes_equal_the_definition_by_ranks(k):
    scores, target = scene(8, 1000)
    expected = [float(reference.hard_topk_loss_of_ranks(*item, k)) for item in zip(scores, target, strict=True)]
    for labels in (target, one_hot(target, 1000)):
        np.testing.assert_allclose(
            hard_topk_loss(scores, labels, k, reduction='none'), expected, rtol=1e-14, atol=1e-15
        )


@pytest.mark.parametrize('margin', [0.0, 1.0])
def test_the_multi_margin_loss_of_the_strongest_rival_with_k_1(margin):
    """Crammer and Singer's loss."""
    scores, target = scene(50, 6)
    own = one_hot(target, 6).bool()
    rival = scores.masked_fill(own, -INF).amax(1)
    expected = (margin + rival - scores[own]).clamp(min=0)
    torch.testing.assert_close(
        hard_topk_loss(scores, target, 1, margin, reduction='none'), expected, rtol=1e-14, atol=0
    )


def test_zero_exactly_where_the_label_is_in_the_top_k_by_the_margin():
    scores, target = scene(500, 8)
    scores = scores / 3
    for k in (1, 3, 7):
        losses = hard_topk_loss(scores, target, k, 0, reduction='none')
        in_top_k = (scores.topk(k).indices == target[:, None]).any(1)
        assert 0 < in_top_k.sum() < 500
        assert ((losses == 0) == in_top_k).all()
        assert (hard_topk_loss(scores, target, k, 1, reduction='none') >= (~in_top_k).double()).all()


@pytest.mark.parametrize('shape', [(3, 2), (3, 5), (2, 4, 2, 2)], ids=str)
@each_kind
def test_gradcheck(shape, soft):
    scores, target = scene(*shape, soft=soft)
    scores.requires_grad_()
    weight = torch.rand(target.shape[:1] + shape[2:], generator=torch.Generator().manual_seed(4)).double()
    for k in {1, shape[1] - 1}:
        for reduction in ('none', 'mean'):
            assert gradcheck(
                lambda s, k=k, r=reduction: hard_topk_loss(s, target, k, weight=weight, reduction=r), scores
            )


@pytest.mark.parametrize('margin', [0.01, 7.0])
def test_a_margin_is_a_factor_of_the_penalty_of_the_weights(margin):
    """Proposition 8: a classifier W with the margin α and the penalty λ / 2 |W|² is one for W / α, 1 and α λ."""
    inputs, weights = normal(50, 8), normal(8, 12)
    target, penalty = torch.arange(50) % 12, 0.3

    def objective(weights, penalty, margin):
        return penalty / 2 * weights.square().sum() + hard_topk_loss(inputs @ weights, target, 3, margin)

    for scale in (0.01, 1, 100):
        actual = objective(scale * weights, penalty, margin)
        expected = margin * objective(scale * weights / margin, margin * penalty, 1)
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
