"""Which pixels count."""

from mmseg_nondecomp.samplers.loss_max_pooling_pixel_sampler import LossMaxPoolingPixelSampler

__all__ = ['LossMaxPoolingPixelSampler']
