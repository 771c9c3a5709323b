"""The metrics as functions of a single batch."""

from mmseg_nondecomp.metrics.functional._average_precision import direct_average_precision
from mmseg_nondecomp.metrics.functional._image_jaccard import jaccard_index_by_image
from mmseg_nondecomp.metrics.functional._jaccard import lovasz_jaccard_index, soft_jaccard_index
from mmseg_nondecomp.metrics.functional._smooth_topk import smooth_topk_accuracy

__all__ = [
    'direct_average_precision',
    'jaccard_index_by_image',
    'lovasz_jaccard_index',
    'smooth_topk_accuracy',
    'soft_jaccard_index',
]
