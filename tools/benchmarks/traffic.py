"""Counts of the bytes that processes exchange in a training step with a loss over all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import Row
from benchmarks.measure import n_bytes
from benchmarks.overhead import Training
from benchmarks.scenes import half_trained
from benchmarks.table import BETWEEN, number
from mmseg_nondecomp import (
    DirectAPLoss,
    DirectZeroOneLoss,
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SoftIoULoss,
)

N_PROCESSES = (8, 64, 1024)
N_CLASSES = 19
N_ITEMS = 100
"""Number of boxes or images per process, for losses with few items."""


class Candidate(NamedTuple):
    """A loss and the expected bytes that a process contributes."""

    loss: Callable[[], nn.Module]
    on_paper: str
    """Formula of the bytes, for C classes and N items."""
    of_items: bool = False
    """Whether its input is N items instead of images."""


CELLS = '8·(2^12 + 1)'
LOGGED = '16·C'
"""Bytes of the intersections and unions of the mean IoU in the log."""
CANDIDATES = {
    'LossMaxPooling': Candidate(lambda: LossMaxPooling(scope='world'), '8 + 4·2040 + 5·16 + 4'),
    'LossMaxPooling, p = 1': Candidate(
        lambda: LossMaxPooling(p=1, scope='world'), f'8 + 2·{CELLS} + 8·(2^8 + 1) + 16 + 4'
    ),
    'LovaszSoftmaxLoss': Candidate(lambda: LovaszSoftmaxLoss(scope='world'), f'16·C·(3·1024 + 1) + 8·C + {LOGGED}'),
    'LovaszHingeLoss': Candidate(lambda: LovaszHingeLoss(scope='world'), f'16·C·(3·4096 + 1) + 8·C + {LOGGED}'),
    'SoftIoULoss': Candidate(lambda: SoftIoULoss(scope='world'), f'32·C + {LOGGED}'),
    'SMeasureLoss': Candidate(lambda: SMeasureLoss(scope='world'), '80·C + 8·C'),
    'SMeasureLoss, area of 10 points': Candidate(
        lambda: SMeasureLoss(measure='auc_roc', scope='world'), '10·(80·C + 8·C)'
    ),
    'SMeasureLoss, per example': Candidate(
        lambda: SMeasureLoss(per_example=True, scope='world'), '80·C + 8·C + 8 + N·(8 + 9·C)', of_items=True
    ),
    'DirectZeroOneLoss': Candidate(lambda: DirectZeroOneLoss(scope='world'), '8 + 4·C'),
    'DirectAPLoss': Candidate(lambda: DirectAPLoss(scope='world'), '8 + 24·C·(2^14 + 1)'),
    'DirectAPLoss, up to 131 072 items of all processes': Candidate(
        lambda: DirectAPLoss(scope='world'), '8 + N·5·C', of_items=True
    ),
}


class Collective(NamedTuple):
    """One collective of a process."""

    name: str
    """Name of PyTorch's operator."""
    size: int
    """Bytes that the process contributes."""


SENT: dict[str, Callable[[int, int], float]] = {
    'allreduce_': lambda size, n: 2 * (n - 1) / n * size,
    'allgather_': lambda size, n: (n - 1) * size,
}
"""Bytes that each of n processes sends in a ring."""


class Collectives(TorchDispatchMode):
    """Recorder of the collectives of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Collective] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, and record it if it is a collective."""
        library, name = func._schema.name.split('::')
        if library == 'c10d':
            tensors = args[1] if name == 'allgather_' else args[0]
            self.found.append(Collective(name, sum(n_bytes(tensor) for tensor in tensors)))
        return func(*args, **(kwargs or {}))


def collectives(loss: nn.Module, *call: Any, **settings: Any) -> list[Collective]:
    """Return the collectives of a training step, forward and backward."""
    with Collectives() as recorded:
        loss(*call, **settings).backward()
    return recorded.found


def sent(found: list[Collective], n_processes: int) -> float:
    """Return the bytes that each process sends."""
    return sum(SENT[name](size, n_processes) for name, size in found)


@contextmanager
def one_of(n_processes: int) -> Iterator[None]:
    """Simulate the first of many processes; every other one is assumed to hold the same data."""
    dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=n_processes)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def while_a_runner_trains() -> Iterator[None]:
    """Enable the logging of losses to MMEngine."""
    from mmengine.logging import MessageHub

    hub = MessageHub.get_current_instance()
    hub.update_info('loop_stage', 'train')
    try:
        yield
    finally:
        hub.pop_info('loop_stage')


def step_of(candidate: Candidate, side: int) -> list[Collective]:
    """Return the exchanges of a training step, with two images of a width and height or with items."""
    logits, target = half_trained((N_ITEMS, N_CLASSES) if candidate.of_items else (2, N_CLASSES, side, side))
    loss = candidate.loss()
    settings = dict(ids=torch.arange(N_ITEMS)) if getattr(loss, 'per_example', False) else {}
    return collectives(loss, logits, target, **settings)


def rows(quick: bool) -> list[Row]:
    """Return a row for each loss, and one for the gradients that DDP sends."""
    sides = (24, 48) if quick else (128, 256)
    gradients = gradient_bytes()
    of_gradients = [Collective('allreduce_', gradients)]
    head = {'loss': 'the gradients of FCN-ResNet-18', 'handed over on paper': '4·P', 'bytes': str(gradients)}
    found = [head | columns({n: [of_gradients] for n in N_PROCESSES}, gradients)]
    for name, candidate in CANDIDATES.items():
        steps: dict[int, list[list[Collective]]] = {}
        for n in N_PROCESSES:
            with one_of(n), while_a_runner_trains():
                steps[n] = [step_of(candidate, side) for side in (sides[:1] if candidate.of_items else sides)]
        largest = steps[N_PROCESSES[-1]]
        found.append(
            {
                'loss': name,
                'handed over on paper': candidate.on_paper,
                'bytes': alike([str(sum(each.size for each in step)) for step in largest]),
                'collectives': alike([str(len(step)) for step in largest]),
                **columns(steps, gradients),
            }
        )
    return found


def columns(steps: dict[int, list[list[Collective]]], gradients: int) -> Row:
    """Return the bytes that each process sends, also relative to the gradients, for each image size if they differ."""
    found: Row = {}
    for n, of_sizes in steps.items():
        found[f'KiB sent, {n} processes'] = alike([number(sent(step, n) / 1024) for step in of_sizes])
    n = max(steps)
    of_gradients = SENT['allreduce_'](gradients, n)
    shares = [f'{number(100 * sent(step, n) / of_gradients)} %' for step in steps[n]]
    found[f'of the gradients, {n} processes'] = alike(shares)
    return found


def alike(cells: list[str]) -> str:
    """Return one value if all are the same, or all of them."""
    return BETWEEN.join(dict.fromkeys(cells))


def gradient_bytes() -> int:
    """Return the bytes of the gradients of a small stock network."""
    return sum(n_bytes(parameter) for parameter in Training((2, 3, 32, 32)).model.parameters())
