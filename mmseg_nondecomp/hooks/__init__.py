"""Hooks of MMEngine's training loops. Importing them needs MMEngine."""

from mmseg_nondecomp.hooks.class_weight_hook import ClassWeightHook
from mmseg_nondecomp.hooks.dual_ascent_hook import DualAscentHook
from mmseg_nondecomp.hooks.loss_check_hook import LossCheckHook
from mmseg_nondecomp.hooks.loss_weight_hook import LossWeightHook
from mmseg_nondecomp.hooks.train_iou_hook import TrainIoUHook
from mmseg_nondecomp.hooks.train_metrics_hook import TrainMetricsHook

__all__ = ['ClassWeightHook', 'DualAscentHook', 'LossCheckHook', 'LossWeightHook', 'TrainIoUHook']
__all__ += ['TrainMetricsHook']
