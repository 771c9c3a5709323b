"""Layouts of the masks that mask heads hand to their losses."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional._inputs import check_probabilities, check_tensor
from mmseg_nondecomp.losses._base import SetLoss
from mmseg_nondecomp.registry import MODELS


def loss_of_images(loss: Any) -> SetLoss:
    """Return the loss of a config, or the loss itself; raise unless it has a value for each image."""
    kind: Any = type(loss)
    if isinstance(loss, dict):
        kind = MODELS.get(loss['type']) if isinstance(loss.get('type'), str) else loss.get('type')
    if not isinstance(kind, type) or not issubclass(kind, SetLoss) or not kind.has_value_of_images:
        found = loss.get('type') if isinstance(loss, dict) else getattr(loss, '__name__', kind.__name__)
        raise TypeError(
            'Parameter `loss` should be the config of a loss that has a value for each image, such as LovaszHingeLoss, '
            f'SoftIoULoss or LossMaxPooling. Found {found!r}.'
        )
    built = MODELS.build(dict(loss) | dict(scope=loss.get('scope', 'image'))) if isinstance(loss, dict) else loss
    if built.scope != 'image':
        raise ValueError(f"Parameter `scope` of the loss should be 'image': each mask is a set. Found {built.scope!r}.")
    return built


def read_masks(pred: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Return masks [n, 1, P], their targets [n, P], their weights, and the points that `avg_factor` counts in each.

    The layouts of the heads are: [n, *] for both; [n, C, h, w] and [n, h, w] with the class of each mask [n] as weight
    (FCNMaskHead); [n points] for both (``loss_mask`` of Mask2Former); and [n h w, 1] and [n h w], where 0 is the object
    (``loss_mask`` of MaskFormer). The last two are views of masks.
    """
    check_tensor('target', target)
    n_masks, n_points = len(pred), 1
    if pred.dim() == 4 and target.shape == (n_masks, *pred.shape[2:]) and weight is not None:  # FCNMaskHead
        check_tensor('weight', weight)
        if weight.shape != pred.shape[:1] or weight.is_floating_point():
            raise ValueError(
                'Parameter `weight` should hold the class of each mask, integers of shape [n], for `pred` of shape '
                f'[n, C, h, w]. Found {weight.dtype} of shape {tuple(weight.shape)}.'
            )
        pred, weight = pred[torch.arange(n_masks, device=pred.device), weight], None
    elif pred.dim() == 1 or (target.dim() == 1 and pred.shape == (len(target), 1)):
        n_masks = _number_of_masks(pred)
        n_points = pred.numel() // n_masks
        if pred.dim() == 2:  # MaskFormer, whose focal loss has the object as its class 0
            target = ~target if target.dtype == torch.bool else 1 - target
    if pred.numel() != target.numel() or (n_points == 1 and len(pred) != len(target)):
        raise ValueError(
            'Parameter `target` should have the shape of `pred`, one mask for each. '
            f'Found {tuple(target.shape)} for {tuple(pred.shape)}.'
        )
    if weight is not None and weight.shape not in ((), (1,), (n_masks,)):
        raise ValueError(
            f'Parameter `weight` should be of shape [{n_masks}], a number for each mask. Found {tuple(weight.shape)}.'
        )
    return pred.reshape(n_masks, 1, -1), target.reshape(n_masks, -1), weight, n_points


def logits_of_masks(probs: Tensor) -> Tensor:
    """Return the logits of probabilities."""
    check_probabilities('pred', probs)
    return probs.logit(torch.finfo(probs.dtype).eps)


def _number_of_masks(pred: Tensor) -> int:
    """Return the number of masks whose pixels a head has put in one dimension: the tensor is a view of the masks."""
    masks = None if is_compiling() else pred._base
    if masks is None or masks.dim() < 2 or masks.numel() != pred.numel():
        raise ValueError(
            'Parameter `pred` should be of shape [n, *], one mask a row, or a view of such a tensor. Found '
            f'{tuple(pred.shape)}, in which masks cannot be told apart: use MaskLoss as `loss_dice` of this head.'
        )
    return len(masks)
