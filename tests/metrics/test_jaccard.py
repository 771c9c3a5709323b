"""The Jaccard metrics against their definitions and torchmetrics' own; averages over classes are in `functional`."""

import pytest
import torch
from reference import lovasz as reference
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex

from mmseg_nondecomp.metrics import JaccardIndexByImage, LovaszJaccardIndex, SoftJaccardIndex


def data_set_index(num_classes, average='macro', **arguments):
    metric = JaccardIndexByImage(num_classes, **arguments)
    return lambda preds, target: metric(preds, target)['dataset']


each_index = pytest.mark.parametrize('index', [LovaszJaccardIndex, SoftJaccardIndex, data_set_index])
each_soft_index = pytest.mark.parametrize('index', [LovaszJaccardIndex, SoftJaccardIndex])
DEFINITIONS = {LovaszJaccardIndex: reference.lovasz_softmax, SoftJaccardIndex: reference.soft_iou}
N_CLASSES = 5


def decisions(n_classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    decided = torch.randint(0, n_classes, (3, 8, 9), generator=generator)
    target = torch.where(torch.rand(3, 8, 9, generator=generator) < 0.7, decided, (decided + 1) % n_classes)
    return decided, target


def probabilities(seed=0):
    """Return probabilities and labels of three images; one class is never true."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(3, N_CLASSES, 6, 7, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    target = torch.randint(0, N_CLASSES - 1, (3, 6, 7), generator=generator)
    target[:, :, 0] = 255
    return probs, target


@pytest.mark.parametrize('classes', ['present', 'all', [0, 2, 4]], ids=str)
@pytest.mark.parametrize(
    ('index', 'arguments', 'tolerance'),
    [
        (LovaszJaccardIndex, dict(bins=16), 1 / 32),
        (LovaszJaccardIndex, dict(), 1 / 2048),
        (SoftJaccardIndex, dict(), 1e-12),
    ],
)
def test_one_minus_the_loss_of_the_definition(index, arguments, tolerance, classes):
    probs, target = probabilities()
    expected = DEFINITIONS[index](
        probs.flatten(2).numpy(), target.flatten(1).numpy(), classes=classes, ignore_index=255
    )
    found = index(N_CLASSES, classes=classes, **arguments)(probs, target)
    assert found.item() == pytest.approx(1 - float(expected), abs=tolerance)


@each_index
@pytest.mark.parametrize('ignore_index', [None, 0, 2, -1, -100, 255])
@pytest.mark.parametrize('absent', [None, 1])
def test_the_label_to_ignore_is_treated_as_in_torchmetrics(index, ignore_index, absent):
    decided, target = decisions(4)
    if ignore_index is not None:
        target[:, 0] = ignore_index
    if absent is not None:
        decided[decided == absent] = 3
        target[target == absent] = 3
    expected = MulticlassJaccardIndex(4, ignore_index=ignore_index)(decided, target)
    torch.testing.assert_close(index(4, ignore_index=ignore_index)(decided, target), expected)


@each_index
@pytest.mark.parametrize('ignore_index', [None, 255])
def test_with_many_classes_255_is_one_of_them(index, ignore_index):
    decided, target = decisions(300)
    target[0, :4] = 255
    assert (decided[target == 255] != 255).any()
    expected = MulticlassJaccardIndex(300, ignore_index=ignore_index)(decided, target)
    torch.testing.assert_close(index(300, ignore_index=ignore_index)(decided, target), expected)


@each_index
@pytest.mark.parametrize('ignore_index', [None, -1, 0])
def test_the_index_of_a_single_class_is_that_of_torchmetrics(index, ignore_index):
    decided, target = decisions(2)
    if ignore_index is not None:
        target[:, 0] = ignore_index
    expected = BinaryJaccardIndex(ignore_index=ignore_index)(decided, target)
    for preds in (decided, decided.float(), decided.float().unsqueeze(1)):
        torch.testing.assert_close(index(1, ignore_index=ignore_index)(preds, target), expected)


@each_soft_index
def test_a_single_class_is_the_second_of_two(index):
    generator = torch.Generator().manual_seed(0)
    probs, target = torch.rand(3, 8, 9, generator=generator), decisions(2)[1]
    of_two = index(2, average=None)(torch.stack([1 - probs, probs], 1), target)
    torch.testing.assert_close(index(1)(probs, target), of_two[1])


@each_index
def test_a_class_that_is_neither_true_nor_decided_does_not_count(index):
    decided, target = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 1]])
    torch.testing.assert_close(index(3)(decided, target), torch.tensor(0.5))
    torch.testing.assert_close(index(3)(decided, target), MulticlassJaccardIndex(3)(decided, target))
    if index is not data_set_index:
        each = index(3, average=None)(decided, target)
        torch.testing.assert_close(each, torch.tensor([0.5, 0.5, torch.nan]), equal_nan=True)


@each_soft_index
def test_a_class_that_is_ignored_counts_if_it_is_listed(index):
    decided, target = decisions(3)
    target[:, 0] = 0
    assert index(3, classes=[0, 1, 2], average=None, ignore_index=0)(decided, target)[0] == 0
    for classes in ('seen', 'present', 'all'):
        each = index(3, classes=classes, average=None, ignore_index=0)(decided, target)
        assert each.isnan().tolist() == [True, False, False]


def test_soft_labels_are_matched_exactly_by_the_soft_index_and_the_state_does_not_grow():
    probs, _ = probabilities()
    assert SoftJaccardIndex(N_CLASSES)(probs, probs).item() == pytest.approx(1)
    assert SoftJaccardIndex(N_CLASSES)(probs, probs.flip(1)) < 0.9
    metric, sizes = LovaszJaccardIndex(N_CLASSES), set()
    for seed in range(4):
        metric.update(*probabilities(seed))
        sizes.add(sum(state.numel() for state in metric.metric_state.values()))
    assert len(sizes) == 1


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(classes=[0, 3]), ValueError, '`classes`.*Found 3'),
        (dict(average='micro'), ValueError, "`average`.*Found 'micro'"),
        (dict(bins=None), TypeError, '`bins` should be an integer. Found None'),
    ],
)
def test_arguments_out_of_range_are_named(arguments, error, message):
    for index in (LovaszJaccardIndex, SoftJaccardIndex):
        if 'bins' not in arguments or index is LovaszJaccardIndex:
            with pytest.raises(error, match=message):
                index(3, **arguments)
