"""The Lovász hinge as a registered loss."""

from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import Activation, Classes, Inputs, activate, check_number
from mmseg_nondecomp.functional.lovasz.histogram import MarginBins
from mmseg_nondecomp.functional.lovasz.prox import envelopes
from mmseg_nondecomp.losses._jaccard import LovaszLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class LovaszHingeLoss(LovaszLoss):
    r"""The Lovász extension of :math:`1 - \mathrm{IoU}` at the hinge errors of a foreground and its background.

    See :func:`mmseg_nondecomp.functional.lovasz_hinge`. The head may have one channel, whose logit is the score of the
    foreground (label 1), or two, where it is their difference. With more channels, or with several labels a pixel, each
    channel decides on its own class against the rest.

    The foreground is decided at a logit above 0. MMSegmentation's heads with one channel decide at a probability of 0.3
    by default: set ``threshold=0.5`` in the head.

    Args:
        proximal: The parameter :math:`\lambda` of the proximal operator. The loss is then the Moreau envelope of the
            hinge, whose gradient is :math:`\lambda (m - \mathrm{prox}(m))` at the margins :math:`m`. It accounts for
            the changes of the order of the errors within a step of :math:`1 / \lambda`, and does not jump at them.
        classes: With several decisions, those that are averaged.
        bins: The resolution of the errors without sorting: about 8 / bins of the logit. ``None`` sorts.
        memory: The number of past mini-batches that belong to the set beside the present one.
        **common: The arguments of :class:`mmseg_nondecomp.losses.SetLoss`.

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 1, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> LovaszHingeLoss(scope='image')(logits, label)
        tensor(1., grad_fn=<MulBackward0>)
    """

    default_name = 'loss_lovasz_hinge'
    shown = ('classes', 'scope', 'proximal')
    binning = MarginBins
    top = MarginBins.top
    two_channels_decide = True

    def __init__(
        self,
        *,
        proximal: float | None = None,
        classes: Classes = 'all',
        bins: int | None = 4096,
        memory: int = 0,
        **common: Any,
    ) -> None:
        super().__init__(classes, bins, memory, **common)
        if proximal is not None:
            check_number('proximal', proximal, '(0, inf)')
            if self.scope == 'world' or memory:
                raise ValueError(
                    "Parameter `proximal` should be None with `scope='world'` or with `memory`: the proximal operator "
                    f'needs the pixels of a set in one place. Found {proximal}.'
                )
        self.proximal = proximal
        self.one_vs_rest = True

    def activation(self, inputs: Inputs) -> Activation:
        """Return that of a hinge: its error is max(1 + logit, 0) without the class and max(1 - logit, 0) with it."""
        return 'margin'

    def class_losses(self, inputs: Inputs, activation: Activation) -> tuple[ClassLosses, Tensor | None]:
        """Return the Lovász hinge of each class in each set, or its envelope."""
        if self.proximal is None:
            return super().class_losses(inputs, activation)
        inputs = inputs._replace(scores=activate(inputs.scores, activation))
        return envelopes(inputs, self.top, self.of_images, self.proximal), None
