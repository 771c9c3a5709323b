import pytest
import torch

from mmseg_nondecomp.functional.error_cells import ProbabilityCells
from mmseg_nondecomp.losses.histogram_memory import HistogramMemory, loss_of_past

BINS = 8


def histogram(seed):
    cells = ProbabilityCells(BINS).number
    return torch.randint(0, 9, (1, 3, 2, cells), generator=torch.Generator().manual_seed(seed)).double()


def test_keeps_the_mass_of_the_last_batches_only():
    memory = HistogramMemory(2)
    assert not memory.past(histogram(0)).any()
    for seed in range(4):
        memory.remember(histogram(seed))
    past = memory.past(histogram(0))
    assert past.shape == histogram(0).shape
    torch.testing.assert_close(past.sum(3), (histogram(2) + histogram(3)).sum(3))


def test_mass_stays_in_its_bin_and_errors_of_zero_stay_apart():
    memory = HistogramMemory(1)
    memory.remember(histogram(0))
    past = memory.past(histogram(0))
    torch.testing.assert_close(past[..., 0], histogram(0)[..., 0])
    bins = past[..., 1:].unflatten(-1, (BINS, 3))
    torch.testing.assert_close(bins.sum(-1), histogram(0)[..., 1:].unflatten(-1, (BINS, 3)).sum(-1))


@pytest.mark.parametrize('batches', [2, 5])
def test_state_is_taken_up_to_the_number_of_batches(batches):
    memory, other = HistogramMemory(3), HistogramMemory(batches)
    for seed in range(3):
        memory.remember(histogram(seed))
    other.load_state_dict(memory.state_dict())
    other.remember(histogram(3))
    same = HistogramMemory(batches)
    for seed in range(4):
        same.remember(histogram(seed))
    assert torch.equal(other.past(histogram(0)), same.past(histogram(0)))


def test_state_of_nothing_is_nothing():
    memory = HistogramMemory(3)
    memory.remember(histogram(0))
    memory.load_state_dict(HistogramMemory(3).state_dict())
    assert memory.kept is None


def test_goes_on_where_the_predictions_are():
    """A checkpoint is loaded to the CPU."""
    memory, other = HistogramMemory(2), HistogramMemory(2)
    memory.remember(histogram(0))
    other.load_state_dict(memory.state_dict())
    elsewhere = histogram(1).to('meta')
    assert other.past(elsewhere).device == elsewhere.device
    other.remember(elsewhere)
    assert other.kept.device == elsewhere.device


def test_loss_of_the_past_is_at_the_middle_of_its_cells():
    cells = ProbabilityCells(BINS)
    past, shares = torch.zeros(1, 1, 2, cells.number).double(), torch.ones(1, 1, 2, cells.number).double()
    past[0, 0, 1, 5] = 4
    centre = cells.centres(past.device)[5]
    torch.testing.assert_close(loss_of_past(past, shares, cells), 4 * centre.view(1, 1))
