"""A random part of each class: of the requested size, reproducible, without the skipped images."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from mmengine.runner import Runner

from mmseg_nondecomp.datasets import RandomSubset

SIZES = (7, 12, 30)
"""How many images the classes have."""

LABELS = [label for label, size in enumerate(SIZES) for _ in range(size)]


@DATASETS.register_module(force=True)
class LabelledNumbers(BaseDataset):
    """Numbers with a class each, by `get_cat_ids` as in MMPretrain or only as `gt_label`."""

    METAINFO = dict(classes=('a', 'b', 'c'))

    def __init__(self, labels: list[Any] = LABELS, tells: bool = True, **kwargs: Any) -> None:
        self.labels, self.tells = labels, tells
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        return [dict(number=number, gt_label=label) for number, label in enumerate(self.labels)]

    def get_cat_ids(self, idx: int) -> list[int]:
        return [self.get_data_info(idx)['gt_label']] if self.tells else super().get_cat_ids(idx)


def kept(**settings: Any) -> list[int]:
    return RandomSubset(dict(type='LabelledNumbers'), **settings).indices.tolist()


def sizes(indices: list[int]) -> list[int]:
    return np.bincount(np.array(LABELS)[indices], minlength=3).tolist()


@pytest.mark.parametrize(
    ('settings', 'expected'),
    [
        (dict(images_per_class=5), [5, 5, 5]),
        (dict(images_per_class=2, skip_per_class=5), [2, 2, 2]),
        (dict(share=0.5), [4, 6, 15]),
        (dict(share=0.01), [1, 1, 1]),
        (dict(share=1.0), [7, 12, 30]),
        (dict(share=0.5, skip_per_class=2), [2, 5, 14]),
        (dict(skip_per_class=4), [3, 8, 26]),
    ],
    ids=str,
)
def test_keeps_as_many_of_each_class_as_asked(settings: dict[str, Any], expected: list[int]):
    indices = kept(**settings)
    assert sizes(indices) == expected
    assert indices == sorted(set(indices))


def test_the_one_label_of_an_image_serves_without_categories():
    without = RandomSubset(dict(type='LabelledNumbers', tells=False), images_per_class=5)
    assert without.indices.tolist() == kept(images_per_class=5)
    tensors = RandomSubset(LabelledNumbers(labels=[torch.tensor([1]), torch.tensor([0])], tells=False))
    assert tensors.get_cat_ids(0) == [1]
    for label in ([0, 1], []):
        with pytest.raises(ValueError, match='should have one class'):
            RandomSubset(dict(type='LabelledNumbers', labels=[0, label], tells=False), images_per_class=1)


def test_smaller_subsets_are_parts_of_larger_ones():
    nested = [set(kept(images_per_class=n, skip_per_class=1)) for n in range(1, 7)]
    assert all(small < large for small, large in itertools.pairwise(nested))


@pytest.mark.parametrize('seed', range(5))
def test_what_one_keeps_the_other_skips(seed: int):
    held_out, rest = (
        set(kept(seed=seed, **settings)) for settings in (dict(images_per_class=3), dict(skip_per_class=3))
    )
    assert not held_out & rest
    assert held_out | rest == set(range(len(LABELS)))


def test_choice_is_fixed_by_the_seed():
    """When this fails, subsets of the same seed are others than before."""
    assert kept(images_per_class=2, seed=0) == [2, 3, 14, 17, 42, 46]
    assert kept(images_per_class=2, seed=1) != kept(images_per_class=2, seed=0)


def test_each_image_is_as_likely_as_any_other():
    n_seeds, n_kept = 600, 3
    counts, whole = np.zeros(len(LABELS)), LabelledNumbers()
    for seed in range(n_seeds):
        counts[RandomSubset(whole, images_per_class=n_kept, seed=seed).indices] += 1
    for label, size in enumerate(SIZES):
        rate = n_kept / size
        spread = (n_seeds * rate * (1 - rate)) ** 0.5
        assert (abs(counts[np.array(LABELS) == label] - n_seeds * rate) < 5 * spread).all()


def test_items_are_those_of_the_whole_data_set():
    whole = LabelledNumbers()
    subset = RandomSubset(whole, images_per_class=2, skip_per_class=1)
    assert len(subset) == 6
    assert subset.metainfo == whole.metainfo
    for place, index in enumerate(subset.indices.tolist()):
        assert subset[place] == whole[index]
        assert subset[place]['sample_idx'] == index
        assert subset.get_data_info(place) == whole.get_data_info(index)
        assert subset.get_cat_ids(place) == [LABELS[index]]
    with pytest.raises(IndexError):
        subset[6]


def test_runner_builds_a_data_loader_of_a_lazy_subset():
    data = dict(type='LabelledNumbers', lazy_init=True)
    subset = dict(type='RandomSubset', images_per_class=4, lazy_init=True, dataset=data)
    assert not len(DATASETS.build(subset).indices)
    sampler = dict(type='DefaultSampler', shuffle=True)
    loader = Runner.build_dataloader(dict(batch_size=4, num_workers=2, sampler=sampler, dataset=subset), seed=0)
    assert loader.dataset.metainfo['classes'] == ('a', 'b', 'c')
    numbers = sorted(number for batch in loader for number in batch['number'])
    assert numbers == kept(images_per_class=4)


@pytest.mark.parametrize(
    ('wrong', 'error', 'found'),
    [
        (dict(images_per_class=0), ValueError, '`images_per_class`.*Found 0'),
        (dict(share=0), ValueError, '`share`.*Found 0'),
        (dict(share=1.5), ValueError, '`share`.*Found 1.5'),
        (dict(share='half'), TypeError, "`share`.*Found 'half'"),
        (dict(share=0.5, images_per_class=3), ValueError, 'Only one.*Found 3 and 0.5'),
        (dict(skip_per_class=-1), ValueError, '`skip_per_class`.*Found -1'),
        (dict(seed=-1), ValueError, '`seed`.*Found -1'),
        (dict(images_per_class=8), ValueError, 'Class 0 .* 8 to keep. Found 7 in all'),
        (dict(images_per_class=5, skip_per_class=3), ValueError, 'Class 0 .*3 images to skip and 5 to keep. Found 7'),
        (dict(skip_per_class=7), ValueError, 'Class 0 .*7 images to skip and 1 to keep. Found 7'),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], error: type[Exception], found: str):
    with pytest.raises(error, match=found):
        kept(**wrong)
