import math

import pytest
import torch

from mmseg_nondecomp.functional._inputs import in_one_process
from mmseg_nondecomp.functional._selection import upper_bin_edge


def kth_largest(values, k):
    return values.sort(1, descending=True).values[:, math.ceil(k) - 1 : math.ceil(k)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('n', [1, 2, 7, 1000])
@pytest.mark.parametrize('share', [0.0, 0.3, 0.5, 1.0])
def test_precision_zero_selects_exactly(dtype, n, share):
    values = torch.rand(3, n, dtype=dtype).mul(10).exp()
    values[1] = values[1].round(decimals=-4)  # ties
    values[2, ::2] = 0
    k = torch.full((3, 1), max(1.0, share * n), dtype=torch.float64)
    assert torch.equal(upper_bin_edge(values, k, 0, in_one_process), kth_largest(values, k[0].item()))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('precision', [0.5, 0.1, 1e-2, 1e-5])
def test_the_edge_is_within_the_precision_from_above(dtype, precision):
    values = torch.rand(4, 999, dtype=dtype).mul(40).sub(20).exp()
    k = torch.tensor([[1.0], [2.5], [500.0], [999.0]], dtype=torch.float64)
    edge = upper_bin_edge(values, k, precision, in_one_process)
    exact = torch.stack([kth_largest(row[None], kk.item())[0] for row, kk in zip(values, k, strict=True)])
    assert (edge >= exact).all()
    assert (edge <= exact * (1 + precision)).all()
    assert ((values > edge).sum(1, keepdim=True) < k).all()


def test_a_part_of_the_values_selects_from_the_sum_of_all_histograms():
    values = torch.rand(1, 1000)
    k = torch.full((1, 1), 37.0, dtype=torch.float64)
    sums = []

    def record(tensor):
        sums.append(tensor.clone())
        return tensor

    expected = upper_bin_edge(values, k, 0, record)
    replay = iter(sums)  # as an all-reduce would return them to each process
    assert torch.equal(upper_bin_edge(values[:, :10], k, 0, lambda _: next(replay)), expected)
    assert sum(t.numel() for t in sums) < 10_000, 'the traffic does not depend on the number of values'
