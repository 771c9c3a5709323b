"""What runs on MMEngine's training clock. Importing it needs MMEngine."""

from mmseg_nondecomp.hooks.loss_weight_hook import LossWeightHook

__all__ = ['LossWeightHook']
