"""Every registered loss in every scope, and the shards of one batch that several processes hold."""

from typing import Any

import torch
from every_loss import CASES, N_CLASSES, build
from torch import Tensor, nn

import mmseg_nondecomp
from mmseg_nondecomp.losses import SetLoss

PARTS = (3, 1, 4, 2)
"""Sizes of the shards of the processes."""
DATA = (
    *('pixels, uneven', 'pixels, nothing valid on the last process', 'pixels, nothing valid', 'items, uneven'),
    *('items, none on the first process', 'items, nothing valid on the last process', 'items, none'),
)
BACKGROUND = ('items, background alone', 'items, background alone on the first process')
"""Labels of none of the classes, for losses with independent classes."""
NAN = 'pixels, one on the first process is no number'
Shard = tuple[Tensor, Tensor, Tensor]


def has_scope(name: str) -> bool:
    return issubclass(getattr(mmseg_nondecomp, name), SetLoss)


def losses_in(scope: str, *activations: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the losses of `every_loss.CASES` that have a scope, by their names in tests."""
    found = {}
    for name, cases in CASES.items():
        for activation, args in cases:
            if activations and activation not in activations:
                continue
            given = args | dict(scope=scope)
            if scope == 'world' and 'bins' in args:  # Sorted pixels cannot be added up over processes.
                given['bins'] = 512
            if has_scope(name) and not (name == 'SMeasureLoss' and scope == 'image'):
                found[f'{name} {args}'] = name, given
    return found


def built(loss: str, scope: str) -> nn.Module:
    return build(*losses_in(scope)[loss])


def shards_of(data: str, n_processes: int, step: int = 0) -> list[Shard]:
    """Return the shard of each process in a step: features [N, H, W, 3] or [N, 3], labels and weights.

    All are multiples of a power of two, as are the weights of the network: logits are exact, whatever is added first.
    """
    generator = torch.Generator().manual_seed(step)
    shards = []
    for rank, part in enumerate(PARTS[:n_processes]):
        shape: tuple[int, ...] = (part, 7, 9) if data.startswith('pixels') else (9 * part,)
        if data == 'items, none' or (data == 'items, none on the first process' and rank == 0):
            shape = (0,)
        # The later processes have the harder items: no shard alone has the statistics of the union.
        features = in_steps_of(2**-9, torch.randn(*shape, 3, generator=generator).clamp(-3, 3) * (1 + rank))
        labels = torch.randint(0, N_CLASSES, shape, generator=generator)
        if rank == 1:
            labels = labels.clamp(max=2)  # classes that only others have
        if data.endswith('nothing valid') or (data.endswith('on the last process') and rank == n_processes - 1):
            labels[:] = 255
        elif data.startswith('pixels'):
            labels[:, :2] = 255
        elif data == BACKGROUND[0] or (data == BACKGROUND[1] and rank == 0):
            labels[:] = N_CLASSES
        if data == NAN and rank == 0:
            features[0, 3, 4], labels[0, 3, 4] = torch.nan, 1
        weights = torch.rand(shape, generator=generator).gt(0.1).float()
        if data == NAN:
            weights[:] = 1
        shards.append((features, labels, weights))
    return shards


def union(shards: list[Shard]) -> Shard:
    features, labels, weights = (torch.cat(parts) for parts in zip(*shards, strict=True))
    return features, labels, weights


def in_steps_of(size: float, numbers: Tensor) -> Tensor:
    return (numbers / size).round() * size


class Network(nn.Module):
    """A linear layer that returns logits [N, C, H, W] or [N, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, N_CLASSES)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = in_steps_of(2**-7, torch.randn(parameter.shape, generator=generator).clamp(-3, 3))

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features).movedim(-1, 1)


def value_of(loss: nn.Module, model: nn.Module, shard: Shard) -> Tensor:
    features, labels, weights = shard
    return loss(model(features), labels, weights)


def gradient_of(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def assert_close(found: Tensor, expected: Tensor, relative: float = 1e-6) -> None:
    assert (found - expected).norm() <= relative * expected.norm() + 1e-9, (found, expected)
