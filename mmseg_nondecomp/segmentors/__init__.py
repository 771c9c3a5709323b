"""Models of MMSegmentation that predict in another way. Importing it needs MMEngine."""

from mmseg_nondecomp.segmentors.tiled_segmentor import TiledSegmentor

__all__ = ['TiledSegmentor']
