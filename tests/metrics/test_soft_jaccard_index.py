import pytest
import torch
from reference import lovasz as reference
from torchmetrics.classification import MulticlassJaccardIndex

from mmseg_nondecomp.metrics import SoftJaccardIndex

N_CLASSES = 5


def images(seed=0):
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(3, N_CLASSES, 6, 7, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    target = torch.randint(0, N_CLASSES - 1, (3, 6, 7), generator=generator)
    target[:, :, 0] = 255
    return probs, target


@pytest.mark.parametrize('classes', ['present', 'all', [0, 2, 4]], ids=str)
def test_is_one_minus_the_loss_of_the_definition(classes):
    probs, target = images()
    expected = reference.soft_iou(
        probs.flatten(2).numpy(), target.flatten(1).numpy(), classes=classes, ignore_index=255
    )
    found = SoftJaccardIndex(N_CLASSES, classes=classes)(probs, target)
    assert found.item() == pytest.approx(1 - float(expected), abs=1e-12)


def test_soft_targets_are_met_exactly():
    probs, _ = images()
    assert SoftJaccardIndex(N_CLASSES)(probs, probs).item() == pytest.approx(1)
    assert SoftJaccardIndex(N_CLASSES)(probs, probs.flip(1)) < 0.9


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('average', ['macro', None])
def test_on_decisions_it_is_the_index_of_torchmetrics(seed, average):
    probs, target = images(seed)
    decided = probs.argmax(1)
    found = SoftJaccardIndex(N_CLASSES, average=average, ignore_index=255)(decided, target)
    expected = MulticlassJaccardIndex(N_CLASSES, average=average or 'none', ignore_index=255)(decided, target)
    torch.testing.assert_close(found, expected)
