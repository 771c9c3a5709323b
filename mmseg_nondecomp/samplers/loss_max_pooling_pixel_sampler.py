"""Loss max-pooling as the pixel sampler of a decode head."""

from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import check_number
from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights
from mmseg_nondecomp.registry import TASK_UTILS


@TASK_UTILS.register_module()
class LossMaxPoolingPixelSampler:
    """Pixel weights of loss max-pooling for the pixel losses of a decode head.

    The head's elementwise losses are added up pixel by pixel and pooled image by image. The weights are scaled by the
    number of valid pixels of the image, so that ``p=float('inf')`` gives every pixel the weight 1 and leaves the
    head's losses as they are. Losses of a whole set do not contribute.

    Args:
        context: The decode head; MMSegmentation passes it.
        p: The norm that bounds the weights, from 1 to infinity.
        ratio: The least share of the valid pixels that carries weight, in (0, 1].

    Example:
        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(sampler=dict(type='LossMaxPoolingPixelSampler', p=1.3, ratio=0.25)))
    """

    def __init__(self, context: Any, p: float = 1.3, ratio: float = 0.25) -> None:
        check_number('p', p, '[1, inf]')
        check_number('ratio', ratio, '(0, 1]')
        self.context = context
        self.p = p
        self.ratio = ratio

    @torch.no_grad()
    def sample(self, seg_logit: Tensor, seg_label: Tensor) -> Tensor:
        """Return the weights [N, H, W] for logits [N, C, H, W] and labels [N, 1, H, W]."""
        label = seg_label.squeeze(1).long()
        ignored = self.context.ignore_index
        valid = torch.ones_like(label, dtype=torch.bool) if ignored is None else label != ignored
        losses = self._pixel_losses(seg_logit, label).float().flatten(1)
        rows = valid.flatten(1)
        m = pooled_items(rows, self.ratio)
        weights = pooling_weights(losses, rows, self.p, m).weights
        return (weights * rows.sum(1, keepdim=True)).view(label.shape)

    def _pixel_losses(self, seg_logit: Tensor, label: Tensor) -> Tensor:
        modules = self.context.loss_decode
        losses = [
            loss(seg_logit, label, weight=None, ignore_index=self.context.ignore_index, reduction_override='none')
            for loss in (modules if isinstance(modules, nn.ModuleList) else [modules])
            if getattr(loss, 'has_terms', True)
        ]
        per_pixel = [loss.mean(1) if loss.shape == seg_logit.shape else loss for loss in losses]
        per_pixel = [loss for loss in per_pixel if loss.shape == label.shape]
        if not per_pixel:
            raise ValueError(
                'LossMaxPoolingPixelSampler needs at least one elementwise loss in `loss_decode`, such as '
                f'CrossEntropyLoss. Found {modules}.'
            )
        return torch.stack(per_pixel).sum(0)
