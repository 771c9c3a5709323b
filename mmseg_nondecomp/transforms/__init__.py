"""Transforms: crops that keep the class that a sampler asked for, labels that are wrong on purpose. They need MMCV."""

from mmseg_nondecomp.transforms.group_label_noise import GroupLabelNoise
from mmseg_nondecomp.transforms.random_crop_on_class import RandomCropOnClass

__all__ = ['GroupLabelNoise', 'RandomCropOnClass']
