import copy
import itertools
from typing import Any

import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS
from scipy import stats
from torch.utils.data import DataLoader

from mmseg_nondecomp.transforms._cifar100 import CLASSES, cifar100_groups
from mmseg_nondecomp.transforms.group_label_noise import GroupLabelNoise

GROUPS = [[0, 5, 2], [1, 3, 4, 6], [7]]
N_CLASSES = 8
GROUP_OF = {cls: group for group in GROUPS for cls in group}


def noisy(n: int, noise: float, label: int | None = None, seed: int = 0, groups: Any = GROUPS) -> np.ndarray:
    """The labels of n images, of one class or of all in turn."""
    transform = GroupLabelNoise(noise, groups, seed)
    clean = [index % N_CLASSES if label is None else label for index in range(n)]
    return np.array([transform(dict(gt_label=c, sample_idx=i))['gt_label'] for i, c in enumerate(clean)])


class Labels(BaseDataset):
    def load_data_list(self) -> list[dict]:
        return [dict(gt_label=index % N_CLASSES) for index in range(400)]


@pytest.mark.parametrize('noise', [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize('label', [0, 3, 7])
def test_labels_are_replaced_at_the_rate_and_uniformly_within_the_group(noise, label):
    n, group = 4000, GROUP_OF[label]
    counts = np.bincount(noisy(n, noise, label), minlength=N_CLASSES)
    assert {int(cls) for cls in np.flatnonzero(counts)} <= set(group)
    for cls in group:
        rate = noise / len(group) + (1 - noise) * (cls == label)
        assert stats.binomtest(int(counts[cls]), n, rate).pvalue > 1e-5


def test_more_noise_replaces_what_less_does_and_by_the_same():
    clean, levels = noisy(2000, 0.0), [noisy(2000, noise) for noise in (0.2, 0.5, 1.0)]
    for less, more in itertools.pairwise(levels):
        changed = less != clean
        assert changed.any()
        assert (less[changed] == more[changed]).all()


def test_seed_and_image_decide_and_nothing_else():
    first = noisy(500, 0.7)
    np.random.seed(1)
    assert (noisy(500, 0.7) == first).all()
    assert (noisy(500, 0.7, seed=1) != first).any()
    transform = GroupLabelNoise(0.7, GROUPS)
    backwards = [transform(dict(gt_label=i % N_CLASSES, sample_idx=i, img=i))['gt_label'] for i in range(499, -1, -1)]
    assert backwards[::-1] == first.tolist()


def test_seeds_and_neighbours_are_independent():
    """They agree on a label as often as chance has it."""
    labels, of_another_seed = noisy(4001, 1.0, 3, seed=0), noisy(4001, 1.0, 3, seed=1)
    for agree in (labels == of_another_seed, labels[1:] == labels[:-1]):
        assert stats.binomtest(int(agree.sum()), len(agree), 1 / len(GROUP_OF[3])).pvalue > 1e-5


def test_labels_are_fixed():
    """When this fails, the same settings spoil other labels than before."""
    assert noisy(16, 0.8).tolist() == [0, 1, 5, 3, 4, 5, 1, 7, 2, 6, 0, 1, 4, 0, 1, 7]


def test_workers_and_epochs_agree():
    dataset = Labels(pipeline=[dict(type='GroupLabelNoise', noise=0.6, groups=GROUPS)])
    loader = DataLoader(dataset, batch_size=10, shuffle=True, num_workers=2, collate_fn=list)
    for _ in range(2):
        items = [item for batch in loader for item in batch]
        found = {item['sample_idx']: item['gt_label'] for item in items}
        assert [found[index] for index in range(400)] == noisy(400, 0.6).tolist()
    assert dataset.get_data_info(0)['gt_label'] == 0


def test_cifar100_has_twenty_groups_of_five_with_the_papers_example():
    groups = cifar100_groups()
    assert [len(group) for group in groups] == [5] * 20
    assert sorted(cls for group in groups for cls in group) == list(range(100))
    people = groups[14]
    assert [CLASSES[cls] for cls in people] == ['baby', 'boy', 'girl', 'man', 'woman']
    transform = GroupLabelNoise(1.0, 'cifar100')
    assert len(transform.groups) == 20
    assert {transform(dict(gt_label=98, sample_idx=index))['gt_label'] for index in range(200)} == set(people)


@pytest.mark.parametrize('label', [3, np.int64(3), np.array(3)], ids=repr)
def test_integers_of_all_kinds(label):
    transform = TRANSFORMS.build(dict(type='GroupLabelNoise', noise=1.0, groups=GROUPS))
    assert transform(dict(gt_label=label, sample_idx=np.int64(2)))['gt_label'] in GROUP_OF[3]


@pytest.mark.parametrize('label', [[1, 3], np.array([1, 3]), [1], 1.0, 'a', None], ids=repr)
def test_labels_that_are_not_one_class_are_refused(label):
    with pytest.raises(TypeError, match='`gt_label` should be one label, an integer'):
        GroupLabelNoise(0.5, GROUPS)(dict(gt_label=copy.deepcopy(label), sample_idx=0))


@pytest.mark.parametrize(
    ('results', 'message'),
    [
        (dict(gt_label=-1, sample_idx=0), '`gt_label` should be from 0 to 7'),
        (dict(gt_label=8, sample_idx=0), '`gt_label` should be from 0 to 7'),
        (dict(gt_label=0), 'identifies images by `sample_idx`'),
    ],
    ids=str,
)
def test_labels_without_a_group_and_images_without_a_number_are_refused(results, message):
    with pytest.raises(ValueError, match=message):
        GroupLabelNoise(0.5, GROUPS)(results)


@pytest.mark.parametrize(
    ('wrong', 'error', 'found'),
    [
        (dict(noise=-0.1), ValueError, '`noise`.*Found -0.1'),
        (dict(noise=1.1), ValueError, '`noise`.*Found 1.1'),
        (dict(noise='0.5'), TypeError, "`noise`.*Found '0.5'"),
        (dict(seed=-1), ValueError, '`seed`.*Found -1'),
        (dict(groups='cifar10'), TypeError, "`groups`.*'cifar100'. Found 'cifar10'"),
        (dict(groups=[0, 1]), TypeError, '`groups`.*Found'),
        (dict(groups=[[0, 1.0]]), TypeError, '`groups` should hold integers'),
        (dict(groups=[]), ValueError, '`groups`.*Found 0 entries'),
        (dict(groups=[[0, 1], [1, 2]]), ValueError, '`groups`.*4 entries, of which 3 are different, from 0 to 2'),
        (dict(groups=[[0, 1], [3]]), ValueError, '`groups`.*3 entries.*from 0 to 3'),
        (dict(groups=[[1, 2]]), ValueError, '`groups`.*from 1 to 2'),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong, error, found):
    with pytest.raises(error, match=found):
        GroupLabelNoise(**dict(noise=0.5, groups=GROUPS, seed=0) | wrong)


def test_repr_has_the_settings():
    assert repr(GroupLabelNoise(0.5, GROUPS, 3)) == 'GroupLabelNoise(noise=0.5, 3 groups, seed=3)'
