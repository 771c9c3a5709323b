import math

import pytest
import torch
from reference import lovasz as reference
from torchmetrics.classification import BinaryJaccardIndex

from mmseg_nondecomp.metrics import JaccardIndexByImage

N_CLASSES = 4


def images(seed=0, n=7):
    generator = torch.Generator().manual_seed(seed)
    decided = torch.randint(0, N_CLASSES, (n, 5, 6), generator=generator)
    target = torch.where(torch.rand(n, 5, 6, generator=generator) < 0.6, decided, (decided + 1) % 3)
    target[:, 0] = 255
    target[2] = 255  # an image that does not count
    return decided, target


@pytest.mark.parametrize('worst', [0.05, 0.28, 0.5, 1.0])
@pytest.mark.parametrize('seed', range(3))
def test_the_averages_are_those_of_the_definitions(seed, worst):
    decided, target = images(seed)
    found = JaccardIndexByImage(N_CLASSES, worst=worst)(decided, target)
    arguments = (decided.flatten(1).numpy(), target.flatten(1).numpy(), N_CLASSES)
    expected = {
        'image': reference.image_miou(*arguments, ignore_index=255),
        'class': reference.class_miou(*arguments, ignore_index=255),
        'dataset': reference.dataset_miou(*arguments, ignore_index=255),
        'worst': reference.worst_images_miou(*arguments, worst, ignore_index=255),
    }
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(float(value), abs=1e-6), name


def test_the_batch_average_is_over_updates_and_the_share_of_worst_images_a_decimal_number():
    metric = JaccardIndexByImage(3)
    metric.update(torch.tensor([[0, 0, 1, 2]]), torch.tensor([[0, 0, 0, 0]]))  # 0: 2/4; 1 and 2 are not true
    metric.update(torch.tensor([[1, 1, 2, 2]]), torch.tensor([[1, 1, 1, 2]]))  # 1: 2/3, 2: 1/2
    metric.update(torch.tensor([[1, 1, 2, 2]]), torch.tensor([[255, 255, 255, 255]]))  # no batch
    assert metric.compute()['batch'].item() == pytest.approx((1 / 2 + (2 / 3 + 1 / 2) / 2) / 2)
    # 0.28 * 25 is a little above 7 in floating point; the eighth image must not be among the worst.
    decided, target = torch.zeros(2, 25, 4, dtype=torch.long)
    target[:7] = 1
    assert math.ceil(0.28 * 25) == 8
    assert JaccardIndexByImage(2, worst=0.28)(decided, target)['worst'] == 0


def test_one_pixel_of_an_absent_class_counts_and_images_without_the_single_class_do_not():
    decided, target = torch.zeros(2, 2, 100, dtype=torch.long)
    target[1, :50] = decided[1, :50] = 1
    decided[0, 0] = 1
    found = JaccardIndexByImage(2)(decided, target)
    assert found['image'].item() == pytest.approx(((0.99 + 0) / 2 + 1) / 2)
    assert found['dataset'].item() == pytest.approx((149 / 150 + 50 / 51) / 2)
    decided, target = torch.randint(0, 2, (2, 3, 8, 9), generator=torch.Generator().manual_seed(0))
    target[1] = decided[1] = 0
    with_it = [BinaryJaccardIndex()(decided[i], target[i]) for i in (0, 2)]
    found = JaccardIndexByImage(1, worst=0.5)(decided, target)
    torch.testing.assert_close(found['image'], torch.stack(with_it).mean())
    torch.testing.assert_close(found['class'], found['image'])
    torch.testing.assert_close(found['worst'], min(with_it))


@pytest.mark.parametrize(('worst', 'error'), [(0, ValueError), (1.5, ValueError), ('some', TypeError)])
def test_a_share_out_of_range_is_named(worst, error):
    with pytest.raises(error, match=f'`worst`.*{worst!r}'):
        JaccardIndexByImage(3, worst=worst)
