"""Losses for the Trainer of Hugging Face Transformers: ``Trainer(..., compute_loss_func=TrainerLoss('miou'))``.

This module does not import Transformers.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmseg_nondecomp.adapters._loss import as_loss
from mmseg_nondecomp.functional._inputs import IGNORED_BY_DEFAULT, at_least_float32, check_ignore_index, check_number
from mmseg_nondecomp.losses._base import RegisteredLoss

PADDING = -100  # label that Trainer does not count
SMALLEST_SUM = 1e-30  # bound on the sum over queries, so that no gradient overflows in float32


class TrainerLoss(nn.Module):
    """Loss of the outputs of a model and the labels of a batch, for ``Trainer(compute_loss_func=...)``.

    Logits [N, C, h, w] are resized to the size of the labels; logits [N, C] of a classifier are not. For mask models,
    such as Mask2Former, the logits are the logarithms of the scores of ``post_process_semantic_segmentation``, which
    suits losses of a softmax, and the loss that the model computes from ``mask_labels`` and ``class_labels`` is added.

    Trainer does not average the values of a ``compute_loss_func`` over accumulated batches. The loss is therefore
    multiplied by the share of this batch in the labels of the optimizer step, counted as Trainer counts them.

    Args:
        loss: A loss, or the name of a measure such as ``'miou'``. Modules of other packages are called with label -100
            for ignored items.
        config: The config of the model: with ``num_labels=1`` the loss of a measure is binary.
        ignore_index: The label to ignore beside -100. By default that of the loss, else that of the config, else 255.
        model_loss_weight: The factor of the model's own loss of a mask model; 0 leaves it out.

    Example:
        >>> from mmseg_nondecomp import SoftIoULoss
        >>> logits, labels = torch.zeros(2, 4, 8, 8), torch.zeros(2, 32, 32, dtype=torch.long)
        >>> TrainerLoss(SoftIoULoss())({'logits': logits}, labels)
        tensor(0.7500)
    """

    def __init__(
        self,
        loss: nn.Module | str = 'miou',
        config: Any = None,
        ignore_index: int | None = None,
        model_loss_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(config, (nn.Module, str, Mapping)):
            raise TypeError(f'Parameter `config` should be `model.config` or None. Found {type(config).__name__}.')
        check_ignore_index(ignore_index)
        check_number('model_loss_weight', model_loss_weight, '[0, inf)')
        self.loss = as_loss(loss, mode='binary' if getattr(config, 'num_labels', None) == 1 else None)
        self.options = dict(ignore_index=PADDING) if isinstance(self.loss, RegisteredLoss) else {}
        # Names in the configs of SegFormer, UperNet and Mask2Former.
        names = ('semantic_loss_ignore_index', 'loss_ignore_index', 'ignore_value')
        of_parts = [getattr(part, 'ignore_index', None) for part in self.loss.modules() if self.options]
        stated = [ignore_index, *of_parts]
        labels = [*stated, *(getattr(config, name, None) for name in names), IGNORED_BY_DEFAULT]
        self.ignore_index: int = next(label for label in labels if label is not None)
        self.is_default = self.ignore_index == IGNORED_BY_DEFAULT and set(stated) == {None} and bool(self.options)
        self.model_loss_weight = model_loss_weight

    def forward(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            outputs: Outputs of the model: a ``ModelOutput``, a dict, or a tuple that starts with the logits.
            labels: Class indices [N, H, W], or soft labels [N, C, H, W]; of a classifier, [N] or [N, C].
            num_items_in_batch: The number of labels of the optimizer step.
        """
        if not isinstance(labels, Tensor):
            found = 'None' if labels is None else type(labels).__name__
            raise TypeError(
                f'Parameter `labels` should be a tensor. Found {found}: the data set or the collator has to return the '
                'labels of a batch as a tensor with the key `labels`. Trainer removes this key unless `forward` of the '
                'model has such an argument: pass `remove_unused_columns=False` to `TrainingArguments`.'
            )
        if not isinstance(outputs, Mapping):
            outputs = dict(logits=outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs)
        logits = read_logits(outputs, labels)
        share = (labels != PADDING).sum()
        labels = labels if labels.is_floating_point() else labels.long()
        loss = self.loss.to(logits.device)  # Trainer moves the model only
        if self.is_default and logits.shape[1] <= IGNORED_BY_DEFAULT:  # the loss refuses masks of 0 and 255
            value = loss(logits, labels.masked_fill(labels == PADDING, IGNORED_BY_DEFAULT))
        else:
            value = loss(logits, labels.masked_fill(labels == self.ignore_index, PADDING), **self.options)
        if 'masks_queries_logits' in outputs and outputs.get('loss') is not None:
            value = value + self.model_loss_weight * outputs['loss'].mean()
        if num_items_in_batch is None:
            return value
        # With `DataParallel`, the number has an element for each GPU, and Trainer multiplies the loss by their number.
        return value * (share / torch.as_tensor(num_items_in_batch, device=share.device).sum().clamp(min=1))


def read_logits(outputs: Mapping[str, Any], labels: Tensor) -> Tensor:
    """Return the logits of the outputs, of shape [N, C] or [N, C, H, W], where H and W are the size of the labels."""
    classes, logits = outputs.get('class_queries_logits'), outputs.get('masks_queries_logits', outputs.get('logits'))
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 4):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else [*outputs]
        raise ValueError(
            'Parameter `outputs` should have `logits` of shape [N, C, h, w] or [N, C], or `class_queries_logits` and '
            f'`masks_queries_logits`. Found {found}. Train a model for semantic segmentation or classification.'
        )
    if logits.dim() == 2:
        return logits
    n_classes = logits.shape[1] if classes is None else classes.shape[-1] - 1
    is_map = labels.dim() == 3 or (labels.dim() == 4 and labels.shape[1] in (1, n_classes))
    if not is_map or len(labels) != len(logits):
        raise ValueError(
            f'Parameter `labels` should be of shape ({len(logits)}, H, W), with class indices, or '
            f'({len(logits)}, {n_classes}, H, W). Found {tuple(labels.shape)}.'
        )
    if classes is not None and n_classes < 2:
        raise ValueError(
            'Parameter `num_labels` of a mask model should be at least 2, with a class for the background. '
            f'Found {n_classes}.'
        )
    logits = F.interpolate(at_least_float32(logits), labels.shape[-2:], mode='bilinear', align_corners=False)
    return logits if classes is None else semantic_scores(at_least_float32(classes), logits)


def semantic_scores(classes: Tensor, masks: Tensor) -> Tensor:
    """Return the logarithm of the sum of softmax(classes)[:, q, c] * sigmoid(masks)[:, q] over the queries q.

    The largest factors are taken out of the sum, a matrix product, which is thereby in the range of float32.
    """
    with torch.autocast(masks.device.type, enabled=False):
        of_class, of_mask = classes.log_softmax(-1)[..., :-1], F.logsigmoid(masks)
        top_class, top_mask = of_class.detach().amax(1, keepdim=True), of_mask.detach().amax(1, keepdim=True)
        total = torch.einsum('nqc,nqhw->nchw', (of_class - top_class).exp(), (of_mask - top_mask).exp())
        return total.clamp(min=SMALLEST_SUM).log() + top_class.mT.unsqueeze(-1) + top_mask
