"""The mathematics, in plain PyTorch.

Where an argument does not fit, functions raise a ValueError or TypeError that names it and the value found.
"""

from mmseg_nondecomp.functional import decisions
from mmseg_nondecomp.functional.direct import (
    direct_ap_loss,
    direct_loss,
    direct_zero_one_loss,
    loss_augmented_ranking,
)
from mmseg_nondecomp.functional.lovasz import lovasz_extension, lovasz_hinge, lovasz_softmax, prox_lovasz_hinge
from mmseg_nondecomp.functional.max_pooling import loss_max_pooling, max_pooling_weights
from mmseg_nondecomp.functional.overlap import soft_iou
from mmseg_nondecomp.functional.s_measures import project_tau, soft_project_tau
from mmseg_nondecomp.functional.tiling import predict_in_tiles
from mmseg_nondecomp.functional.topk import hard_topk_loss, log_elementary_symmetric, smooth_topk_loss, topk_marginals

__all__ = [
    'decisions',
    'direct_ap_loss',
    'direct_loss',
    'direct_zero_one_loss',
    'hard_topk_loss',
    'log_elementary_symmetric',
    'loss_augmented_ranking',
    'loss_max_pooling',
    'lovasz_extension',
    'lovasz_hinge',
    'lovasz_softmax',
    'max_pooling_weights',
    'predict_in_tiles',
    'project_tau',
    'prox_lovasz_hinge',
    'smooth_topk_loss',
    'soft_iou',
    'soft_project_tau',
    'topk_marginals',
]
