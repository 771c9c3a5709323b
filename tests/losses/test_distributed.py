import pytest
import torch

from mmseg_nondecomp.functional._inputs import in_one_process
from mmseg_nondecomp.losses._distributed import SumOverProcesses, lengths_by_process, rows_by_process, sum_over


@pytest.mark.parametrize('scope', ['image', 'batch', 'world'])
def test_one_process_needs_no_process_group(scope):
    assert sum_over(scope) is in_one_process
    own = torch.arange(6.0).view(3, 2)
    assert lengths_by_process(3, own.device) == [3]
    assert rows_by_process(own, [3])[0] is own


def test_the_sum_has_a_gradient_that_the_average_of_ddp_leaves_as_it_is(monkeypatch):
    """Four processes have the same part; DDP divides by four."""
    monkeypatch.setattr(torch.distributed, 'all_reduce', lambda sums: sums.mul_(4))
    reduce, part = SumOverProcesses(4), torch.tensor(3.0, requires_grad=True)
    total = reduce(part)
    assert total.item() == 12
    assert torch.autograd.grad(total, part)[0].item() == 4
    assert part.item() == 3
    counts = torch.ones(2, dtype=torch.long)
    assert reduce(counts).tolist() == [4, 4]
    assert counts.tolist() == [1, 1]
    loss = reduce.rescale(2 * part)
    assert loss.item() == 6
    assert torch.autograd.grad(loss, part)[0].item() == 8
