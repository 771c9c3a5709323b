"""The Lovász hinge as a registered loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.activations import Activation, activate
from mmseg_nondecomp.functional.class_average import Classes
from mmseg_nondecomp.functional.error_cells import MarginCells
from mmseg_nondecomp.functional.items import Items, one_of_two
from mmseg_nondecomp.functional.lovasz import ClassLosses
from mmseg_nondecomp.functional.prox_lovasz_hinge import MoreauEnvelope, check_lam
from mmseg_nondecomp.losses.lovasz import LovaszJaccardLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class LovaszHingeLoss(LovaszJaccardLoss):
    r"""The Lovász extension of :math:`1 - \mathrm{IoU}` at the hinge errors of a foreground and its background.

    See :func:`mmseg_nondecomp.functional.lovasz_hinge`. The head may have one channel, whose logit is the score of the
    foreground (label 1), or two, where it is their difference. With more channels, or with several labels a pixel, each
    channel decides on its own class against the rest.

    The foreground is decided at a logit above 0. MMSegmentation's heads with one channel decide at a probability of 0.3
    unless told otherwise: set ``threshold=0.5`` in the head.

    Args:
        scope: ``'image'`` (the mean over images), ``'batch'`` (of this process), or ``'world'`` (all processes; each
            of them has to call the loss in each step, or the others wait for it).
        proximal: The parameter :math:`\lambda` of the proximal operator. The loss is then the Moreau envelope of the
            hinge, whose gradient is :math:`\lambda (m - \mathrm{prox}(m))` at the margins :math:`m`: it looks ahead as
            far as a step of :math:`1 / \lambda` goes, and does not jump where the order of the errors changes.
        classes: With several decisions, those that are averaged.
        class_weight: Makes the mean over decisions a weighted one.
        bins: How finely errors are told apart without sorting: about 8 / bins of the logit. ``None`` sorts.
        memory: How many past batches belong to the set beside the present one.
        use_sigmoid: Only for MMDetection's dense heads, which read it from the config to choose their number of
            channels. With a single class, label 0 is then the object and 1 the background, as MMDetection has it.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = LovaszHingeLoss(scope='image')
        >>> logits = torch.zeros(2, 1, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> loss(logits, label)
        tensor(1., grad_fn=<MulBackward0>)

    Reference:
        M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018.
        https://arxiv.org/abs/1705.08790
    """

    top = 2.0

    def __init__(
        self,
        scope: str = 'batch',
        proximal: float | None = None,
        classes: Classes = 'all',
        class_weight: Sequence[float] | None = None,
        bins: int | None = 4096,
        memory: int = 0,
        use_sigmoid: bool | None = None,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_lovasz_hinge',
        **leaked: Any,
    ) -> None:
        if proximal is not None:
            check_lam('proximal', proximal)
            if scope == 'world' or memory:
                raise ValueError(
                    "Parameter `proximal` should be None with `scope='world'` or with `memory`: the proximal operator "
                    f'needs the pixels of a set in one place. Found {proximal}.'
                )
        super().__init__(
            MarginCells,
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
        self.proximal = proximal

    def items(self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None) -> Items:
        """Return the logits of the decisions and their targets."""
        return super().items(one_of_two(pred, target), target, weight, ignore_index)

    def decides_each(self, n_classes: int) -> bool:
        """Always: a margin is one decision."""
        return True

    def activation(self, n_classes: int) -> Activation:
        """Return that of a hinge: its error is max(1 + logit, 0) without the class and max(1 - logit, 0) with it."""
        return 'margin'

    def class_losses(self, items: Items, activation: Activation) -> ClassLosses:
        """Return the Lovász hinge of each class in each set, or its envelope."""
        if self.proximal is None:
            return super().class_losses(items, activation)
        scores, target, mass = items
        scores = activate(scores, activation)
        if not target.is_floating_point():
            target = target.unsqueeze(1) == torch.arange(scores.shape[1], device=scores.device).view(1, -1, 1)
        elif not bool(((target == 0) | (target == 1)).all()):
            raise ValueError('Parameter `target` should hold 0 and 1 with `proximal`. Found shares of classes.')
        if not bool(((mass == 0) | (mass == 1)).all()):
            raise ValueError('Parameter `weight` should hold 0 and 1 with `proximal`. Found other weights.')
        margins, foreground, counted = torch.where(target > 0, self.top - scores, scores), target > 0, mass > 0
        if self.scope == 'image':
            sets = list(zip(margins, foreground, counted, strict=True))
        else:
            sets = [(margins.movedim(0, 1).flatten(1), foreground.movedim(0, 1).flatten(1), counted.flatten())]
        losses = [
            torch.stack([MoreauEnvelope.apply(m[inside], f[inside], self.proximal) for m, f in zip(*rows, strict=True)])
            for *rows, inside in sets
        ]
        present = torch.stack([(f & inside).any(1) for _, f, inside in sets])
        filled = torch.stack([inside.any() for *_, inside in sets])
        return ClassLosses(torch.stack(losses), present, filled)

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'{super().extra_repr()}, proximal={self.proximal}'
