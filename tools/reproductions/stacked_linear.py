"""Linear layers of several networks, one for each seed, trained at once."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """Linear layer for each of S networks, from [S, n, f] to [S, n, g], with the initialisation of ``nn.Linear``."""

    def __init__(self, n_in: int, n_out: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()

        def start(*shape: int) -> nn.Parameter:
            bound = n_in**-0.5
            drawn = [torch.empty(shape).uniform_(-bound, bound, generator=generator) for generator in generators]
            return nn.Parameter(torch.stack(drawn))

        self.weight, self.bias = start(n_in, n_out), start(1, n_out)

    def forward(self, features: Tensor) -> Tensor:
        """Return the output of each network."""
        return torch.baddbmm(self.bias, features, self.weight)


def sum_over_networks(loss: Callable[[Tensor, Tensor], Tensor], predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the losses, whose gradient is that of each network's own loss."""
    return torch.stack([loss(x, y) for x, y in zip(predictions, targets, strict=True)]).sum()
