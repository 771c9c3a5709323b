"""Heads that a loss needs, subclasses of a toolbox's own. Importing this module imports the toolboxes that are there.

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
    from mmseg_nondecomp.heads.s_measure_head import SMeasureHead

    __all__ += ['SMeasureHead']
