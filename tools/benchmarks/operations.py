"""Counts of the operations that a step dispatches, on tensors without values (``meta``); the same on every machine."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental import _config as fake_results
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NOT_LAUNCHED = {
    *('empty', 'empty_like', 'empty_strided', 'new_empty', 'new_empty_strided'),
    *('_unsafe_view', 'detach', 'lift_fresh'),
}
"""Operators that launch no kernel, in addition to views, which their schemas mark."""
SIZED_BY_VALUES = {'nonzero', 'masked_select', 'bincount', '_unique2'}
"""Operators that wait for the device to determine the size of their result."""
INDEXED = {'index', 'index_put', 'index_put_'}
STAND_INS: dict[str, Callable[..., Any]] = {
    'bincount': lambda values, weights=None, minlength=0: values.new_empty(minlength),
    '_unique2': lambda values, *how: (values.new_empty(1),) * 3,
    'equal': lambda one, other: True,
}
"""Results of operators that ``meta`` does not implement."""


class Operation(NamedTuple):
    """Dispatched operator."""

    name: str
    overload: str
    is_floating_point: bool
    """Whether its first result is a floating-point tensor."""
    n_tensors: int
    """Number of its tensor arguments."""
    words: tuple[str, ...]
    """String arguments, such as the reduction."""


class Operations(TorchDispatchMode):
    """Count the operations on a device, the bytes that they move, and the values that they read back.

    An operation counts if a device launches a kernel for it, unlike views, allocations and computations on the host.
    Its bytes are those of the distinct elements of its input and output tensors; expanded elements count once.

    Args:
        answer: The value returned if one is read back; for a size, all elements are taken as selected. By default
            reading back is an error, as it is on ``meta``.
    """

    def __init__(self, answer: float | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.found: Counter[Operation] = Counter()
        self.bytes = 0
        self.reads = 0

    @property
    def number(self) -> int:
        """Number of operations."""
        return self.found.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, and count it."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        taken = tensors_of((args, kwargs))
        answered = self.answer is not None and any(map(is_on_device, taken))
        to_host = kwargs.get('device') == torch.device('cpu')
        if answered and (to_host or reads_back(name, args)):
            self.reads += 1
        if answered and (to_host or name == '_local_scalar_dense'):
            value = torch.full(args[0].shape, self.answer, dtype=kwargs.get('dtype') or args[0].dtype)
            return value if to_host else value.item()
        operator = STAND_INS.get(name, func) if answered else func
        result = operator(*args, **kwargs)
        returned = tensors_of(result)
        if any(map(is_on_device, returned)) and name not in NOT_LAUNCHED and not is_view(func):
            words = tuple(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, str))
            self.found[Operation(name, func._overloadname, returned[0].is_floating_point(), len(taken), words)] += 1
            self.bytes += sum(map(distinct_bytes, taken + returned))
        return result


def operations(step: Callable[[], Any], answer: float | None = None) -> Operations:
    """Return the counts of a step."""
    with Operations(answer) as counted, all_chosen(answer is not None):
        step()
    return counted


@contextmanager
def all_chosen(is_so: bool) -> Iterator[None]:
    """Take masks as true everywhere if the size of a result depends on them, or raise an error."""
    with fake_results.patch(meta_nonzero_assume_all_nonzero=is_so):
        yield


def reads_back(name: str, args: Any) -> bool:
    """Return whether an operator makes the host wait for a value or for a size."""
    by_mask = name in INDEXED and any(index is not None and index.dtype == torch.bool for index in args[1])
    return by_mask or name in SIZED_BY_VALUES or name in ('_local_scalar_dense', 'equal')


def is_view(func: Any) -> bool:
    """Return whether an operator returns a view of its input."""
    return any(part.alias_info is not None and not part.alias_info.is_write for part in func._schema.returns)


def is_on_device(tensor: Tensor) -> bool:
    """Return whether a tensor stands for one on a device."""
    return tensor.device.type == 'meta'


def tensors_of(values: Any) -> list[Tensor]:
    """Return the tensors in nested lists and dicts."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def distinct_bytes(tensor: Tensor) -> int:
    """Return the bytes of the elements of a tensor; expanded elements count once."""
    number = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        number *= size if stride else 1
    return number * tensor.element_size()
