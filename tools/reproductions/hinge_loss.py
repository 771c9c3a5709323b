"""Mean hinge loss of one class against the rest, in the call form of MMSegmentation's heads."""

from typing import Any

from mmengine.registry import MODELS
from torch import Tensor, nn


def hinge(logits: Tensor, label: Tensor, ignore_index: int = 255) -> Tensor:
    """Return the mean of max(0, 1 - z y) over the pixels that are not ignored, with y = 1 for label 1, else -1.

    Args:
        logits: Scores z [N, 1, H, W].
        label: Labels 0 and 1 [N, H, W].
        ignore_index: Label of the pixels that do not count.
    """
    valid = label != ignore_index
    margins = logits.squeeze(1) * (2 * label - 1)
    return (1 - margins).clamp(min=0).masked_fill(~valid, 0).sum() / valid.sum().clamp(min=1)


@MODELS.register_module()
class MeanHingeLoss(nn.Module):
    """See `hinge`."""

    loss_name = 'loss_hinge'

    def forward(self, logits: Tensor, label: Tensor, weight: None = None, ignore_index: int = 255, **_: Any) -> Tensor:
        """Return the loss; there are no weights of pixels."""
        return hinge(logits, label, ignore_index)
