"""Checks of arguments that several components take."""

from __future__ import annotations


def check_integer(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    """Raise unless an argument is an integer within its range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f'Parameter `{name}` should be an integer. Found {value!r}.')
    if value < lowest or (highest is not None and value > highest):
        expected = f'at least {lowest}' if highest is None else f'from {lowest} to {highest}'
        raise ValueError(f'Parameter `{name}` should be {expected}. Found {value}.')


def is_number(value: object) -> bool:
    """Return whether a value is an integer or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
