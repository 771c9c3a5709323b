"""Classes of segmentors with a changed prediction."""

from functools import cache
from typing import Any

from mmseg_nondecomp.registry import MODELS


def combined_class(wrapper: type, segmentor: Any, needs: tuple[str, ...], name: str = 'segmentor') -> type:
    """Return the class that is a ``wrapper`` and the class of a segmentor.

    Args:
        wrapper: The class whose methods come first.
        segmentor: A type, by name or as a class; or a config, which may be that of another wrapper.
        needs: Names of the methods that the segmentor has to have.
        name: Name of the parameter, for messages.
    """
    return _combine(wrapper, _class_of(segmentor, needs, name))


def arguments_of(segmentor: Any) -> dict[str, Any]:
    """Return the arguments in the config of a segmentor, with those of segmentors inside; none for a type."""
    if not isinstance(segmentor, dict):
        return {}
    own = {key: value for key, value in segmentor.items() if key != 'type'}
    return {**arguments_of(own.pop('segmentor', None)), **own}


def _class_of(segmentor: Any, needs: tuple[str, ...], name: str) -> type:
    """Return the class of this config or name in the present scope."""
    kind, inner = segmentor, {}
    if isinstance(segmentor, dict):
        kind, inner = segmentor.get('type'), {key: segmentor[key] for key in ('segmentor',) if key in segmentor}
    cls: Any = kind
    if isinstance(kind, str):
        with MODELS.switch_scope_and_registry(None) as registry:
            cls = registry.get(kind)
    if not isinstance(cls, type):
        raise ValueError(f'Parameter `{name}` should be the type of a registered model. Found {kind!r}.')
    if hasattr(cls, 'combined_with'):
        cls = cls.combined_with(**inner)
    missing = [method for method in needs if not hasattr(cls, method)]
    if missing:
        raise TypeError(f'Parameter `{name}` should predict in two steps. Found {cls}, without {", ".join(missing)}.')
    return cls


@cache
def _combine(wrapper: type, segmentor: type) -> type:
    own = {'__module__': wrapper.__module__, '__doc__': wrapper.__doc__}
    prefix = wrapper.__name__.removesuffix('Segmentor').removesuffix('TTAModel')
    return type(f'{prefix}{segmentor.__name__}', (wrapper, segmentor), own)
