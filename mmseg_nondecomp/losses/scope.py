"""Which items form one set: an image's, this process's batch, or the batch of all processes."""

import torch
import torch.distributed as dist
from torch import Tensor

SCOPES = ('image', 'batch', 'world')


def check_scope(scope: str) -> None:
    """Raise ValueError unless the scope is known."""
    if scope not in SCOPES:
        raise ValueError(f'Parameter `scope` should be one of {SCOPES}. Found {scope!r}.')


def rows_of(items: Tensor, scope: str) -> Tensor:
    """Items [N, *] as one set a row, [R, P].

    Items without a position, [N], come from boxes or from whole images: the batch is the smallest set that they form.
    """
    return items.flatten(1) if scope == 'image' and items.dim() > 1 else items.reshape(1, -1)


def reduction_over(scope: str) -> 'SumOverProcesses':
    """What turns the sums of this process into the sums of the set."""
    return SumOverProcesses(dist.get_world_size() if scope == 'world' and _in_a_group() else 1)


class SumOverProcesses:
    """Adds up a small tensor over the processes that share the set; does nothing for one process."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size

    def __call__(self, sums: Tensor) -> Tensor:
        """The sums over the whole set. A collective: every process has to call it."""
        if self.world_size > 1:
            dist.all_reduce(sums)
        return sums

    def total(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes, with the gradient that makes DDP's average their sum.

        DDP divides the sum of the gradients by the number of processes. Each part therefore sends its gradient that
        many times, so that the step taken is the one of a single process that holds the whole set.
        """
        if self.world_size == 1:
            return part
        scaled = part * self.world_size
        return scaled + (self(part.detach().clone()) - scaled).detach()

    def of_the_set(self, loss: Tensor) -> Tensor:
        """A loss that each process has of the whole set, with the gradient that makes DDP's average that of the set."""
        if self.world_size == 1:
            return loss
        return loss.detach() + self.world_size * (loss - loss.detach())


def lengths_by_process(length: int, device: torch.device) -> list[int]:
    """How many rows each process has, by rank. A collective: every process has to call it."""
    if not _in_a_group() or dist.get_world_size() == 1:
        return [length]
    lengths = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.full_like(lengths[0], length))
    return torch.cat(lengths).tolist()


def rows_by_process(own: Tensor, lengths: list[int]) -> list[Tensor]:
    """The rows of a tensor of each process, by rank. A collective, unless there is one process or no row at all."""
    if len(lengths) == 1 or max(lengths) == 0:
        return [own] * len(lengths)
    own = torch.cat([own, own.new_zeros(max(lengths) - len(own), *own.shape[1:])])
    found = [torch.empty_like(own) for _ in lengths]
    dist.all_gather(found, own)
    return [rows[:length] for rows, length in zip(found, lengths, strict=True)]


def _in_a_group() -> bool:
    return dist.is_available() and dist.is_initialized()
