"""Data sets. Importing this module needs MMEngine; `LandCover` and `LongTailShapes` also need mmsegmentation."""

from importlib.util import find_spec

from ._catalogue import CLASSES, LOOK_ALIKES, PALETTE
from ._scene import Scene, draw_scene
from .grouped_shapes import GroupedShapes
from .random_subset import RandomSubset
from .shape_boxes import ShapeBoxes
from .voc_actions import VOCActions

__all__ = ['CLASSES', 'LOOK_ALIKES', 'PALETTE', 'GroupedShapes', 'RandomSubset', 'Scene', 'ShapeBoxes']
__all__ += ['VOCActions', 'draw_scene']

# Not `except ImportError`: the error of a broken mmsegmentation is not hidden.
if find_spec('mmseg') is not None:
    from .land_cover import LandCover
    from .long_tail_shapes import LongTailShapes

    __all__ += ['LandCover', 'LongTailShapes']
