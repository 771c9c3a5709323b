"""MMEngine's root registries, or stand-ins that register nothing where MMEngine is not installed.

What is registered in the root is found by its bare name from mmseg, mmdet and mmpretrain alike.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar('T')

HAS_MMENGINE = find_spec('mmengine') is not None
HAS_MMCV = HAS_MMENGINE and find_spec('mmcv') is not None

if HAS_MMENGINE:
    from mmengine.registry import DATA_SAMPLERS, EVALUATOR, HOOKS, METRICS, MODELS, TASK_UTILS, TRANSFORMS
else:

    class _NoRegistry:
        """Leaves classes as they are, and says what is missing when one is asked for by name."""

        def register_module(self, *args: Any, **kwargs: Any) -> Callable[[T], T]:
            return lambda cls: cls

        def build(self, cfg: dict[str, Any]) -> Any:
            raise ImportError(f'Building {cfg} by name needs MMEngine: pip install "mmseg_nondecomp[mmseg]".')

    DATA_SAMPLERS = EVALUATOR = HOOKS = METRICS = MODELS = TASK_UTILS = TRANSFORMS = _NoRegistry()

__all__ = [
    'DATA_SAMPLERS',
    'EVALUATOR',
    'HAS_MMCV',
    'HAS_MMENGINE',
    'HOOKS',
    'METRICS',
    'MODELS',
    'TASK_UTILS',
    'TRANSFORMS',
]
