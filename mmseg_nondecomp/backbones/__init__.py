"""Backbones with weights that a Python package contains. Importing this module needs MMEngine.

In a config: ``custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones'])``.
"""

from mmseg_nondecomp.backbones.efficientnet_lite import EfficientNetLite

__all__ = ['EfficientNetLite']
