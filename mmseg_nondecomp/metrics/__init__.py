"""Metrics for torchmetrics, the twins of the losses."""

from mmseg_nondecomp.metrics.direct_average_precision import DirectAveragePrecision
from mmseg_nondecomp.metrics.jaccard_index_by_image import JaccardIndexByImage
from mmseg_nondecomp.metrics.lovasz_jaccard_index import LovaszJaccardIndex
from mmseg_nondecomp.metrics.smooth_topk_accuracy import SmoothTopKAccuracy
from mmseg_nondecomp.metrics.soft_jaccard_index import SoftJaccardIndex

__all__ = [
    'DirectAveragePrecision',
    'JaccardIndexByImage',
    'LovaszJaccardIndex',
    'SmoothTopKAccuracy',
    'SoftJaccardIndex',
]
