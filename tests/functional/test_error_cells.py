import math

import pytest
import torch
from mmseg_nondecomp.functional.error_cells import MarginCells, ProbabilityCells

each_bins = pytest.mark.parametrize('bins', [1, 4, 64, 1024, 6000])
each_dtype = pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)


@each_bins
@each_dtype
def test_cells_of_probabilities_are_narrow_and_ordered(bins, dtype):
    cells = ProbabilityCells(bins)
    errors = torch.linspace(0, 1, 400_001, dtype=torch.float64)
    errors = torch.cat([errors, errors[1:] ** 4, 1 - errors[1:] ** 4]).sort().values.to(dtype)
    cell = cells.of(errors)
    assert cell.dtype == torch.int32
    assert bool((cell.diff() >= 0).all())
    assert cell[-1] == cells.number - 1
    assert bool((cell[errors == 0] == 0).all())
    assert bool((cell[errors > 1e-14] > 0).all())
    errors = errors.double()
    lowest = torch.full((cells.number,), 2.0).double().scatter_reduce_(0, cell.long(), errors, 'amin')
    highest = torch.zeros(cells.number).double().scatter_reduce_(0, cell.long(), errors, 'amax')
    slack = 1e-6 if dtype == torch.float32 else 0
    assert (highest - lowest).max() <= 1 / (2 * bins) + slack


@each_bins
@each_dtype
def test_cells_of_margins_are_as_fine_as_the_logit_is_small(bins, dtype):
    cells = MarginCells(bins)
    errors = torch.linspace(math.asinh(-100), math.asinh(1e8), 400_001, dtype=torch.float64).sinh() / 100 + 1
    errors = torch.cat([torch.zeros(1), errors.clamp(0, 1e6), torch.tensor([2e6, 1e30, math.inf])]).to(dtype)
    cell = cells.of(errors)
    assert cell.dtype == torch.int32
    assert bool((cell.diff() >= 0).all())
    assert bool((cell[errors == 0] == 0).all())
    assert bool((cell[errors > 2e-5] > 0).all())
    assert bool((cell[errors >= 1e6] == cells.number - 1).all())
    inside, errors = cell[:-3].long(), errors[:-3].double()
    lowest = torch.full((cells.number,), 1e9).double().scatter_reduce_(0, inside, errors, 'amin')
    highest = torch.zeros(cells.number).double().scatter_reduce_(0, inside, errors, 'amax')
    logit = torch.maximum((lowest - 1).abs(), (highest - 1).abs())
    slack = 1e-6 * (1 + logit) if dtype == torch.float32 else 0
    assert bool((highest - lowest <= 8.2 / bins * (logit + 0.01) + slack).all())


@pytest.mark.parametrize('cells', [ProbabilityCells, MarginCells])
@each_bins
def test_centres_lie_in_their_cells(cells, bins):
    cells = cells(bins)
    centres = cells.centres(torch.device('cpu'))
    assert centres.dtype == torch.float64
    assert centres[0].abs() < 1e-30  # the first cell is for errors of 0
    assert (centres.diff() > 0).all()
    assert cells.of(centres)[1:].tolist() == list(range(1, cells.number))


@each_dtype
def test_rounding_beyond_the_range_does_not_change_the_end(dtype):
    step = torch.finfo(dtype).eps
    cells = ProbabilityCells(64)
    assert cells.of(torch.tensor([-step, 1 + step], dtype=dtype)).tolist() == [0, cells.number - 1]
    assert MarginCells(64).of(torch.tensor([-step, -1.0, -math.inf], dtype=dtype)).tolist() == [0, 0, 0]


@pytest.mark.parametrize('cells', [ProbabilityCells(4), MarginCells(4)])
def test_the_cell_of_a_nan_exists(cells):
    assert 0 <= cells.of(torch.tensor([math.nan])).item() < cells.number
