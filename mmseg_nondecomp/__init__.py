"""Losses for OpenMMLab and PyTorch that train a model on the measure it is judged by.

Importing the package registers its components by name in MMEngine's root registries if MMEngine is installed.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from mmseg_nondecomp import functional
from mmseg_nondecomp.class_index import ClassIndex, index_classes
from mmseg_nondecomp.losses import (
    DirectAPLoss,
    DirectZeroOneLoss,
    HardTopKLoss,
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    MaskLoss,
    MetricLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
    SumOfLosses,
)
from mmseg_nondecomp.losses.metric_loss import metric_loss
from mmseg_nondecomp.registry import HAS_MMCV, HAS_MMENGINE
from mmseg_nondecomp.samplers import EquiBatchSampler, IoUAdaptiveSampler, LossMaxPoolingPixelSampler

try:
    __version__ = version('mmseg_nondecomp')
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = 'unknown'

__all__ = ['ClassIndex', 'EquiBatchSampler', 'IoUAdaptiveSampler', 'LossMaxPoolingPixelSampler', '__version__']
__all__ += ['DirectAPLoss', 'DirectZeroOneLoss', 'HardTopKLoss', 'LossMaxPooling', 'LovaszHingeLoss']
__all__ += [
    'LovaszSoftmaxLoss',
    'MaskLoss',
    'MetricLoss',
    'SMeasureLoss',
    'SmoothTopKLoss',
    'SoftIoULoss',
    'SumOfLosses',
]
__all__ += ['SumOfLosses', 'functional', 'index_classes', 'metric_loss']

# Public names that need a package of OpenMMLab, and the package.
NEEDS = dict.fromkeys(['DualAscentHook', 'LossCheckHook', 'LossWeightHook', 'TiledSegmentor'], 'MMEngine')
NEEDS |= dict.fromkeys(['ClassWeightHook', 'DecidingSegmentor', 'DecidingTTAModel'], 'MMEngine')
NEEDS |= dict.fromkeys(['TorchMetricsEvaluator', 'TrainIoUHook', 'TrainMetricsHook'], 'MMEngine')
NEEDS |= dict.fromkeys(['CornerCrop', 'GroupLabelNoise', 'RandomCropOnClass'], 'MMCV')

if HAS_MMENGINE:
    from mmseg_nondecomp.checkpoints import adapt_mmengine
    from mmseg_nondecomp.evaluation import TorchMetricsEvaluator
    from mmseg_nondecomp.hooks import (
        ClassWeightHook,
        DualAscentHook,
        LossCheckHook,
        LossWeightHook,
        TrainIoUHook,
        TrainMetricsHook,
    )
    from mmseg_nondecomp.segmentors import DecidingSegmentor, DecidingTTAModel, TiledSegmentor

    adapt_mmengine()
    __all__ += ['DualAscentHook', 'LossCheckHook', 'LossWeightHook', 'TrainIoUHook', 'TrainMetricsHook']
    __all__ += ['ClassWeightHook', 'DecidingSegmentor', 'DecidingTTAModel', 'TiledSegmentor', 'TorchMetricsEvaluator']

if HAS_MMCV:
    from mmseg_nondecomp.transforms import CornerCrop, GroupLabelNoise, RandomCropOnClass

    __all__ += ['CornerCrop', 'GroupLabelNoise', 'RandomCropOnClass']


def __getattr__(name: str) -> NoReturn:
    if name in NEEDS:
        raise ImportError(f'`{name}` needs {NEEDS[name]}: pip install "mmseg_nondecomp[mmseg]".')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
