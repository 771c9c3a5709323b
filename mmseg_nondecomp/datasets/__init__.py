"""Data sets. Importing this module needs mmsegmentation."""

from .catalogue import CLASSES, LOOK_ALIKES, PALETTE
from .long_tail_shapes import LongTailShapes
from .scene import Scene, draw_scene

__all__ = ['CLASSES', 'LOOK_ALIKES', 'PALETTE', 'LongTailShapes', 'Scene', 'draw_scene']
