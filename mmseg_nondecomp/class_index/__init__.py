"""Index of the classes that each image of a data set holds, from which class-driven samplers draw."""

from mmseg_nondecomp.class_index._build import index_classes
from mmseg_nondecomp.class_index._index import ClassIndex

__all__ = ['ClassIndex', 'index_classes']
