"""Models of MMSegmentation with another prediction."""

from mmseg_nondecomp.segmentors.deciding_segmentor import DecidingSegmentor, DecidingTTAModel
from mmseg_nondecomp.segmentors.tiled_segmentor import TiledSegmentor

__all__ = ['DecidingSegmentor', 'DecidingTTAModel', 'TiledSegmentor']
