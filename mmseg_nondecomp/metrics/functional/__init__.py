"""What the metrics compute, as functions of a single batch."""

from mmseg_nondecomp.metrics.functional._average_precision import direct_average_precision
from mmseg_nondecomp.metrics.functional.jaccard_index_by_image import jaccard_index_by_image
from mmseg_nondecomp.metrics.functional.lovasz_jaccard_index import lovasz_jaccard_index
from mmseg_nondecomp.metrics.functional.smooth_topk_accuracy import smooth_topk_accuracy
from mmseg_nondecomp.metrics.functional.soft_jaccard_index import soft_jaccard_index

__all__ = [
    'direct_average_precision',
    'jaccard_index_by_image',
    'lovasz_jaccard_index',
    'smooth_topk_accuracy',
    'soft_jaccard_index',
]
