import math

import pytest
import torch

from mmseg_nondecomp.functional.label_losses import expected_loss, label_loss

SCORES = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)).double()
TARGET = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
SHARES = SCORES.softmax(1)
WEIGHT = torch.rand(4, 5, generator=torch.Generator().manual_seed(2)).double() + 0.1


def own_score(items):
    """The score of the label, or the mean score of the labels: a loss to be reduced."""
    if items.target.is_floating_point():
        return expected_loss(items.scores, items.target)
    return items.scores.gather(-1, items.target.unsqueeze(-1)).squeeze(-1)


def reduced(scores, target, weight=None, ignore_index=None, reduction='none'):
    return label_loss(own_score, scores, target, weight, ignore_index, reduction)


def test_classes_are_last_for_the_loss():
    seen = []
    label_loss(lambda items: seen.append(items) or items.scores.sum(-1), SCORES, SHARES, None, None, 'sum')
    label_loss(lambda items: seen.append(items) or items.scores.sum(-1), SCORES, TARGET.int(), None, None, 'sum')
    assert seen[0].scores.equal(SCORES.movedim(1, -1))
    assert seen[0].target.equal(SHARES.movedim(1, -1))
    assert seen[1].target.equal(TARGET)


def test_each_item_has_its_loss():
    assert reduced(SCORES, TARGET).equal(SCORES.gather(1, TARGET.unsqueeze(1)).squeeze(1))
    torch.testing.assert_close(reduced(SCORES, SHARES), (SCORES * SHARES).sum(1), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize('target', [TARGET, SHARES], ids=['labels', 'shares'])
def test_reductions(target):
    losses = reduced(SCORES, target)
    assert reduced(SCORES, target, reduction='sum').item() == pytest.approx(losses.sum().item(), rel=1e-14)
    assert reduced(SCORES, target, reduction='mean').item() == pytest.approx(losses.mean().item(), rel=1e-14)
    torch.testing.assert_close(reduced(SCORES, target, WEIGHT), losses * WEIGHT, rtol=1e-14, atol=0)
    mean = reduced(SCORES, target, WEIGHT, reduction='mean').item()
    assert mean == pytest.approx((losses * WEIGHT).mean().item(), rel=1e-13)


@pytest.mark.parametrize('target', [TARGET, SHARES], ids=['labels', 'shares'])
def test_an_item_without_weight_is_not_counted(target):
    weight = WEIGHT * (torch.arange(5) > 1)
    kept = reduced(SCORES[..., 2:], target[..., 2:], WEIGHT[:, 2:], reduction='mean').item()
    assert reduced(SCORES, target, weight, reduction='mean').item() == pytest.approx(kept, rel=1e-14)


@pytest.mark.parametrize(('label', 'ignore_index'), [(255, None), (255, 255), (-1, -1), (1, 1), (7, 7)])
def test_an_ignored_label_is_not_counted(label, ignore_index):
    target = (TARGET % 2) * 2  # 0 or 2
    target[:, :2] = label
    kept = reduced(SCORES[..., 2:], target[..., 2:], reduction='mean').item()
    poisoned = SCORES.clone()
    poisoned[..., :2] = math.nan
    poisoned.requires_grad_()
    loss = reduced(poisoned, target, ignore_index=ignore_index, reduction='mean')
    loss.backward()
    assert loss.item() == pytest.approx(kept, rel=1e-14)
    assert poisoned.grad[..., :2].eq(0).all()
    assert poisoned.grad.isfinite().all()


def test_the_weight_of_what_is_ignored_is_not_read():
    target, weight = TARGET.clone(), WEIGHT.clone()
    target[:, :2], weight[:, :2] = 255, math.nan
    expected = reduced(SCORES[..., 2:], target[:, 2:], WEIGHT[:, 2:])
    found = reduced(SCORES, target, weight)
    assert found[:, :2].eq(0).all()
    assert found[:, 2:].equal(expected)


def test_255_is_a_class_where_there_are_so_many():
    scores = torch.zeros(2, 300)
    scores[:, 255] = 1
    assert reduced(scores, torch.tensor([255, 0])).tolist() == [1, 0]
    assert reduced(scores, torch.tensor([255, 0]), ignore_index=255).tolist() == [0, 0]


def test_a_loss_that_is_nan_for_what_does_not_count_leaves_no_trace():
    scores = SCORES.clone().requires_grad_()
    weight = (torch.arange(5) > 1).expand(4, 5).double()
    loss = label_loss(lambda items: items.scores.sum(-1).log(), scores.abs(), TARGET, weight, None, 'sum')
    loss.backward()
    assert loss.isfinite()


@pytest.mark.parametrize('reduction', ['mean', 'sum'])
def test_nothing_that_counts_is_an_attached_zero(reduction):
    scores = SCORES.clone().requires_grad_()
    for loss in (
        reduced(scores, TARGET, torch.zeros(4, 5), reduction=reduction),
        reduced(scores, torch.full((4, 5), 255), reduction=reduction),
        reduced(scores[:0], TARGET[:0], reduction=reduction),
        reduced(scores[..., :0], SHARES[..., :0], reduction=reduction),
    ):
        assert loss.item() == 0
        assert torch.autograd.grad(loss, scores)[0].eq(0).all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_becomes_float32(dtype):
    scores = SCORES.to(dtype)
    for target in (TARGET, SHARES, SHARES.to(dtype)):
        assert reduced(scores, target).dtype == torch.float32


def test_a_class_without_a_share_does_not_matter():
    losses = torch.tensor([1.0, math.inf, 3.0], requires_grad=True)
    value = expected_loss(losses, torch.tensor([0.25, 0.0, 0.75]))
    value.backward()
    assert value.item() == 2.5
    assert losses.grad.tolist() == [0.25, 0, 0.75]


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: reduced(SCORES, TARGET, reduction='average'), ValueError, "`reduction`.*'mean'.*'average'"),
        (lambda: reduced(SCORES[0, 0], TARGET), ValueError, r'`scores`.*\(5,\)'),
        (lambda: reduced(SCORES.long(), TARGET), TypeError, '`scores`.*int64'),
        (lambda: reduced(SCORES, TARGET + 3), ValueError, r'`target`.*\[0, 2\]'),
        (lambda: reduced(SCORES, TARGET[0]), ValueError, r'`target`.*\(4, 5\).*\(5,\)'),
        (lambda: reduced(SCORES, SHARES[:, :2]), ValueError, r'`target`.*\(4, 3, 5\).*\(4, 2, 5\)'),
        (lambda: reduced(SCORES, TARGET, WEIGHT[0]), ValueError, r'`weight`.*\(4, 5\).*\(5,\)'),
        (lambda: reduced(SCORES, TARGET, -WEIGHT), ValueError, '`weight`.*-'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
