"""Small backbones that MMSegmentation and MMPretrain do not have. Importing this module needs MMEngine.

In a config: ``custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones'])``.
"""

from mmseg_nondecomp.backbones.densenet40 import DenseNet40
from mmseg_nondecomp.backbones.efficientnet_lite import EfficientNetLite
from mmseg_nondecomp.backbones.enet import ENet

__all__ = ['DenseNet40', 'ENet', 'EfficientNetLite']
