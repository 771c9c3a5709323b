"""Samplers of images by class, and of pixels by loss."""

from mmseg_nondecomp.samplers.equi_batch_sampler import EquiBatchSampler
from mmseg_nondecomp.samplers.iou_adaptive_sampler import IoUAdaptiveSampler
from mmseg_nondecomp.samplers.loss_max_pooling_pixel_sampler import LossMaxPoolingPixelSampler

__all__ = ['EquiBatchSampler', 'IoUAdaptiveSampler', 'LossMaxPoolingPixelSampler']
