"""Trainers of nnU-Net v2 by name: ``export nnUNet_extTrainer=$(python -m mmseg_nondecomp.adapters.nnunet)``."""

from typing import Any

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

from mmseg_nondecomp import LossMaxPooling, LovaszSoftmaxLoss, metric_loss
from mmseg_nondecomp.adapters.nnunet import SetLossTrainer

# ruff: noqa: D102, N801


class nnUNetTrainerMIoU(SetLossTrainer, nnUNetTrainer):
    """Cross-entropy and the Lovász loss, for the mean IoU over classes."""

    def build_set_loss(self, **layout: Any) -> nn.Module:
        return metric_loss('miou', **layout)


class nnUNetTrainerDice(SetLossTrainer, nnUNetTrainer):
    """Cross-entropy and the soft Dice loss of the foreground, as in nnUNetTrainer but without a smoothing term."""

    def build_set_loss(self, **layout: Any) -> nn.Module:
        return metric_loss('dice', classes=self.foreground, **layout)


class nnUNetTrainerLovasz(SetLossTrainer, nnUNetTrainer):
    """The Lovász loss alone."""

    def build_set_loss(self, **layout: Any) -> nn.Module:
        return LovaszSoftmaxLoss(**layout)


class nnUNetTrainerLossMaxPooling(SetLossTrainer, nnUNetTrainer):
    """Cross-entropy with more weight on hard voxels."""

    def build_set_loss(self, **layout: Any) -> nn.Module:
        return LossMaxPooling(pixel_loss='bce' if layout['mode'] == 'multilabel' else 'cross_entropy', **layout)
