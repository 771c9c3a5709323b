"""The Lovász-Softmax loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from mmseg_nondecomp.functional.class_average import Classes
from mmseg_nondecomp.functional.error_cells import ProbabilityCells
from mmseg_nondecomp.losses.lovasz import LovaszJaccardLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class LovaszSoftmaxLoss(LovaszJaccardLoss):
    r"""The mean over classes of the tightest convex surrogate of :math:`1 - \mathrm{IoU}`.

    See :func:`mmseg_nondecomp.functional.lovasz_softmax`. A head with one channel is read as the sigmoid of the
    foreground (label 1), several channels as a softmax.

    Args:
        classes: Which classes are averaged: those ``'present'`` in the set, ``'all'``, or a list of indices.
        scope: ``'image'`` (the mean over images), ``'batch'`` (of this process), or ``'world'`` (all processes; each
            of them has to call the loss in each step, or the others wait for it).
        class_weight: Makes the mean over classes a weighted one.
        bins: How finely errors are told apart without sorting: the loss is within 1 / (2 bins) of the exact one.
            ``None`` sorts.
        memory: How many past batches belong to the set beside the present one: a batch of one image then optimises an
            estimate of the IoU of the data set. Gradients shrink with the share that the present batch has in it.
        use_sigmoid: True for a decision per channel: several labels a pixel, or MMDetection's dense heads, where label
            C is the background (and with a single class label 0 the object).
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = LovaszSoftmaxLoss()
        >>> logits = torch.zeros(2, 4, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> loss(logits, label)
        tensor(0.7500, grad_fn=<MulBackward0>)

        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss')))

    Reference:
        M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018.
        https://arxiv.org/abs/1705.08790
    """

    top = 1.0

    def __init__(
        self,
        classes: Classes = 'present',
        scope: str = 'batch',
        class_weight: Sequence[float] | None = None,
        bins: int | None = 1024,
        memory: int = 0,
        use_sigmoid: bool | None = None,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_lovasz',
        **leaked: Any,
    ) -> None:
        super().__init__(
            ProbabilityCells,
            bins,
            memory,
            scope,
            classes=classes,
            class_weight=class_weight,
            use_sigmoid=use_sigmoid,
            loss_weight=loss_weight,
            loss_name=loss_name,
            leaked=leaked,
        )
