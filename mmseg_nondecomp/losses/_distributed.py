"""The set of a loss: an image, the mini-batch of this process, or that of all processes."""

import torch
import torch.distributed as dist
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Reduce, in_one_process

SCOPES = ('image', 'batch', 'world')


class SumOverProcesses(Reduce):
    """Sum of small tensors over the processes that share a set."""

    def __init__(self, n_processes: int) -> None:
        self.n_processes = n_processes

    def __call__(self, part: Tensor) -> Tensor:
        """Return the sum of the parts of all processes. A collective: every process has to call it.

        DDP divides the sum of the gradients by the number of processes. Each part therefore passes its gradient on as
        many times, so that the step is that of a single process with the whole set.
        """
        total = part.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        if not part.requires_grad:
            return total
        scaled = part * self.n_processes
        return scaled + (total - scaled).detach()

    def rescale(self, loss: Tensor) -> Tensor:
        """Rescale a loss computed identically on every process so that DDP's average gives its gradient."""
        return loss.detach() + self.n_processes * (loss - loss.detach())


def sum_over(scope: str) -> Reduce:
    """Return the sum over the processes that share a set of this scope."""
    n_processes = _n_processes() if scope == 'world' else 1
    return SumOverProcesses(n_processes) if n_processes > 1 else in_one_process


def lengths_by_process(length: int, device: torch.device) -> list[int]:
    """Return the number of rows of each process, by rank. A collective: every process has to call it."""
    if _n_processes() == 1:
        return [length]
    lengths = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.full_like(lengths[0], length))
    return torch.cat(lengths).tolist()


def rows_by_process(own: Tensor, lengths: list[int]) -> list[Tensor]:
    """Gather the rows of a tensor of each process, by rank. A collective, unless there is one process or no row."""
    if len(lengths) == 1 or max(lengths) == 0:
        return [own] * len(lengths)
    own = torch.cat([own, own.new_zeros(max(lengths) - len(own), *own.shape[1:])])
    gathered = [torch.empty_like(own) for _ in lengths]
    dist.all_gather(gathered, own)
    return [rows[:length] for rows, length in zip(gathered, lengths, strict=True)]


def _n_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
