import math

import torch
import torch.nn.functional as F

from mmseg_nondecomp.functional.dropping import drop_gradient


def test_value_stays_and_only_the_dropped_lose_their_gradient():
    pred = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    valid = torch.rand(2, 5) > 0.5
    dropped = drop_gradient(pred, valid)
    assert torch.equal(dropped, pred)
    assert torch.autograd.gradcheck(lambda x: drop_gradient(x, torch.ones_like(valid)).square(), pred)
    dropped.sum().backward()
    assert torch.equal(pred.grad, valid[:, None].expand_as(pred).double())


def test_cures_the_nan_of_masking_afterwards():
    pred = torch.zeros(2, 3).index_fill(0, torch.tensor([0]), math.nan).requires_grad_()
    target, valid = torch.tensor([0, 1]), torch.tensor([False, True])

    def masked_cross_entropy(pred):
        return torch.where(valid, F.cross_entropy(pred, target, reduction='none'), 0).sum()

    masked_cross_entropy(pred).backward()
    assert pred.grad.isnan().any()
    pred.grad = None
    masked_cross_entropy(drop_gradient(pred, valid)).backward()
    assert pred.grad.isfinite().all()
