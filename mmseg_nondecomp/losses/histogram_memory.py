"""The histograms of the last batches, as part of the present set."""

import torch
from torch import Tensor, nn

from mmseg_nondecomp.functional.error_cells import Cells


class HistogramMemory(nn.Module):
    """Keeps the histograms of the last K batches: K · C · 2 · B numbers, in the checkpoint of the model.

    What it keeps is coarser than the histogram of the present batch: B cells where that has 3 B.

    Args:
        batches: How many batches are kept, K.
    """

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches
        self.kept: Tensor | None = None
        """Histograms [K, 1, C, 2, B + 1], oldest first; of 0 where there was no batch, so that one graph fits all."""

    def past(self, like: Tensor) -> Tensor:
        """The mass of the batches kept, in the cells of a histogram [1, C, 2, 3 B + 1]."""
        if self.kept is None:
            return torch.zeros_like(like)
        total = self.kept.sum(0).to(like)
        if total.shape[:3] != like.shape[:3]:
            raise ValueError(
                f'Parameter `pred` should keep its number of channels while a memory is kept. Found histograms of '
                f'{total.shape[1]} classes in the memory and of {like.shape[1]} now.'
            )
        fine = total[..., 1:].repeat_interleave(3, -1) / 3
        return torch.cat([total[..., :1], fine], -1)

    def remember(self, mass: Tensor) -> None:
        """Keep a histogram [1, C, 2, 3 B + 1] and forget the oldest."""
        mass = mass.double()
        coarse = mass[..., 1:].unflatten(-1, (-1, 3)).sum(-1)
        latest = torch.cat([mass[..., :1], coarse], -1).unsqueeze(0)
        before = latest.new_zeros(self.batches, *latest.shape[1:]) if self.kept is None else self.kept.to(latest.device)
        self.kept = torch.cat([before[1:], latest])

    def get_extra_state(self) -> Tensor:
        """The histograms, oldest first, for ``state_dict``."""
        return torch.zeros(0) if self.kept is None else self.kept

    def set_extra_state(self, state: Tensor) -> None:
        """Take the histograms of a checkpoint.

        Raises:
            ValueError: If it has something else.
        """
        is_tensor = isinstance(state, Tensor) and state.is_floating_point()
        if not is_tensor or (len(state) and (state.dim() != 5 or state.shape[1] != 1 or state.shape[3] != 2)):
            found = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(f'The state of a memory should be histograms [K, 1, C, 2, B + 1]. Found {found}.')
        missing = max(self.batches - len(state), 0)
        nothing = state.new_zeros(missing, *state.shape[1:])
        self.kept = torch.cat([nothing, state[-self.batches :]]) if len(state) else None

    def extra_repr(self) -> str:
        """The setting, as ``print(model)`` shows it."""
        return f'batches={self.batches}'


def loss_of_past(past: Tensor, shares: Tensor, cells: Cells) -> Tensor:
    """What the batches kept have of the loss of each class [1, C]; their errors are known up to their cells."""
    return (past * shares * cells.centres(past.device)).sum((2, 3))
