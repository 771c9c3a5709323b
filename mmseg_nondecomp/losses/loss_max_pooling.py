"""Loss max-pooling as a registered loss."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import class_weights
from mmseg_nondecomp.functional.items import number_of_classes, valid_items
from mmseg_nondecomp.functional.max_pooling import check_p, check_ratio, pooled_items, pooling_weights
from mmseg_nondecomp.functional.pixel_losses import binary_cross_entropy, cross_entropy, focal
from mmseg_nondecomp.losses.base import SetLoss
from mmseg_nondecomp.losses.monitor import is_logged, log_scalar
from mmseg_nondecomp.losses.registered_pixel_loss import RegisteredPixelLoss
from mmseg_nondecomp.losses.scope import reduction_over, rows_of
from mmseg_nondecomp.registry import MODELS

PIXEL_LOSSES: dict[str, Callable[..., Tensor]] = {
    'cross_entropy': cross_entropy,
    'bce': binary_cross_entropy,
    'focal': focal,
}


@MODELS.register_module()
class LossMaxPooling(SetLoss):
    r"""The highest loss of an image that a constrained re-weighting of its pixels can reach.

    Hard pixels weigh more, whatever their class; the loss is an upper bound of the plain mean of the pixel losses, and
    equal to it at ``p=float('inf')`` or ``ratio=1``. See :mod:`mmseg_nondecomp.functional.max_pooling`.

    The share of pixels at full weight is logged as ``train/<loss_name>_support``.

    Args:
        p: The norm that bounds the weights, from 1 (only the hardest pixels) to infinity (all alike).
        ratio: The least share of the valid pixels that carries weight, in (0, 1].
        pixel_loss: What is pooled: ``'cross_entropy'`` (of softmax, or of the sigmoid of one channel), ``'bce'`` and
            ``'focal'`` (one decision per channel), or the config of a registered elementwise loss.
        class_weight: A factor on the pixel loss for each class. A class of weight 0 stays in the set, at loss 0.
        scope: ``'image'`` (the mean over images, as in the paper), ``'batch'``, or ``'world'`` (all processes; each
            of them has to call the loss in each step, or the others wait for it).
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.
        use_sigmoid: Only for MMDetection's dense heads, which read it from the config to choose their number of
            channels; it has to agree with ``pixel_loss``. With a single class, label 0 is then the object and 1 the
            background, as MMDetection has it.

    Raises:
        TypeError: If an argument is unknown.
        ValueError: If an argument is out of range.

    Example:
        >>> loss = LossMaxPooling(p=1.3, ratio=0.25)
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> loss(logits, label)
        tensor(2.9444, grad_fn=<MulBackward0>)

        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling')))

    Reference:
        S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017.
        https://arxiv.org/abs/1704.02966
    """

    class_weight: Tensor | None

    def __init__(
        self,
        p: float = 1.3,
        ratio: float = 0.25,
        pixel_loss: str | dict[str, Any] = 'cross_entropy',
        class_weight: Sequence[float] | None = None,
        scope: str = 'image',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_lmp',
        use_sigmoid: bool | None = None,
        **leaked: Any,
    ) -> None:
        if use_sigmoid is not None and (not use_sigmoid or pixel_loss == 'cross_entropy'):
            leaked['use_sigmoid'] = use_sigmoid
        super().__init__(loss_weight, loss_name, scope, leaked)
        check_p(p)
        check_ratio(ratio)
        if isinstance(pixel_loss, str) and pixel_loss not in PIXEL_LOSSES:
            raise ValueError(
                f'Parameter `pixel_loss` should be one of {tuple(PIXEL_LOSSES)} or the config of a registered '
                f'elementwise loss. Found {pixel_loss!r}.'
            )
        self.p = p
        self.ratio = ratio
        self.use_sigmoid = bool(use_sigmoid)
        self.pixel_loss = pixel_loss if isinstance(pixel_loss, str) else RegisteredPixelLoss(pixel_loss, class_weight)
        self.register_buffer('class_weight', class_weights(class_weight), persistent=False)

    def value(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, **_: Any
    ) -> Tensor:
        """Compute the pooled loss, or the terms w* · ℓ."""
        losses, valid = self.pixel_losses(pred, target, weight, ignore_index)
        reduce = reduction_over(self.scope)
        rows, valid_rows = rows_of(losses, self.scope), rows_of(valid, self.scope)
        sizes = pooled_items(valid_rows, self.ratio, reduce)
        weights, support = pooling_weights(rows.detach(), valid_rows, self.p, sizes, reduce)
        if is_logged():
            log_scalar(f'{self.loss_name}_support', support.mean())
        n_sets = (sizes.n > 0).sum().clamp(min=1)
        terms = rows * weights
        if reduction == 'none':
            return (terms / n_sets * reduce.world_size).view_as(losses)
        return reduce.total(terms.sum() / n_sets)

    def pixel_losses(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None
    ) -> tuple[Tensor, Tensor]:
        """What is pooled, in float32 or better, and which pixels are in the set; both of shape [N, *]."""
        n_classes = number_of_classes(pred)
        # One channel decides between two labels; label C is the background of sigmoid heads.
        one_vs_rest = n_classes == 1 or self.pixel_loss != 'cross_entropy'
        valid = valid_items(pred, target, weight, ignore_index, n_classes + one_vs_rest)
        if self.class_weight is not None and len(self.class_weight) != n_classes:
            raise ValueError(
                f'Parameter `class_weight` should have one number for each of the {n_classes} classes of `pred`. '
                f'Found {len(self.class_weight)}.'
            )
        if pred.dtype in (torch.float16, torch.bfloat16):
            pred = pred.float()
        if self.use_sigmoid and n_classes == 1 and not target.is_floating_point():
            target = 1 - target.long()
        if isinstance(self.pixel_loss, str):
            class_weight = None if self.class_weight is None else self.class_weight.to(pred.dtype)
            losses = PIXEL_LOSSES[self.pixel_loss](pred, target, valid, class_weight)
        else:
            losses = self.pixel_loss(pred, target, valid)
        return (losses if weight is None else torch.where(valid, losses * weight, 0)), valid

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'p={self.p}, ratio={self.ratio}, pixel_loss={self.pixel_loss!r}, scope={self.scope!r}'
