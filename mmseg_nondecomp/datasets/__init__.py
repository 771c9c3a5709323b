"""Data sets. Importing this module needs MMEngine; `LongTailShapes` is there where mmsegmentation is installed."""

from importlib.util import find_spec

from .catalogue import CLASSES, LOOK_ALIKES, PALETTE
from .grouped_shapes import GroupedShapes
from .random_subset import RandomSubset
from .scene import Scene, draw_scene
from .shape_boxes import ShapeBoxes
from .voc_actions import VOCActions

__all__ = [
    'CLASSES',
    'LOOK_ALIKES',
    'PALETTE',
    'GroupedShapes',
    'RandomSubset',
    'Scene',
    'ShapeBoxes',
    'VOCActions',
    'draw_scene',
]

# Not `except ImportError`: an mmsegmentation that is there and does not work should say why.
if find_spec('mmseg') is not None:
    from .long_tail_shapes import LongTailShapes

    __all__ += ['LongTailShapes']
