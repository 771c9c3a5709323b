"""The mathematics, in plain PyTorch."""

from mmseg_nondecomp.functional.max_pooling import loss_max_pooling, max_pooling_weights

__all__ = ['loss_max_pooling', 'max_pooling_weights']
