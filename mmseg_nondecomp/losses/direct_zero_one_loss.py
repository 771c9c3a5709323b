"""Direct loss minimisation for the 0-1 loss as a registered loss."""

from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional.direct.zero_one import direct_zero_one_sums
from mmseg_nondecomp.losses._direct import DirectLoss, Problems
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class DirectZeroOneLoss(DirectLoss):
    r"""Share of wrong decisions, with the gradient of direct loss minimisation.

    See :func:`mmseg_nondecomp.functional.direct_zero_one_loss`. Each channel decides on its class at a score of 0. The
    mean is over all classes, present or not. Only scores within :math:`\epsilon / 2` of 0 have a gradient, on the right
    side of it (the positive update) or on the wrong one (the negative update). While MMEngine trains, the
    share of wrong decisions is logged as ``train/<loss_name>_error``.

    Args:
        epsilon: The weight of the 0-1 loss in the labelling that is compared.
        mode: As in `DirectAPLoss`.
        per_class: Whether the mean is over classes, which ``class_weight`` needs, or over all pairs of an item and a
            class.
        update: ``'positive'``, ``'negative'``, ``'hinge'`` or ``'perceptron'``, as in `DirectAPLoss`.
        background_column: As in `DirectAPLoss`.
        use_sigmoid: As in `DirectAPLoss`.
        **common: As in `DirectAPLoss`. The default ``loss_name`` is ``'loss_zero_one'``.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[2.0, 1.0], [-1.0, 0.5]], requires_grad=True)
        >>> DirectZeroOneLoss()(scores, torch.tensor([0, 1]))
        tensor(0.2500, grad_fn=<MulBackward0>)
    """

    default_name = 'loss_zero_one'

    def losses(self, problems: Problems, update: str | None) -> ClassLosses:
        """Return the loss of each problem; one without items has nothing to compare."""
        sums = direct_zero_one_sums(*problems, self.epsilon, update)
        size = problems.valid[:, :1].sum(2)  # the same in all classes
        if self.scope != 'image':
            sums, size = sums.sum(0, keepdim=True), size.sum(0, keepdim=True)
        if not self.per_class:
            sums, size = sums.sum(1, keepdim=True), size * sums.shape[1]
        size = self.reduce(size)
        counted = size > 0
        return ClassLosses(self.reduce(sums / size.clamp(min=1)), counted.expand_as(sums), counted[:, 0])

    def measure(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the share of wrong decisions."""
        return {'error': loss}
