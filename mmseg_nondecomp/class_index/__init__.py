"""Which images of a data set hold which classes: what class-driven samplers draw from."""

from mmseg_nondecomp.class_index.build import index_classes
from mmseg_nondecomp.class_index.class_index import ClassIndex

__all__ = ['ClassIndex', 'index_classes']
