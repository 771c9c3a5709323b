"""The recommended loss for a measure, by its name."""

from typing import Any

from mmseg_nondecomp.functional._inputs import check_number
from mmseg_nondecomp.losses._iou_loss import IoULoss
from mmseg_nondecomp.losses._recommended import CrossEntropy, choose
from mmseg_nondecomp.losses._rising import RISING, RisingSum
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class MetricLoss(RisingSum):
    r"""The loss that docs/choosing.md recommends for a measure; ``print`` shows it, and the reason.

    For IoU of several classes it is :math:`(1 - w) L + w \mathrm{CE}`. :math:`L` is the mean of :math:`3 L_c -
    \log(1 - L_c)` over the :math:`k` classes in the mini-batch, with their Lovász-Softmax losses :math:`L_c`. The
    weight :math:`w` has no gradient. It rises with the soft IoU, from 0 while one class is predicted everywhere:

    .. math::
        \frac{w}{1 - w} = \frac{2 r}{r + 1/16}, \qquad r = \max\left(0, \frac{\sum_c (1 - L_c) - 1}{k - 1}\right)

    Args:
        measure: ``'miou'`` or ``'dice'``, also of images (``'image_miou'``) and with a mean over images for each class
            (``'class_miou'``); ``'f_beta'``, ``'precision_at_recall'``, ``'recall_at_precision'``, ``'auc_roc'``,
            ``'auc_pr'``, ``'ap'``, ``'top5'`` for any k, or ``'accuracy'``. Usual other names are accepted.
        cross_entropy: The factor of cross-entropy, ``'rising'`` for the mean; by default the recommended one.
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
        tensor(3.6333, grad_fn=<MulBackward0>)

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
        rises = cross_entropy == RISING and choice.loss is IoULoss
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

    def step(self) -> None:
        """Update the multipliers of S-measures after an optimizer step outside MMEngine; other losses have none."""
        for loss in self.losses:
            if isinstance(loss, SMeasureLoss):
                loss.step()

    def extra_repr(self) -> str:
        """Return the choice and its reason."""
        return f'{self.measure!r}: {self.parts()}, because {self.because}'


def metric_loss(measure: str, **options: Any) -> MetricLoss:
    """Return the recommended loss for a measure; the options are those of `MetricLoss`."""
    return MetricLoss(measure, **options)
