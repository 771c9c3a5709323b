"""MMEngine's root registries, or replacements that register nothing if MMEngine is not installed.

Components of the root registries are found by their bare names from mmseg, mmdet and mmpretrain.
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
        """Registry that registers nothing and raises when it builds."""

        def register_module(self, *args: Any, **kwargs: Any) -> Callable[[T], T]:
            return lambda cls: cls

        def build(self, cfg: Any) -> Any:
            raise ImportError(f'Building {cfg} by name needs MMEngine: pip install "mmseg_nondecomp[mmseg]".')

        get = build

    DATA_SAMPLERS = EVALUATOR = HOOKS = METRICS = MODELS = TASK_UTILS = TRANSFORMS = _NoRegistry()

__all__ = ['DATA_SAMPLERS', 'EVALUATOR', 'HAS_MMCV', 'HAS_MMENGINE', 'HOOKS', 'METRICS', 'MODELS']
__all__ += ['TASK_UTILS', 'TRANSFORMS']
