"""What holds of all Jaccard metrics, against torchmetrics' own; the average over classes is in `functional`."""

import pytest
import torch
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex

from mmseg_nondecomp.metrics import JaccardIndexByImage, LovaszJaccardIndex, SoftJaccardIndex


def data_set_index(num_classes, **arguments):
    """The index of the data set by image, as the others have it."""
    metric = JaccardIndexByImage(num_classes, **arguments)
    return lambda preds, target: metric(preds, target)['dataset']


EVERY = pytest.mark.parametrize('index', [LovaszJaccardIndex, SoftJaccardIndex, data_set_index])


def images(n_classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    decided = torch.randint(0, n_classes, (3, 8, 9), generator=generator)
    target = torch.where(torch.rand(3, 8, 9, generator=generator) < 0.7, decided, (decided + 1) % n_classes)
    return decided, target


@EVERY
@pytest.mark.parametrize('ignore_index', [None, 0, 2, -1, -100, 255])
@pytest.mark.parametrize('absent', [None, 1])
def test_label_to_ignore_as_in_torchmetrics(index, ignore_index, absent):
    decided, target = images(4)
    if ignore_index is not None:
        target[:, 0] = ignore_index
    if absent is not None:
        decided[decided == absent] = 3
        target[target == absent] = 3
    expected = MulticlassJaccardIndex(4, ignore_index=ignore_index)(decided, target)
    torch.testing.assert_close(index(4, ignore_index=ignore_index)(decided, target), expected)


@EVERY
def test_with_many_classes_255_is_one_of_them(index):
    decided, target = images(300)
    target[0, :4] = 255
    assert (decided[target == 255] != 255).any()
    expected = MulticlassJaccardIndex(300)(decided, target)
    torch.testing.assert_close(index(300)(decided, target), expected)
    expected = MulticlassJaccardIndex(300, ignore_index=255)(decided, target)
    torch.testing.assert_close(index(300, ignore_index=255)(decided, target), expected)


@EVERY
@pytest.mark.parametrize('ignore_index', [None, -1, 0])
def test_of_a_single_class_as_in_torchmetrics(index, ignore_index):
    decided, target = images(2)
    if ignore_index is not None:
        target[:, 0] = ignore_index
    expected = BinaryJaccardIndex(ignore_index=ignore_index)(decided, target)
    torch.testing.assert_close(index(1, ignore_index=ignore_index)(decided, target), expected)


@pytest.mark.parametrize('index', [LovaszJaccardIndex, SoftJaccardIndex])
def test_one_class_is_the_second_of_two(index):
    generator = torch.Generator().manual_seed(0)
    probs, target = torch.rand(3, 8, 9, generator=generator), images(2)[1]
    of_two = index(2, average=None)(torch.stack([1 - probs, probs], 1), target)
    torch.testing.assert_close(index(1)(probs, target), of_two[1])


def test_images_without_the_single_class_do_not_count():
    decided, target = images(2)
    target[1] = decided[1] = 0
    with_it = [BinaryJaccardIndex()(decided[i], target[i]) for i in (0, 2)]
    found = JaccardIndexByImage(1, worst=0.5)(decided, target)
    torch.testing.assert_close(found['image'], torch.stack(with_it).mean())
    torch.testing.assert_close(found['class'], found['image'])
    torch.testing.assert_close(found['worst'], min(with_it))


@pytest.mark.parametrize('index', [LovaszJaccardIndex, SoftJaccardIndex])
def test_a_class_that_is_ignored_counts_if_it_is_listed(index):
    decided, target = images(3)
    target[:, 0] = 0
    each = index(3, classes=[0, 1, 2], average=None, ignore_index=0)(decided, target)
    assert each[0] == 0
    for classes in ('seen', 'present', 'all'):
        each = index(3, classes=classes, average=None, ignore_index=0)(decided, target)
        assert each.isnan().tolist() == [True, False, False]
