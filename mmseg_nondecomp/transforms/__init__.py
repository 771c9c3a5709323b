"""Transforms: crops to a box or with the class that was sampled, labels that are wrong on purpose. They need MMCV."""

from mmseg_nondecomp.transforms.crop_box import CropBox
from mmseg_nondecomp.transforms.group_label_noise import GroupLabelNoise
from mmseg_nondecomp.transforms.random_crop_on_class import RandomCropOnClass

__all__ = ['CropBox', 'GroupLabelNoise', 'RandomCropOnClass']
