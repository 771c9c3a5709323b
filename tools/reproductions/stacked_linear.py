"""Linear layers of several networks, one for each seed, that are trained at once."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """A linear layer for each of S networks: features [S, n, f] to [S, n, g]; each starts as ``nn.Linear`` does."""

    def __init__(self, n_in: int, n_out: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()

        def start(*shape: int) -> nn.Parameter:
            bound = n_in**-0.5
            drawn = [torch.empty(shape).uniform_(-bound, bound, generator=generator) for generator in generators]
            return nn.Parameter(torch.stack(drawn))

        self.weight, self.bias = start(n_in, n_out), start(1, n_out)

    def forward(self, features: Tensor) -> Tensor:
        """What each network makes of its features."""
        return torch.baddbmm(self.bias, features, self.weight)


def sum_over_networks(loss: Callable[[Tensor, Tensor], Tensor], predictions: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the sum is that of each network's own loss."""
    return torch.stack([loss(x, y) for x, y in zip(predictions, targets, strict=True)]).sum()
