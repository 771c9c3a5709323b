"""The Lovász hinge: the Lovász extension of the Jaccard loss at the hinge errors of one decision."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import class_average
from mmseg_nondecomp.functional.items import can_be_read, class_items, valid_items
from mmseg_nondecomp.functional.lovasz import sorted_losses


def lovasz_hinge(logits: Tensor, target: Tensor, per_image: bool = False, ignore_index: int | None = None) -> Tensor:
    r"""The Lovász hinge of a foreground against its background (equation 10 of the paper), exactly.

    With :math:`y \in \{-1, 1\}`, the error of a pixel is its hinge loss :math:`\max(1 - y F, 0)`. Foreground is
    decided where :math:`F > 0`.

    Args:
        logits: The score :math:`F` of each pixel, of shape [N, *].
        target: 1 for the foreground, 0 for the background, of the same shape.
        per_image: Whether each image is a set (and the sets are averaged), or all of them are one.
        ignore_index: The label of the pixels that do not exist; 255 by default.

    Returns:
        A scalar; 0, attached to the graph, if no pixel is left. Without any foreground it is the largest error.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If the shapes differ or a label is neither 0 nor 1.

    Example:
        >>> lovasz_hinge(torch.tensor([[2.0, -0.5, -3.0]]), torch.tensor([[1, 1, 0]]))
        tensor(0.7500)

    Reference:
        M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018.
        https://arxiv.org/abs/1705.08790
    """
    if logits.dim() == 0 or logits.shape != target.shape:
        raise ValueError(
            'Parameters `logits` and `target` should have the same shape [N, *]. '
            f'Found {tuple(logits.shape)} and {tuple(target.shape)}.'
        )
    if target.is_floating_point() and can_be_read(target) and (target != target.round()).any():
        raise ValueError(f'Parameter `target` should hold 0 and 1. Found {target[target != target.round()][0].item()}.')
    scores = logits.unsqueeze(1)
    valid = valid_items(scores, target.long(), None, ignore_index, 2, 'logits')
    items = class_items(
        1 + scores.to(torch.promote_types(scores.dtype, torch.float32)), target.long(), valid, None, False
    )
    return class_average(*sorted_losses(items, 2.0, per_image), 'all')
