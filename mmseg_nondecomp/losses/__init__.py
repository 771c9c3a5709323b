"""Losses for the heads of MMSegmentation, MMDetection and MMPretrain, and for plain PyTorch."""

from mmseg_nondecomp.losses._base import SetLoss as SetLoss
from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss
from mmseg_nondecomp.losses.direct_zero_one_loss import DirectZeroOneLoss
from mmseg_nondecomp.losses.hard_topk_loss import HardTopKLoss
from mmseg_nondecomp.losses.loss_max_pooling import LossMaxPooling
from mmseg_nondecomp.losses.lovasz_hinge_loss import LovaszHingeLoss
from mmseg_nondecomp.losses.lovasz_softmax_loss import LovaszSoftmaxLoss
from mmseg_nondecomp.losses.mask_loss import MaskLoss
from mmseg_nondecomp.losses.metric_loss import MetricLoss
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss
from mmseg_nondecomp.losses.smooth_topk_loss import SmoothTopKLoss
from mmseg_nondecomp.losses.soft_iou_loss import SoftIoULoss
from mmseg_nondecomp.losses.sum_of_losses import SumOfLosses

__all__ = [
    'DirectAPLoss',
    'DirectZeroOneLoss',
    'HardTopKLoss',
    'LossMaxPooling',
    'LovaszHingeLoss',
    'LovaszSoftmaxLoss',
    'MaskLoss',
    'MetricLoss',
    'SMeasureLoss',
    'SmoothTopKLoss',
    'SoftIoULoss',
    'SumOfLosses',
]
