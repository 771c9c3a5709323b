"""Direct loss minimisation for the average precision as a registered loss."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.direct_ap_loss import direct_ap_losses
from mmseg_nondecomp.losses.direct_loss import DirectLoss, QueryLosses
from mmseg_nondecomp.losses.queries import Queries, of_all_processes
from mmseg_nondecomp.losses.scope import reduction_over
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class DirectAPLoss(DirectLoss):
    r"""One minus the average precision, with the gradient of direct loss minimisation.

    See :func:`mmseg_nondecomp.functional.direct_ap_loss`. The items of a set are ranked by their scores for a class;
    those of the class should be above all others. The mean is over the classes that have both. It takes the place of
    the classification loss of MMDetection's heads, the loss of MMPretrain's multi-label heads, and that of
    MMSegmentation's heads with one channel.

    While MMEngine trains, the mean average precision of the same items is logged as ``train/<loss_name>_ap``, whatever
    the mode.

    In MMDetection's heads:

    - RoI heads, FCOS and the DETR family rank all items of the batch at once. RetinaNet and other heads with anchors
      call their loss *level by level*, so that each level of the pyramid has an average precision of its own.
    - Only differences of scores matter to a ranking: nothing trains the scores towards probabilities, and a common
      offset, such as the initial bias of dense heads, stays or drifts. So boxes are not ranked by a sigmoid, which
      rounds high scores to 1, but by :math:`\tfrac{1}{2} + \tfrac{s}{2 (1 + |s|)}`; set ``score_thr=0`` in
      ``test_cfg``, where the stock configs drop boxes by their probability.
    - The learning rate and ``loss_weight`` that suit an average over items do not suit an average precision.

    Args:
        epsilon: The weight of the average precision in the ranking that is compared: how far it looks.
        mode: ``'positive'`` and ``'negative'`` are the updates of the paper: away from a worse ranking, which costs a
            sort, or towards a better one, which costs as many operations as there are pairs. ``'hinge'`` and
            ``'perceptron'`` minimise bounds instead.
        per_class: Whether each class has an average precision, or one ranking has all pairs of an item and a class.
        use_sigmoid: True: each channel is a decision of its own. For MMDetection's dense heads and those of the DETR
            family, which read it to choose their number of channels: set it in the config.
        background_column: Whether MMDetection is given a column of zeros for the background with the probabilities.
            By default RoI heads are, which expect one, and dense heads are not.
        class_weight: Makes the mean over classes a weighted one.
        scope: ``'image'`` (the mean over images, of maps), ``'batch'`` (of this process), or ``'world'`` (the scores of
            all processes are ranked, those of more than 131 072 items to half a percent; each process has to call the
            loss in each step, or the others wait for it).
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log, by default ``'loss_ap'``.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = DirectAPLoss()
        >>> scores = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
        >>> loss(scores, torch.tensor([2, 0, 1]))  # label 2 is the background
        tensor(0.2500, grad_fn=<MulBackward0>)

        In an MMDetection config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(
                roi_head=dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True))),
                test_cfg=dict(rcnn=dict(score_thr=0.0)),
            )

    Reference:
        Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
        ICML 2016. https://arxiv.org/abs/1511.06411
    """

    default_name = 'loss_ap'
    measure = 'ap'

    def shared(self, queries: Queries) -> Queries:
        """The items of all processes with ``scope='world'``: no sum tells where an item is in a ranking."""
        queries = self.merged(queries)
        return of_all_processes(queries) if self.scope == 'world' else queries

    def losses(self, queries: Queries, mode: str) -> QueryLosses:
        """The loss of each query; one without positives or without negatives has nothing to compare."""
        scores, is_positive, valid = queries
        counted = (is_positive & valid).any(2) & (~is_positive & valid).any(2)
        # Of a detector's many classes a batch has few: only these are ranked, and what cannot be, which is shown.
        unordered = (valid & ~(scores < torch.inf)).any(2)
        (needed,) = (counted | unordered).flatten().nonzero(as_tuple=True)
        scores, is_positive, valid = (part.flatten(0, 1)[needed] for part in queries)
        found = direct_ap_losses(scores, is_positive, valid, self.epsilon, mode)
        losses = found.new_zeros(unordered.numel()).index_copy(0, needed, found).view_as(unordered)
        return QueryLosses(reduction_over(self.scope).of_the_set(losses), counted, queries.valid.flatten(1).any(1))

    def logged(self, losses: Tensor) -> Tensor:
        """The average precisions."""
        return 1 - losses
