"""Crops that keep the class that a sampler asked for. Importing it needs MMCV."""

from mmseg_nondecomp.transforms.random_crop_on_class import RandomCropOnClass

__all__ = ['RandomCropOnClass']
