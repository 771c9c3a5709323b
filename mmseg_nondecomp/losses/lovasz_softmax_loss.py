"""The Lovász-Softmax loss as a registered loss."""

from typing import Any

from mmseg_nondecomp.functional._inputs import Classes
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins
from mmseg_nondecomp.losses._jaccard import LovaszLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class LovaszSoftmaxLoss(LovaszLoss):
    r"""The mean over classes of the tightest convex surrogate of :math:`1 - \mathrm{IoU}`.

    See :func:`mmseg_nondecomp.functional.lovasz_softmax`. One channel is read as the sigmoid of the foreground
    (label 1), several channels as a softmax, or with ``use_sigmoid=True`` as one decision each.

    Args:
        classes: The classes that are averaged: those ``'present'`` in the set, ``'all'``, or a list of indices.
        bins: The resolution of the errors without sorting: the loss is within 1 / (2 bins) of the exact one. ``None``
            sorts.
        memory: The number of past mini-batches that belong to the set beside the present one: with one image a
            mini-batch, the loss is then an estimate of the IoU of the data set. Gradients shrink with the share of the
            present mini-batch.
        **common: The arguments of :class:`mmseg_nondecomp.losses.SetLoss`.

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 4, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> LovaszSoftmaxLoss()(logits, label)
        tensor(0.7500, grad_fn=<MulBackward0>)

        In an MMSegmentation config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss')))
    """

    default_name = 'loss_lovasz'
    binning = ProbabilityBins

    def __init__(
        self, classes: Classes = 'present', *, bins: int | None = 1024, memory: int = 0, **common: Any
    ) -> None:
        super().__init__(classes, bins, memory, **common)
