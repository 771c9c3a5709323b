"""Class weights from the pixel counts of the training set."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmseg_nondecomp.class_index import ClassIndex, index_classes
from mmseg_nondecomp.functional._inputs import check_option
from mmseg_nondecomp.hooks.loss_weight_hook import losses_of
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class ClassWeightHook(Hook):
    r"""Set the class weights of stock losses from the pixel counts of the training set.

    The counts are those of :func:`mmseg_nondecomp.index_classes`, which are cached and shared with the samplers. Pixels
    that are ignored in training are not counted. The weight of class c is

    - ``'median_frequency'``: :math:`\operatorname{median}(f) / f_c`, where :math:`f_c` is the share of the class in the
      pixels of the images that have it, and the median is over the classes of the training set;
    - ``'enet'``: :math:`1 / \ln(1.02 + p_c)`, where :math:`p_c` is the share of the class in all pixels.

    A class without a pixel has weight 1.

    Args:
        weighting: ``'median_frequency'`` or ``'enet'``.
        loss_name: The name of the losses. All losses of that name are set, also in auxiliary heads.

    Example:
        The stock cross-entropy fails on ignored pixels if it has class weights and ``reduction='mean'``. With
        ``'none'`` the model computes the mean over all pixels::

            model = dict(decode_head=dict(loss_decode=dict(reduction='none')))
            custom_hooks = [dict(type='ClassWeightHook', weighting='median_frequency')]

    References:
        D. Eigen, R. Fergus: Predicting depth, surface normals and semantic labels with a common multi-scale
        convolutional architecture. ICCV 2015. https://arxiv.org/abs/1411.4734

        A. Paszke, A. Chaurasia, S. Kim, E. Culurciello: ENet: A deep neural network architecture for real-time semantic
        segmentation. 2016. https://arxiv.org/abs/1606.02147
    """

    def __init__(self, weighting: str, loss_name: str = 'loss_ce') -> None:
        check_option('weighting', weighting, tuple(WEIGHTINGS))
        self.weighting, self.loss_name = weighting, loss_name

    def before_train(self, runner: Runner) -> None:
        """Count the classes and set the weights."""
        losses = list(losses_of(runner.model))
        named = [loss for loss in losses if loss.loss_name == self.loss_name]
        if not named:
            names = sorted({loss.loss_name for loss in losses})
            raise ValueError(
                f'Parameter `loss_name` should name a loss of the model, one of {names}. Found {self.loss_name!r}.'
            )
        index = index_classes(runner.train_dataloader.dataset)
        weights = WEIGHTINGS[self.weighting](index)
        for loss in named:
            _set_weights(loss, weights)
        table = ', '.join(f'{name} {weight:.3g}' for name, weight in zip(index.class_names, weights, strict=True))
        runner.logger.info(f'Class weights of {self.loss_name}: {table}')


def median_frequency_weights(index: ClassIndex) -> list[float]:
    """Return the weights of median frequency balancing."""
    rows = np.repeat(np.arange(len(index)), np.diff(index.starts))
    labelled = np.bincount(rows, index.counts, len(index))
    of_images_with_it = np.bincount(index.classes, labelled[rows], index.n_classes)
    weights, present = np.ones(index.n_classes), index.present_classes
    frequency = index.items_per_class[present] / of_images_with_it[present]
    weights[present] = np.median(frequency) / frequency
    return weights.tolist()


def enet_weights(index: ClassIndex) -> list[float]:
    """Return the weights of the ENet paper."""
    items = index.items_per_class
    weights = 1 / np.log(1.02 + items / items.sum())
    return np.where(items > 0, weights, 1.0).tolist()


WEIGHTINGS: dict[str, Callable[[ClassIndex], list[float]]] = {
    'median_frequency': median_frequency_weights,
    'enet': enet_weights,
}


def _set_weights(loss: Any, weights: list[float]) -> None:
    if getattr(loss, 'class_weight', weights) is not None or 'class_weight' in loss._buffers:
        raise ValueError(
            'Parameter `loss_name` should name stock losses with `class_weight=None`, as CrossEntropyLoss. Found '
            f'{type(loss).__name__} with {getattr(loss, "class_weight", "no `class_weight`")!r}.'
        )
    loss.class_weight = weights
