"""Label noise within groups of classes."""

import operator
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform

from mmseg_nondecomp.functional._inputs import check_integer, check_number
from mmseg_nondecomp.registry import TRANSFORMS
from mmseg_nondecomp.transforms._cifar100 import cifar100_groups


@TRANSFORMS.register_module()
class GroupLabelNoise(BaseTransform):
    r"""Replacement of a label, with probability :math:`\nu`, by one drawn uniformly from its group.

    The new label may be the old one: in groups of five :math:`4 \nu / 5` of the labels are wrong. A prediction of all
    classes of the right group stays right, as with the noisy labels of CIFAR-100 in the smooth top-k paper
    (https://arxiv.org/abs/1802.07595, section 5.1).

    An image has the same label in every epoch, worker and process, and with any augmentation: it depends only on the
    seed and on the index of the image in its data set, ``sample_idx``. Labels that are replaced at some ``noise`` are
    replaced by the same labels at any higher one.

    Required keys: ``gt_label``, a single label; ``sample_idx``, which MMEngine's data sets set. Modified key:
    ``gt_label``.

    Args:
        noise: Probability :math:`\nu`.
        groups: Lists of classes in which each class from 0 on occurs once, or 'cifar100' for the 20 coarse classes of
            CIFAR-100.
        seed: Seed of the noise, at least 0.

    Example:
        >>> transform = GroupLabelNoise(noise=1.0, groups=[[0, 2], [1, 3]])
        >>> [transform(dict(gt_label=2, sample_idx=index))['gt_label'] for index in range(6)]
        [0, 2, 0, 2, 0, 2]
    """

    def __init__(self, noise: float, groups: list[list[int]] | str, seed: int = 0) -> None:
        check_number('noise', noise, '[0, 1]')
        check_integer('seed', seed, 0)
        self.noise = noise
        self.groups = cifar100_groups() if groups == 'cifar100' else _checked(groups)
        self.seed = seed
        self._group_of = {cls: group for group in self.groups for cls in group}

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Replace the label with the probability of the noise."""
        group = self._group_of[self._label(results)]
        if 'sample_idx' not in results:
            raise ValueError(
                'GroupLabelNoise identifies images by `sample_idx`, which the data sets of MMEngine provide. '
                f'Found {sorted(results)}.'
            )
        rng = np.random.Generator(np.random.PCG64([self.seed, int(results['sample_idx'])]))
        is_replaced, place = rng.random() < self.noise, int(rng.random() * len(group))
        if is_replaced:
            results['gt_label'] = group[place]
        return results

    def _label(self, results: dict[str, Any]) -> int:
        label = results.get('gt_label')
        try:
            label = operator.index(label)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(
                f'Key `gt_label` should be one label, an integer: noise within groups is not defined for several. '
                f'Found {label!r}.'
            ) from None
        if label not in self._group_of:
            raise ValueError(f'Key `gt_label` should be from 0 to {len(self._group_of) - 1}. Found {label}.')
        return label

    def __repr__(self) -> str:
        return f'{type(self).__name__}(noise={self.noise}, {len(self.groups)} groups, seed={self.seed})'


def _checked(groups: Any) -> list[list[int]]:
    """Return the groups if they are a partition of the first natural numbers; else raise."""
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise TypeError(f"Parameter `groups` should be a list of lists of classes, or 'cifar100'. Found {groups!r}.")
    classes = [cls for group in groups for cls in group]
    if not all(isinstance(cls, int) and not isinstance(cls, bool) for cls in classes):
        raise TypeError(f'Parameter `groups` should hold integers. Found {groups!r}.')
    if not classes or sorted(classes) != list(range(len(classes))):
        raise ValueError(
            f'Parameter `groups` should hold each class from 0 on once. Found {len(classes)} entries, '
            f'of which {len(set(classes))} are different'
            + (f', from {min(classes)} to {max(classes)}.' if classes else '.')
        )
    return [list(group) for group in groups]
