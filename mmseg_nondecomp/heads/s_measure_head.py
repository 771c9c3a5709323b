"""A head that trains a segmentation model on the sizes of the classes in an image. Importing it needs MMSegmentation.

It is section 4 of the paper that :mod:`mmseg_nondecomp.functional.s_measures.problem` cites.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import torch
from mmcv.cnn import ConvModule
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import check_absent, check_integer, check_number, check_option, is_due, refuse
from mmseg_nondecomp.losses import SMeasureLoss
from mmseg_nondecomp.losses._base import RegisteredLoss, training_iteration
from mmseg_nondecomp.losses._distributed import sum_over
from mmseg_nondecomp.registry import MODELS

GROUPS = ('majority', 'size', 'classes')


@MODELS.register_module()
class SMeasureHead(BaseDecodeHead):
    """Auxiliary head that separates images with big classes from others, for any model of MMSegmentation.

    The score of an image is a linear layer of the mean of its features over all positions; above 0 it predicts s = 1,
    "big". The loss of these decisions, such as their F_β, regularises the features. The area of a class is its fraction
    of the pixels that are not ignored, in the image as cropped and augmented. By ``group``, s is

    - ``'majority'``: whether most classes in the image are big: have an area above the threshold (the paper's
      experiment 3). An image with only ignored pixels is left out.
    - ``'size'``: whether the area of one class, or of all classes but class 0, is above the threshold (experiments 1
      and 2). As in the paper, images without the class are left out.
    - ``'classes'``: for each class, with its own score, whether its area is above the threshold. An absent class is
      not.

    Args:
        group: The meaning of s.
        size_threshold: The area above which a class is big, or ``'mean'``: the mean area over the images that have the
            class, among all images of this training so far, in all processes.
        of_class: With ``'size'``, the class; by default all classes but class 0, the background.
        channels: The channels of a 1x1 convolution with ``norm_cfg`` and ``act_cfg`` before the mean over positions.
            By default there is none.
        loss_decode: By default ``dict(type='SMeasureLoss', measure='f_beta', loss_weight=1e-2)``. With
            ``per_example=True`` the examples are the images, identified by their paths. With ``use_sigmoid=True`` also
            ``CrossEntropyLoss`` or another loss of this package.
        **kwargs: Arguments of MMSegmentation's ``BaseDecodeHead``, such as ``in_channels``, ``in_index``,
            ``num_classes`` and ``dropout_ratio``.

    Example:
        In an MMSegmentation config, the paper's experiment 2 on class 3::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])
            model = dict(auxiliary_head=dict(
                _delete_=True, type='SMeasureHead', in_channels=2048, in_index=3, num_classes=19,
                group='size', of_class=3, size_threshold='mean',
                loss_decode=dict(type='SMeasureLoss', measure='f_beta', loss_weight=1e-2)))
            custom_hooks = [dict(type='DualAscentHook', interval=1, by_epoch=True)]
    """

    drawn: Tensor
    """Sum of the areas of each class and number of images that have it, float64 of shape [2, K]."""

    def __init__(
        self,
        group: str = 'majority',
        size_threshold: float | str = 0.05,
        of_class: int | None = None,
        channels: int | None = None,
        loss_decode: dict | Sequence[dict] | None = None,
        **kwargs: Any,
    ) -> None:
        check_option('group', group, GROUPS)
        if size_threshold != 'mean':
            check_number('size_threshold', size_threshold, '[0, 1)', " or 'mean'")
        check_absent('SMeasureHead has scores of images', kwargs, ('out_channels', 'threshold', 'sampler'))
        transform = kwargs.get('input_transform')
        if transform == 'multiple_select':
            raise ValueError("Parameter `input_transform` should be None or 'resize_concat'. Found 'multiple_select'.")
        in_channels: Any = kwargs.get('in_channels')
        pooled = sum(in_channels) if transform else in_channels
        super().__init__(
            channels=pooled if channels is None else channels,
            out_channels=kwargs.get('num_classes') if group == 'classes' else 1,
            threshold=0.5,
            loss_decode=loss_decode or dict(type='SMeasureLoss', measure='f_beta', loss_weight=1e-2),
            **kwargs,
        )
        _check_class(of_class, group, self.num_classes)
        self.group, self.size_threshold, self.of_class = group, size_threshold, of_class
        for loss in self._losses():
            _check_loss(loss)
        layers = dict(conv_cfg=self.conv_cfg, norm_cfg=self.norm_cfg, act_cfg=self.act_cfg)
        has_layer = channels is not None
        self.reduce_channels = ConvModule(self.in_channels, channels, 1, **layers) if has_layer else nn.Identity()
        if size_threshold == 'mean':
            n_sizes = 1 if group == 'size' else self.num_classes
            self.register_buffer('drawn', torch.zeros(2, n_sizes, dtype=torch.float64))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the scores of images, of shape [N, K, 1, 1]."""
        features = self.reduce_channels(self._transform_inputs(inputs))
        return self.cls_seg(features.mean((2, 3), keepdim=True))

    def loss_by_feat(self, seg_logits: Tensor, batch_data_samples: Sequence[Any]) -> dict[str, Tensor]:
        """Compute the losses of a mini-batch by their names; losses of the same name are added."""
        scores = seg_logits.flatten(1).float()
        sizes, counted = self.sizes(self._stack_batch_gt(batch_data_samples).squeeze(1))
        if self.size_threshold == 'mean' and self.training and torch.is_grad_enabled():
            self._learn(sizes)
        target, weight = self.are_big(sizes).to(scores), counted.to(scores)
        losses: dict[str, Tensor] = {}
        for loss in self._losses():
            ids = {}
            if getattr(loss, 'per_example', False):
                ids = dict(ids=ids_of(batch_data_samples).to(scores.device))
            value = _call(loss, scores, target, weight, ids)
            losses[loss.loss_name] = losses[loss.loss_name] + value if loss.loss_name in losses else value
        return losses

    def sizes(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the areas from which s is decided, float64, and the mask of the images that count, bool [N].

        They are those of all classes in each image [N, C], or with ``group='size'`` the area to be compared [N, 1], for
        labels [N, H, W]. Labels are checked as those of losses are.
        """
        counts = _count_classes(labels, self.num_classes, self.ignore_index)
        n_valid = counts.sum(1)
        areas = counts.double() / n_valid.clamp(min=1).unsqueeze(1)
        if self.group != 'size':
            return areas, n_valid > 0
        area = areas[:, 1:].sum(1) if self.of_class is None else areas[:, self.of_class]
        return area.unsqueeze(1), area > 0

    def are_big(self, sizes: Tensor) -> Tensor:
        """Return the s of images with these areas: bool of shape [N, C] with ``group='classes'``, else [N, 1]."""
        threshold: Any = self.size_threshold
        if threshold == 'mean':
            total, number = self.drawn
            threshold = total / number.clamp(min=1)
        big = sizes > threshold
        if self.group != 'majority':
            return big
        present = sizes > 0
        return 2 * (big & present).sum(1, keepdim=True) > present.sum(1, keepdim=True)

    def _learn(self, sizes: Tensor) -> None:
        """Add the areas of all processes to the mean, which starts anew with a training."""
        if training_iteration() == 0:
            self.drawn.zero_()
        self.drawn += sum_over('world')(torch.stack([sizes.sum(0), (sizes > 0).sum(0).double()]))

    def _losses(self) -> list[Any]:
        return list(self.loss_decode) if isinstance(self.loss_decode, nn.ModuleList) else [self.loss_decode]


def _call(loss: Any, scores: Tensor, target: Tensor, weight: Tensor, ids: dict[str, Tensor]) -> Tensor:
    """Compute a loss that takes each score as a decision of its own."""
    if isinstance(loss, RegisteredLoss):
        loss.states_channels = True
        return loss(scores, target, weight=weight, **ids)
    # MMSegmentation's loss has a weight for each score, and divides by the number of all of them. It reads a single
    # score as a class index.
    n_counted = (weight.sum() * scores.shape[1]).clamp(min=1)
    if scores.shape[1] == 1:
        return loss(scores, target.squeeze(1).long(), weight=weight, avg_factor=n_counted)
    return loss(scores, target, weight=weight.unsqueeze(1).expand_as(scores), avg_factor=n_counted)


def _count_classes(labels: Tensor, n_classes: int, ignore_index: int) -> Tensor:
    """Return the number of pixels of each class in each image, int64 of shape [N, C]."""
    ignored = labels == ignore_index
    if is_due(labels, 'labels', labels.dim()):
        message = (
            f'Parameter `num_classes` ({n_classes}) should be above all labels but `ignore_index` ({ignore_index}).'
        )
        refuse(~ignored & ((labels < 0) | (labels >= n_classes)), message, labels)
    index = labels.long().masked_fill(ignored, 0).flatten(1)
    counts = torch.zeros(len(labels), n_classes, dtype=torch.long, device=labels.device)
    return counts.scatter_add_(1, index, (~ignored).long().flatten(1))


def ids_of(samples: Sequence[Any]) -> Tensor:
    """Return a digest of the path of each image, the same in every epoch, process and training."""
    paths = [sample.metainfo.get('img_path') for sample in samples]
    if None in paths:
        raise ValueError(
            'Parameter `per_example` identifies images by their paths: add "img_path" to the `meta_keys` of '
            f'PackSegInputs, or have the data set give it. Found only {sorted(samples[paths.index(None)].metainfo)}.'
        )
    digests = [blake2b(str(path).encode(), digest_size=8).digest() for path in paths]
    return torch.tensor([int.from_bytes(digest, 'big', signed=True) for digest in digests])


def _check_class(of_class: Any, group: str, n_classes: int) -> None:
    if of_class is None:
        return
    if group != 'size':
        raise ValueError(f"Parameter `of_class` should be given with `group='size'` only. Found it with {group!r}.")
    check_integer('of_class', of_class, 0, n_classes - 1)


def _check_loss(loss: Any) -> None:
    if isinstance(loss, SMeasureLoss):
        return
    if not isinstance(loss, (RegisteredLoss, CrossEntropyLoss)) or not getattr(loss, 'use_sigmoid', False):
        raise ValueError(
            'Parameter `loss_decode` should have losses that take each score as a decision of its own: SMeasureLoss, '
            'or with `use_sigmoid=True` CrossEntropyLoss or another loss of this package. '
            f'Found {type(loss).__name__}.'
        )
