"""Transforms: crops to a box, at a corner or with the sampled class, and label noise. Importing them needs MMCV."""

from mmseg_nondecomp.transforms.corner_crop import CornerCrop
from mmseg_nondecomp.transforms.crop_box import CropBox
from mmseg_nondecomp.transforms.group_label_noise import GroupLabelNoise
from mmseg_nondecomp.transforms.random_crop_on_class import RandomCropOnClass

__all__ = ['CornerCrop', 'CropBox', 'GroupLabelNoise', 'RandomCropOnClass']
