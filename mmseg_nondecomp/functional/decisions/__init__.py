"""Decisions for a measure at prediction."""

from mmseg_nondecomp.functional.decisions.class_offsets import ClassOffsets
from mmseg_nondecomp.functional.decisions.expected_overlap import decide_overlap
from mmseg_nondecomp.functional.decisions.files import read_decision, write_decision
from mmseg_nondecomp.functional.decisions.gain_report import GainReport
from mmseg_nondecomp.functional.decisions.image_overlap import ImageOverlap
from mmseg_nondecomp.functional.decisions.mean_field import DenseCRF, dense_crf
from mmseg_nondecomp.functional.decisions.temperature import Temperature
from mmseg_nondecomp.functional.decisions.thresholds import Thresholds

__all__ = [
    'ClassOffsets',
    'DenseCRF',
    'GainReport',
    'ImageOverlap',
    'Temperature',
    'Thresholds',
    'decide_overlap',
    'dense_crf',
    'read_decision',
    'write_decision',
]
