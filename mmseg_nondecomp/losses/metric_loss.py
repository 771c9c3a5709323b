"""The recommended loss for a measure, by its name."""

from typing import Any, cast

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import share_above_one_class
from mmseg_nondecomp.functional._inputs import check_number
from mmseg_nondecomp.losses._base import log_scalar
from mmseg_nondecomp.losses._jaccard import JaccardLoss
from mmseg_nondecomp.losses._recommended import RISING, CrossEntropy, choose
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss
from mmseg_nondecomp.losses.sum_of_losses import SumOfLosses
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class MetricLoss(SumOfLosses):
    r"""The loss that docs/choosing.md recommends for a measure, with cross-entropy beside it where that is better.

    ``print`` shows the losses that were chosen, and the reason.

    For IoU of several classes the loss is :math:`3 L + r\,\mathrm{CE}`. The Lovász-Softmax loss :math:`L` is the mean
    of :math:`L_c` over the :math:`k` classes in the mini-batch. The factor of cross-entropy rises with the soft IoU of
    the classes, :math:`1 - L_c`. It is 0 while one class is predicted everywhere, as the sum is then at most 1, and it
    is 1 without errors:

    .. math::
        r = \max\left(0, \frac{\sum_c (1 - L_c) - 1}{k - 1}\right)

    No gradient passes through :math:`r`. With a constant factor, cross-entropy first learns the frequencies of the
    classes. The probabilities of rare classes are then close to 0, where the softmax passes on little of the gradient
    of :math:`L`. No setting depends on the data or on the length of the training.

    Args:
        measure: ``'miou'`` or ``'dice'``, also of images (``'image_miou'``) and with a mean over images for each class
            (``'class_miou'``); ``'f_beta'``, ``'precision_at_recall'``, ``'recall_at_precision'``, ``'auc_roc'``,
            ``'auc_pr'``, ``'ap'``, ``'top5'`` for any k, or ``'accuracy'``. Usual other names are accepted.
        cross_entropy: The factor of cross-entropy: a number, 0 for none, or ``'rising'`` for :math:`r`, with the
            losses of the measure as :math:`L_c`. By default the recommended one.
        mode: How calls are read: see `SetLoss`. With ``'binary'``, IoU has the loss of Dice.
        ignore_index: The label that removes an item from the set, unless the call has one.
        loss_weight: The factor of the sum in the objective.
        loss_name: The key in the log; by default ``'loss_metric'``.
        **settings: Arguments of the chosen loss, such as ``target=0.9`` of ``'precision_at_recall'`` or ``memory=8``.

    Example:
        >>> import torch
        >>> criterion = metric_loss('mIoU', ignore_index=255)
        >>> logits, label = torch.zeros(2, 4, 8, 8, requires_grad=True), torch.zeros(2, 8, 8, dtype=torch.long)
        >>> criterion(logits, label)
        tensor(2.2500, grad_fn=<MulBackward0>)

        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='MetricLoss', measure='miou')))
    """

    default_name = 'loss_metric'

    def __init__(
        self,
        measure: str,
        *,
        cross_entropy: float | str | None = None,
        mode: str | None = None,
        ignore_index: int | None = None,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        **settings: Any,
    ) -> None:
        choice = choose(measure, mode)
        if cross_entropy is None:
            cross_entropy = choice.cross_entropy
        elif choice.loss is CrossEntropy:
            raise ValueError(f'Parameter `cross_entropy` should be None for {measure!r}. Found {cross_entropy!r}.')
        rises = cross_entropy == RISING and issubclass(choice.loss, JaccardLoss)
        factor: Any = 1.0 if rises else cross_entropy
        check_number('cross_entropy', factor, '[0, inf)')
        try:
            losses = [choice.loss(mode=mode, loss_weight=choice.factor, **{**choice.settings, **settings})]
        except TypeError as error:
            raise TypeError(f'The loss for {measure!r} is {choice.loss.__name__}. {error}') from error
        if factor:
            losses = [CrossEntropy(mode=mode, loss_weight=factor), *losses]
        super().__init__(losses, ignore_index, loss_weight, loss_name)
        self.measure, self.because, self.rises = measure, choice.because, rises

    def values(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the value of each loss, with the present factor of cross-entropy if it rises."""
        if not self.rises:
            return super().values(*args, **kwargs)
        cross_entropy, measured = self.losses[0], cast(Any, self.losses[1])
        value = measured.evaluate(*args, **kwargs)
        of_classes = value.of_classes
        if of_classes is None:  # of the terms of items
            with torch.no_grad():
                of_classes = measured.evaluate(*args, **{**kwargs, 'reduction_override': None}).of_classes
        are_exclusive = not measured.one_vs_rest and of_classes.losses.shape[1] > 1
        factor = share_above_one_class(of_classes, are_exclusive)
        log_scalar(f'{self.loss_name}_factor_ce', factor)
        return [factor * cross_entropy(*args, **kwargs), value.loss]

    def step(self) -> None:
        """Update the multipliers of S-measures after an optimizer step outside MMEngine; other losses have none."""
        for loss in self.losses:
            if isinstance(loss, SMeasureLoss):
                loss.step()

    def extra_repr(self) -> str:
        """Return the choice and its reason."""
        factors = [f'{loss.loss_weight:g}' for loss in self.losses]
        factors = [RISING, *factors[1:]] if self.rises else factors
        parts = ' + '.join(f'{a} * {type(loss).__name__}' for a, loss in zip(factors, self.losses, strict=True))
        return f'{self.measure!r}: {parts}, because {self.because}'


def metric_loss(measure: str, **options: Any) -> MetricLoss:
    """Return the recommended loss for a measure; the options are those of `MetricLoss`."""
    return MetricLoss(measure, **options)
