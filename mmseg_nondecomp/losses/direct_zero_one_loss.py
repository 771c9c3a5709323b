"""Direct loss minimisation for the 0-1 loss as a registered loss."""

from torch import Tensor

from mmseg_nondecomp.functional.direct_zero_one_loss import direct_zero_one_sums
from mmseg_nondecomp.losses.direct_loss import DirectLoss, QueryLosses
from mmseg_nondecomp.losses.queries import Queries
from mmseg_nondecomp.losses.scope import reduction_over
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class DirectZeroOneLoss(DirectLoss):
    r"""The share of wrong decisions, with the gradient of direct loss minimisation.

    See :func:`mmseg_nondecomp.functional.direct_zero_one_loss`. Each channel decides on its class at a score of 0. The
    mean is over all classes, present or not. It has a gradient only where the score is within :math:`\epsilon / 2` of
    0, on the right side of it (the positive update) or on the wrong one (the negative update).

    While MMEngine trains, the share of wrong decisions is logged as ``train/<loss_name>_error``, whatever the mode.

    Args:
        epsilon: The weight of the 0-1 loss in the labelling that is compared: how far it looks.
        mode: ``'positive'``, ``'negative'``, ``'hinge'`` or ``'perceptron'``, as in `DirectAPLoss`.
        per_class: Whether the mean is over classes, which ``class_weight`` needs, or over all pairs of an item and a
            class.
        use_sigmoid: True: each channel is a decision of its own. For MMDetection's dense heads and those of the DETR
            family, which read it to choose their number of channels: set it in the config.
        background_column: Whether MMDetection is given a column of zeros for the background with the probabilities.
            By default RoI heads are, which expect one, and dense heads are not.
        class_weight: Makes the mean over classes a weighted one.
        scope: ``'image'`` (the mean over images, of maps), ``'batch'`` (of this process), or ``'world'`` (of all
            processes; each of them has to call the loss in each step, or the others wait for it).
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log, by default ``'loss_zero_one'``.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = DirectZeroOneLoss()
        >>> scores = torch.tensor([[2.0, 1.0], [-1.0, 0.5]], requires_grad=True)
        >>> loss(scores, torch.tensor([0, 1]))
        tensor(0.2500, grad_fn=<MulBackward0>)

    Reference:
        Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
        ICML 2016. https://arxiv.org/abs/1511.06411
    """

    default_name = 'loss_zero_one'
    measure = 'error'

    def losses(self, queries: Queries, mode: str) -> QueryLosses:
        """The loss of each query; one without items has nothing to compare."""
        over = reduction_over(self.scope)
        sums = direct_zero_one_sums(*queries, self.epsilon, mode)
        size = queries.valid[:, :1].sum(2)  # the same in all classes
        if self.scope != 'image':
            sums, size = sums.sum(0, keepdim=True), size.sum(0, keepdim=True)
        if not self.per_class:
            sums, size = sums.sum(1, keepdim=True), size * sums.shape[1]
        size = over(size)
        counted = size > 0
        return QueryLosses(over.total(sums / size.clamp(min=1)), counted.expand_as(sums), counted[:, 0])

    def logged(self, losses: Tensor) -> Tensor:
        """The shares of wrong decisions: the losses themselves."""
        return losses
