"""Operations that have a deterministic version on CUDA, and those that raise an error there, by PyTorch's own list."""

import re
from collections.abc import Iterable
from functools import cache

import torch

from benchmarks.operations import Operation

ENTRY = re.compile(r'^\s+\* :(?:class|func):`torch\.(?P<name>[\w.]+)`(?P<condition>.*(?:\n +[^*\s].*)*)', re.MULTILINE)


def without_determinism(operations: Iterable[Operation]) -> list[str]:
    """Return the operators that raise an error on CUDA with `torch.use_deterministic_algorithms`."""
    return chosen(operations, listed()[1])


def with_determinism(operations: Iterable[Operation]) -> list[str]:
    """Return the operators that are deterministic on CUDA only with `torch.use_deterministic_algorithms`."""
    return chosen(operations, listed()[0])


@cache
def listed() -> tuple[dict[str, str], dict[str, str]]:
    """Return the conditions by operator: of those that become deterministic, and of those that raise an error.

    They are in the docstring of `torch.use_deterministic_algorithms`; CPU-only conditions are excluded.
    """
    text = torch.use_deterministic_algorithms.__doc__ or ''
    parts = re.split(r'operations (?:will act\s+deterministically|will throw a)', text)
    entries = [
        {key(name): condition for name, condition in ENTRY.findall(part) if not is_about_cpu(condition)}
        for part in parts[1:]
    ]
    if len(entries) != 2 or not all(entries):
        raise RuntimeError('The docstring of torch.use_deterministic_algorithms does not have its two lists.')
    return entries[0], entries[1]


def is_about_cpu(condition: str) -> bool:
    """Return whether a condition only applies to the CPU."""
    return 'CPU' in condition and 'CUDA' not in condition


def key(name: str) -> str:
    """Return one name for a function, its in-place form, its module and its operators in both passes."""
    name = name.rpartition('.')[2].lower().replace('_', '')
    return re.sub(r'(?:[123]d)?(?:forward|backward)?$', '', name)


def chosen(operations: Iterable[Operation], conditions: dict[str, str]) -> list[str]:
    """Return the operators that meet the condition of their entry."""
    found = (each.name for each in operations if meets(each, conditions.get(key(each.name))))
    return sorted({re.sub(r'_(?:forward|backward)?$', '', name) for name in found})


def meets(operation: Operation, condition: str | None) -> bool:
    """Return whether an operation has an entry that applies to its types and arguments."""
    if condition is None:
        return False
    if 'differentiate' in condition or 'requires grad' in condition:
        return operation.name.endswith('_backward')
    of_others = (
        ('tensor is given' in condition and operation.n_tensors < 2)
        or ('floating point' in condition and not operation.is_floating_point)
        or ('`src` type is Tensor' in condition and not operation.overload.startswith('src'))
        or ('reduce=' in condition and not any(f"'{word}'" in condition for word in operation.words))
    )
    return not of_others
