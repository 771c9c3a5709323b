import pytest
import torch

from mmseg_nondecomp.losses.scope import SumOverProcesses, check_scope, reduction_over, rows_of


@pytest.mark.parametrize(
    ('scope', 'shape', 'rows'),
    [
        ('image', (3, 4, 5), (3, 20)),
        ('image', (3, 4, 5, 2), (3, 40)),
        ('image', (7,), (1, 7)),
        ('image', (0, 4, 5), (0, 20)),
        ('image', (3, 0, 5), (3, 0)),
        ('batch', (3, 4, 5), (1, 60)),
        ('batch', (0, 4, 5), (1, 0)),
        ('world', (3, 4, 5), (1, 60)),
        ('world', (7,), (1, 7)),
    ],
)
def test_each_set_is_a_row(scope, shape, rows):
    items = torch.arange(torch.Size(shape).numel()).view(shape)
    found = rows_of(items, scope)
    assert found.shape == rows
    assert torch.equal(found.flatten(), items.flatten())


def test_unknown_scope():
    for scope in ('image', 'batch', 'world'):
        check_scope(scope)
    with pytest.raises(ValueError, match=r"`scope`.*'process'"):
        check_scope('process')


@pytest.mark.parametrize('scope', ['image', 'batch', 'world'])
def test_one_process_needs_no_process_group(scope):
    reduce = reduction_over(scope)
    sums, part = torch.tensor([1.0, 2.0]), torch.tensor(3.0, requires_grad=True)
    assert reduce(sums) is sums
    assert reduce.total(part) is part


def test_total_has_the_sum_for_value_and_a_gradient_that_survives_ddp(monkeypatch):
    """Of four processes, each with the same part; DDP's division by four is what the factor undoes."""
    monkeypatch.setattr(torch.distributed, 'all_reduce', lambda sums: sums.mul_(4))
    part = torch.tensor(3.0, requires_grad=True)
    total = SumOverProcesses(4).total(part)
    assert total.item() == 12
    assert torch.autograd.grad(total, part)[0].item() == 4
    assert part.item() == 3
