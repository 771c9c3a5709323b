"""Heads of losses and networks, subclasses of a toolbox's own. Importing this module imports the installed toolboxes.

In a config: ``custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])``.
"""

from importlib.util import find_spec

__all__ = []

if find_spec('mmdet'):
    from mmseg_nondecomp.heads.all_levels_retina_head import AllLevelsRetinaHead

    __all__ += ['AllLevelsRetinaHead']

if find_spec('mmpretrain'):
    from mmseg_nondecomp.heads.topk_cls_head import TopKClsHead

    __all__ += ['TopKClsHead']

if find_spec('mmseg'):
    from mmseg_nondecomp.heads.deeplabv2_head import DeepLabV2Head
    from mmseg_nondecomp.heads.enet_head import ENetHead
    from mmseg_nondecomp.heads.s_measure_head import SMeasureHead

    __all__ += ['DeepLabV2Head', 'ENetHead', 'SMeasureHead']
