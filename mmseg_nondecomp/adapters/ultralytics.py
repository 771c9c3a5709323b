"""Losses of this package in the trainers of Ultralytics, for its tasks ``semantic`` and ``segment``."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmseg_nondecomp.adapters._loss import as_loss, refuse_multipliers
from mmseg_nondecomp.losses import MaskLoss, SumOfLosses
from mmseg_nondecomp.losses._recommended import CrossEntropy

IGNORED = 255  # label of pixels that Ultralytics ignores
OF_AUXILIARY_HEAD = 0.4  # factor of the auxiliary logits, as in the stock criterion


def use_loss(model: Any, loss: nn.Module | str) -> None:
    """Train a YOLO with a loss of this package, from its next call of ``train`` on.

    In the task ``semantic``, the loss takes the place of cross-entropy and Dice: see `SemanticCriterion`. In the task
    ``segment``, it takes the place of the binary cross-entropy of masks: see `InstanceMaskLoss`. Checkpoints do not
    hold the loss: after a restart, call this function before ``train(resume=True)``.

    Args:
        model: A ``YOLO`` of the task ``semantic`` or ``segment``.
        loss: A loss of this package, or the name of a measure, such as ``'miou'``.

    Example:
        >>> from ultralytics import YOLO  # doctest: +SKIP
        >>> model = YOLO('yolo26n-sem.yaml')  # doctest: +SKIP
        >>> use_loss(model, 'miou')  # doctest: +SKIP
        >>> model.train(data='cityscapes8.yaml')  # doctest: +SKIP
    """
    if not hasattr(model, 'add_callback'):
        raise TypeError(f"Parameter `model` should be a YOLO, as in `YOLO('yolo26n-sem.yaml')`. Found {type(model)!r}.")
    if model.task not in ('semantic', 'segment'):
        raise ValueError(
            "Parameter `model` should have the task 'semantic' (a model such as 'yolo26n-sem.yaml') or 'segment' "
            f"('yolo26n-seg.yaml'). Found the task {model.task!r}."
        )
    criterion_of(model.task, loss, n_classes=2)  # raises here instead of in the training
    model.add_callback('on_train_start', _SetCriterion(model.task, loss))


class SemanticCriterion:
    """Criterion of semantic segmentation: the loss of the logits, and 0.4 times that of the auxiliary logits.

    Logits are resized to the masks, and label 255 is ignored, as in the stock criterion. It is no module, so that the
    state of the loss is in no ``state_dict``.

    Args:
        loss: The loss.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def __call__(self, preds: Any, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of both losses times the size of the batch, and the two losses by name."""
        logits, auxiliary = preds if isinstance(preds, (tuple, list)) else (preds, None)
        masks = batch['semantic_mask'].to(logits.device)
        loss = self._loss(logits, masks)
        of_auxiliary = torch.zeros_like(loss) if auxiliary is None else OF_AUXILIARY_HEAD * self._loss(auxiliary, masks)
        items = dict(set_loss=loss.detach(), aux_loss=of_auxiliary.detach())
        return (loss + of_auxiliary) * len(masks), items

    def _loss(self, logits: Tensor, masks: Tensor) -> Tensor:
        if logits.shape[2:] != masks.shape[1:]:
            logits = F.interpolate(logits, masks.shape[1:], mode='bilinear', align_corners=False)
        return self.loss(logits, masks, ignore_index=IGNORED)


class InstanceMaskLoss:
    """Sum of the losses of the masks of an image: each mask is a set, of the pixels in the box of its object.

    The criterion divides the sum over images by the number of masks, and multiplies it by the gain ``box``. The loss of
    a set has no unit, so that it is not divided by the area of the box.

    Args:
        losses: Losses of masks, which are added up.
    """

    def __init__(self, losses: nn.ModuleList) -> None:
        self.losses = losses

    def __call__(self, gt_mask: Tensor, pred: Tensor, proto: Tensor, xyxy: Tensor, area: Tensor) -> Tensor:
        """Return the loss of masks [n, h, w], for coefficients [n, k] of prototypes [k, h, w] and boxes [n, 4]."""
        logits = torch.einsum('nk,khw->nhw', pred, proto)
        x, y = (torch.arange(size, device=xyxy.device).view(1, -1) for size in (gt_mask.shape[2], gt_mask.shape[1]))
        x1, y1, x2, y2 = xyxy.split(1, 1)
        is_inside = ((y >= y1) & (y < y2)).unsqueeze(2) & ((x >= x1) & (x < x2)).unsqueeze(1)
        target = torch.where(is_inside, gt_mask.long(), IGNORED)
        return sum(loss(logits, target, ignore_index=IGNORED, reduction_override='sum') for loss in self.losses)


def criterion_of(task: str, loss: nn.Module | str, n_classes: int) -> SemanticCriterion | InstanceMaskLoss:
    """Return the criterion of the task ``semantic``, or the loss of masks of the task ``segment``."""
    if task == 'semantic':
        built = as_loss(loss, mode='binary' if n_classes == 1 else 'multiclass', ignore_index=IGNORED)
        refuse_multipliers(built, 'Ultralytics')
        return SemanticCriterion(built)
    built = as_loss(loss, mode='binary', ignore_index=IGNORED)
    refuse_multipliers(built, 'Ultralytics')
    parts: Any = built.losses if isinstance(built, SumOfLosses) else [built]
    for part in parts:
        if isinstance(loss, str) or isinstance(part, CrossEntropy):
            part.scope = 'image'
    factor = built.loss_weight if isinstance(built, SumOfLosses) else 1.0
    return InstanceMaskLoss(nn.ModuleList(MaskLoss(part, loss_weight=factor) for part in parts))


class _SetCriterion:
    """Callback that sets the criterion of the trained model and of its moving average, which is validated."""

    def __init__(self, task: str, loss: nn.Module | str) -> None:
        self.task, self.loss = task, loss

    def __call__(self, trainer: Any) -> None:
        from ultralytics.utils.torch_utils import unwrap_model

        criterion = criterion_of(self.task, self.loss, trainer.data['nc'])
        modules = criterion.loss if isinstance(criterion, SemanticCriterion) else criterion.losses
        modules.to(trainer.device)
        for model in (unwrap_model(trainer.model), unwrap_model(trainer.ema.ema)):
            if isinstance(criterion, SemanticCriterion):
                model.criterion = criterion
                continue
            if getattr(model, 'criterion', None) is None:
                model.criterion = model.init_criterion()
            for part in (getattr(model.criterion, name, None) for name in ('one2many', 'one2one')):
                (model.criterion if part is None else part).single_mask_loss = criterion
