"""Loss max-pooling as a registered loss."""

from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional._inputs import Inputs, Reading, check_number, check_option
from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights
from mmseg_nondecomp.losses._base import SetLoss, Value
from mmseg_nondecomp.losses._pixel_losses import PIXEL_LOSSES, RegisteredPixelLoss, check_reading, pixel_losses
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class LossMaxPooling(SetLoss):
    r"""The highest loss of an image over constrained re-weightings of its pixels.

    Hard pixels weigh more, whatever their class; the loss is an upper bound of the plain mean of the pixel losses, and
    equal to it at ``p=float('inf')`` or ``ratio=1``. See :mod:`mmseg_nondecomp.functional.max_pooling`. While MMEngine
    trains, the share of pixels at full weight is logged as ``train/<loss_name>_support``.

    Args:
        p: The norm that bounds the weights, from 1 (only the hardest pixels) to infinity (all alike).
        ratio: The least share of the valid pixels that carries weight, in (0, 1].
        pixel_loss: The loss that is pooled: ``'cross_entropy'`` (of softmax, or of the sigmoid of one channel),
            ``'bce'`` and ``'focal'`` (one decision per channel), or the config of a registered elementwise loss.
        **common: The arguments of :class:`mmseg_nondecomp.losses.SetLoss`. ``scope`` is ``'image'`` by default, as in
            the paper; ``class_weight`` is a factor on the pixel loss (a class of weight 0 stays in the set, at loss 0).

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 19, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> LossMaxPooling(p=1.3, ratio=0.25)(logits, label)
        tensor(2.9444, grad_fn=<MulBackward0>)

        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling')))
    """

    default_name = 'loss_lmp'
    default_scope = 'image'
    shown: tuple[str, ...] = ('p', 'ratio', 'pixel_loss', 'scope')

    def __init__(
        self, p: float = 1.3, ratio: float = 0.25, pixel_loss: str | dict[str, Any] = 'cross_entropy', **common: Any
    ) -> None:
        if pixel_loss == 'cross_entropy' and (common.get('use_sigmoid') or common.get('mode') == 'multilabel'):
            name = 'use_sigmoid' if common.get('use_sigmoid') else 'mode'
            raise TypeError(
                f"Parameter `{name}` should be None with `pixel_loss='cross_entropy'`; 'bce' has several labels. Found "
                f'{common[name]!r}. If it is inherited, add `_delete_=True` to your config.'
            )
        super().__init__(**common)
        check_number('p', p, '[1, inf]')
        check_number('ratio', ratio, '(0, 1]')
        if isinstance(pixel_loss, str):
            check_option('pixel_loss', pixel_loss, (*PIXEL_LOSSES, 'the config of a registered elementwise loss'))
        self.p, self.ratio = p, ratio
        self.one_vs_rest = pixel_loss != 'cross_entropy'
        class_weight = common.get('class_weight')
        self.pixel_loss = pixel_loss if isinstance(pixel_loss, str) else RegisteredPixelLoss(pixel_loss, class_weight)

    def reading(self, *call: Any) -> Reading:
        """Return how a call is read, if the pixel loss can be called that way."""
        return check_reading(super().reading(*call), self.pixel_loss)

    def value(self, inputs: Inputs, each_set: bool = False, **_: Any) -> Value:
        """Compute the pooled loss, or with ``each_set`` that of each set; the statistics are the support of each."""
        terms, n_sets, support = self._pooled(inputs)
        return Value(terms.sum(1) if each_set else self.reduce(terms.sum() / n_sets), support)

    def terms(self, inputs: Inputs) -> Tensor:
        """Compute the terms w* · ℓ."""
        terms, n_sets, _ = self._pooled(inputs)
        return terms / n_sets * self.reduce.n_processes

    def measures(self, inputs: Inputs, statistics: Tensor) -> dict[str, Tensor]:
        """Return the share of pixels at full weight."""
        return {'support': statistics.mean()}

    def _pooled(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return the terms w* · ℓ, the number of non-empty sets, and the support of each set."""
        losses, valid = pixel_losses(inputs, self.pixel_loss, self.class_weight), inputs.valid
        if self.scope != 'image':
            losses, valid = losses.reshape(1, -1), valid.reshape(1, -1)
        sizes = pooled_items(valid, self.ratio, self.reduce)
        weights, support = pooling_weights(losses.detach(), valid, self.p, sizes, self.reduce)
        return losses * weights, (sizes.n > 0).sum().clamp(min=1), support
