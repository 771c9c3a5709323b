"""Direct loss minimisation for the average precision as a registered loss."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import Inputs
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses
from mmseg_nondecomp.losses._direct import DirectLoss, Problems, gradient_of, of_all_processes
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class DirectAPLoss(DirectLoss):
    r"""One minus the average precision, with the gradient of direct loss minimisation.

    See :func:`mmseg_nondecomp.functional.direct_ap_loss`. The items of a set are ranked by their scores for a class;
    those of the class should be above all others. The mean is over the classes that have both. It replaces the
    classification loss of MMDetection's heads, the loss of MMPretrain's multi-label heads, and that of MMSegmentation's
    heads with one channel. While MMEngine trains, the mean average precision is logged as ``train/<loss_name>_ap``,
    and the share of wrong rankings without a gradient as ``train/<loss_name>_dead``: scores too far apart for epsilon.

    RoI heads, FCOS and the DETR family rank all items of the batch at once. RetinaNet and other heads with anchors call
    their loss *level by level*, so that each level of the pyramid has its own average precision. Only differences of
    scores matter to a ranking: a common offset, such as the initial bias of dense heads, stays or drifts. So boxes are
    not ranked by a sigmoid, which rounds high scores to 1, but by :math:`\tfrac{1}{2} + \tfrac{s}{2 (1 + |s|)}`; set
    ``score_thr=0`` in ``test_cfg``, where the stock configs drop boxes by their probability.

    Args:
        epsilon: The weight of the average precision in the ranking that is compared.
        mode: As in `SetLoss`. The values of ``update`` are accepted here, too.
        per_class: Whether each class has an average precision, or one ranking has all pairs of an item and a class.
        update: ``'positive'`` (the default) and ``'negative'`` are the updates of the paper: away from a worse ranking,
            which costs a sort, or towards a better one, which costs as many operations as there are pairs. ``'hinge'``
            and ``'perceptron'`` minimise bounds instead.
        background_column: Whether MMDetection is given a column of zeros for the background with the probabilities.
            By default RoI heads are, which expect one, and dense heads are not.
        use_sigmoid: To be set in the config of MMDetection's dense heads and those of the DETR family, which read it
            to choose their number of channels.
        **common: As in `SetLoss`. With ``scope='world'`` the scores of all processes are ranked, those of more than
            131 072 items to half a percent. The default ``loss_name`` is ``'loss_ap'``.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
        >>> DirectAPLoss()(scores, torch.tensor([2, 0, 1]))  # label 2 is the background
        tensor(0.2500, grad_fn=<MulBackward0>)

        In an MMDetection config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(
                roi_head=dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True))),
                test_cfg=dict(rcnn=dict(score_thr=0.0)))
    """

    default_name = 'loss_ap'

    def problems(self, inputs: Inputs) -> Problems:
        """Return the rankings of whole sets: items of all processes with ``scope='world'``."""
        problems = super().problems(inputs)
        if self.scope != 'image':  # the items of all images in one set
            problems = Problems(*(part.movedim(0, 1).flatten(1).unsqueeze(0) for part in problems))
        if not self.per_class:  # all pairs of an item and a class in one problem
            problems = Problems(*(part.flatten(1).unsqueeze(1) for part in problems))
        return of_all_processes(problems) if self.scope == 'world' else problems

    def losses(self, problems: Problems, update: str | None) -> ClassLosses:
        """Return the loss of each problem; one without positives or without negatives has nothing to compare."""
        scores, is_positive, valid = problems
        counted = (is_positive & valid).any(2) & (~is_positive & valid).any(2)
        # A batch has few of a detector's many classes: rank only these, and those with NaN or infinity, which are NaN.
        unordered = (valid & ~(scores < torch.inf)).any(2)
        (needed,) = (counted | unordered).flatten().nonzero(as_tuple=True)
        scores, is_positive, valid = (part.flatten(0, 1)[needed] for part in problems)
        of_needed = direct_ap_losses(scores, is_positive, valid, self.epsilon, update)
        losses = of_needed.new_zeros(unordered.numel()).index_copy(0, needed, of_needed).view_as(unordered)
        return ClassLosses(self.reduce.rescale(losses), counted, problems.valid.flatten(1).any(1))

    def measures(self, inputs: Inputs, statistics: tuple[Problems, ClassLosses]) -> dict[str, Tensor]:
        """Return the mean average precision, and the share of rankings that are wrong and have no gradient."""
        problems, (losses, counted, _) = statistics
        measures = super().measures(inputs, statistics)
        if measures and problems.scores.requires_grad:
            dead = counted & (losses > 0) & ~gradient_of(losses, problems.scores).any(-1)
            measures['dead'] = dead.sum() / counted.sum()
        return measures

    def measure(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the mean average precision."""
        return {'ap': 1 - loss}
