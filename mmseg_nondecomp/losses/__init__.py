"""Losses for the heads of MMSegmentation, MMDetection and MMPretrain, and for plain PyTorch."""

from mmseg_nondecomp.losses.loss_max_pooling import LossMaxPooling

__all__ = ['LossMaxPooling']
