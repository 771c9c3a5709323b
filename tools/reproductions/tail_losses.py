"""Losses of a long-tailed classification and the settings that are tried for each: the same number for all."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from mmseg_nondecomp import DirectAPLoss, HardTopKLoss, SmoothTopKLoss

K = 2
LEARNING_RATES = (1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 1e-1, 2e-1)
FEW_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of scores [n, C] and labels [n]."""


class Setting(NamedTuple):
    """Setting of a method."""

    learning_rate: float
    parameter: float | None = None


class Method(NamedTuple):
    """Loss with a parameter, if it has one to be searched."""

    build: Callable[[float | None, Tensor], Loss]
    """Function of the parameter and the number of training images of each class."""
    symbol: str = ''
    parameters: tuple[float, ...] = ()

    @property
    def grid(self) -> list[Setting]:
        """Settings of the search: ten learning rates, or five with each of two values of the parameter."""
        if not self.parameters:
            return [Setting(rate) for rate in LEARNING_RATES]
        return [Setting(*pair) for pair in itertools.product(FEW_RATES, self.parameters)]

    def told(self, setting: Setting) -> str:
        """Return a setting as text."""
        parameter = '' if setting.parameter is None else f', {self.symbol} = {setting.parameter:g}'
        return f'{setting.learning_rate:g}{parameter}'


def weighted_cross_entropy(power: float, counts: Tensor) -> Loss:
    """Return cross-entropy with class weights that are a negative power of the number of images."""
    return nn.CrossEntropyLoss(weight=counts.float() ** -power)


def focal_loss(gamma: float) -> Loss:
    """Return the focal loss of a softmax."""

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        log_p = -F.cross_entropy(scores, labels, reduction='none')
        return -((1 - log_p.exp()) ** gamma * log_p).mean()

    return loss


def sigmoid_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of sigmoids."""
    return F.binary_cross_entropy_with_logits(scores, F.one_hot(labels, scores.shape[1]).float())


def sigmoid_focal_loss(gamma: float) -> Loss:
    """Return the focal loss of sigmoids with its usual weights, 0.25 for positives and 0.75 for negatives."""

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        target = F.one_hot(labels, scores.shape[1]).float()
        log_p = -F.binary_cross_entropy_with_logits(scores, target, reduction='none')
        return -((0.75 - 0.5 * target) * (1 - log_p.exp()) ** gamma * log_p).mean()

    return loss


CROSS_ENTROPY, SIGMOID = 'cross-entropy', 'sigmoid cross-entropy'
SMOOTH, HARD, DIRECT_AP = 'SmoothTopKLoss', 'HardTopKLoss', 'DirectAPLoss'
WEIGHTED, FOCAL, SIGMOID_FOCAL = 'class-weighted cross-entropy', 'focal loss', 'sigmoid focal loss'
METHODS = {
    CROSS_ENTROPY: Method(lambda _, counts: F.cross_entropy),
    WEIGHTED: Method(weighted_cross_entropy, 'power', (0.5, 1.0)),
    FOCAL: Method(lambda gamma, counts: focal_loss(gamma), 'γ', (1.0, 2.0)),
    SMOOTH: Method(lambda tau, counts: SmoothTopKLoss(K, tau), 'τ', (0.1, 1.0)),
    HARD: Method(lambda _, counts: HardTopKLoss(K)),
    SIGMOID: Method(lambda _, counts: sigmoid_cross_entropy),
    SIGMOID_FOCAL: Method(lambda gamma, counts: sigmoid_focal_loss(gamma), 'γ', (1.0, 2.0)),
    DIRECT_AP: Method(lambda epsilon, counts: DirectAPLoss(epsilon), 'ε', (0.1, 1.0)),
}
ONE_VS_REST = (SIGMOID, SIGMOID_FOCAL, DIRECT_AP)
