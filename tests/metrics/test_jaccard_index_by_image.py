import math

import pytest
import torch
from code_blocks import ROOT
from reference import lovasz as reference
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryJaccardIndex

from mmseg_nondecomp.metrics import JaccardIndexByImage
from mmseg_nondecomp.metrics.functional import jaccard_index_by_image

N_CLASSES = 4
NAMES = ('image', 'class', 'dataset', 'batch', 'worst')


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


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def of_sets(batches, classes, zero_division, worst=0.5, overlap=False):
    """The averages by their definition, with loops; None for NaN.

    A batch is a list of images, an image a list of pairs of a decided and a true label for its valid pixels: a class,
    or with ``overlap`` a set of classes.
    """

    def index(pixels, c):
        if not pixels:
            return None
        has = [(c in decided, c in true) if overlap else (decided == c, true == c) for decided, true in pixels]
        union = sum(a or b for a, b in has)
        return sum(a and b for a, b in has) / union if union else zero_division

    def join(sets):
        return [pixel for pixels in sets for pixel in pixels]

    images = join(batches)
    by_image = [mean(index(pixels, c) for c in classes) for pixels in images]
    lowest = sorted(value for value in by_image if value is not None)
    return {
        'image': mean(by_image),
        'class': mean(mean(index(pixels, c) for pixels in images) for c in classes),
        'dataset': mean(index(join(images), c) for c in classes),
        'batch': mean(mean(index(join(batch), c) for c in classes) for batch in batches),
        'worst': mean(lowest[: math.ceil(worst * len(lowest))]),
    }


def valid_pixels(decided, target, ignored):
    """The pairs of each image."""
    pairs = zip(decided.flatten(1).tolist(), target.flatten(1).tolist(), strict=True)
    return [[(d, t) for d, t in zip(*image, strict=True) if t != ignored] for image in pairs]


def assert_averages(found, expected):
    assert tuple(found) == NAMES
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(math.nan if value is None else value, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize('zero_division', [0, 0.25, 1])
@pytest.mark.parametrize('ignored_class', [None, 1])
@pytest.mark.parametrize('seed', range(3))
def test_with_a_zero_division_all_classes_count_in_all_averages(seed, ignored_class, zero_division):
    settings = dict(worst=0.5, ignore_index=ignored_class, zero_division=zero_division)
    metric, batches = JaccardIndexByImage(N_CLASSES + 1, **settings), []  # the last class is nowhere
    invalid = 255 if ignored_class is None else ignored_class
    for batch in range(3):
        decided, target = images(10 * seed + batch)
        target[target == 255] = invalid
        if batch == 2:
            target[:] = invalid
        metric.update(decided, target)
        batches.append(valid_pixels(decided, target, invalid))
    assert [] in batches[0]
    classes = [c for c in range(N_CLASSES + 1) if c != ignored_class]
    found = metric.compute()
    assert_averages(found, of_sets(batches, classes, zero_division))
    torch.testing.assert_close(found['class'], found['image'])


@pytest.mark.parametrize('zero_division', [0, 1])
def test_a_zero_division_of_a_single_class(zero_division):
    generator = torch.Generator().manual_seed(0)
    decided, target = torch.randint(0, 2, (2, 5, 3, 4), generator=generator)
    decided[:2] = target[:2] = 0  # neither true nor decided
    target[1, :, 1:] = 255
    target[2] = 255
    decided[3], target[3] = torch.eye(3, 4), 0  # decided alone
    metric, batches = JaccardIndexByImage(1, 255, worst=0.5, zero_division=zero_division), []
    for part in (slice(0, 2), slice(2, 3), slice(3, 5)):
        metric.update(decided[part], target[part])
        batches.append(valid_pixels(decided[part], target[part], 255))
    found = metric.compute()
    assert_averages(found, of_sets(batches, [1], zero_division))
    # Two images of 0 / 0, one without a valid pixel, one of index 0, and one of both.
    last = JaccardIndexByImage(1)(decided[4:], target[4:])['image'].item()
    assert 0 < last < 1
    assert found['image'].item() == pytest.approx((2 * zero_division + 0 + last) / 4)


def test_a_zero_division_of_several_labels():
    generator = torch.Generator().manual_seed(0)
    decided, target = torch.rand(2, 4, 3, 2, 5, generator=generator) < 0.1
    decided[0] = target[0] = False
    decided[:, 2] = target[:, 2] = False
    pixels = [
        [({*d.nonzero()[:, 0].tolist()}, {*t.nonzero()[:, 0].tolist()}) for d, t in zip(*image, strict=True)]
        for image in zip(decided.flatten(2).movedim(2, 1), target.flatten(2).movedim(2, 1), strict=True)
    ]
    arguments = dict(num_classes=3, mode='multilabel', worst=0.5, zero_division=1)
    found = jaccard_index_by_image(decided.long(), target, **arguments)
    assert_averages(found, of_sets([pixels], range(3), 1, overlap=True))


def test_the_binary_configs_measure_the_image_iou_of_the_paper():
    pytest.importorskip('mmseg')
    from mmengine.config import Config
    from mmengine.evaluator import Evaluator

    [path] = ROOT.glob('configs/pascal_voc12/lovasz-hinge_*-binary-*.py')
    cfg = Config.fromfile(path)
    assert cfg.test_evaluator == cfg.val_evaluator
    evaluator = Evaluator(cfg.val_evaluator)
    evaluator.dataset_meta = dict(classes=cfg.val_dataloader.dataset.metainfo.classes)
    shown, absent, wrong, invalid = (
        dict(pred_sem_seg=dict(data=torch.tensor([decided])), gt_sem_seg=dict(data=torch.tensor([true])))
        for decided, true in (
            ([[0, 1, 1, 1]], [[0, 0, 1, 255]]),
            ([[0, 0, 1]], [[0, 0, 255]]),
            ([[0, 1]], [[0, 0]]),
            ([[0]], [[255]]),
        )
    )
    for sample in (shown, absent, wrong, invalid):
        evaluator.process([sample])
    found = evaluator.evaluate(4)
    assert found['IoU.image'] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found['IoU.dataset'] == pytest.approx(1 / 3)


@pytest.mark.parametrize('zero_division', [None, 1])
def test_without_a_valid_pixel_nothing_counts(zero_division):
    for num_classes in (1, 3):
        found = JaccardIndexByImage(num_classes, zero_division=zero_division)(
            torch.zeros(2, 4, dtype=torch.long), torch.full((2, 4), 255)
        )
        assert all(value.isnan() for value in found.values())


def test_metrics_with_another_zero_division_do_not_share_states():
    collection = MetricCollection({str(z): JaccardIndexByImage(2, zero_division=z) for z in (None, 0, 1)})
    whole, absent = torch.ones(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)
    mixed = torch.tensor([[0, 1, 0, 1]])
    collection.update(mixed, mixed)
    collection.update(absent, absent)
    collection.update(whole, absent)
    found = collection.compute()
    expected = dict(zip(('None', '0', '1'), ((1 + 1 + 0) / 3, (1 + 0.5 + 0) / 3, (1 + 1 + 0) / 3), strict=True))
    for name, value in expected.items():
        assert found[f'{name}_image'].item() == pytest.approx(value), name
        assert found[f'{name}_batch'].item() == pytest.approx(value), name


@pytest.mark.parametrize(
    ('zero_division', 'error'), [(-0.1, ValueError), (2, ValueError), ('warn', TypeError), (True, TypeError)]
)
def test_a_zero_division_that_is_no_index_is_named(zero_division, error):
    with pytest.raises(error, match=f'`zero_division`.*{zero_division!r}'):
        JaccardIndexByImage(3, zero_division=zero_division)
    with pytest.raises(error, match=f'`zero_division`.*{zero_division!r}'):
        jaccard_index_by_image(torch.zeros(1, 2).long(), torch.zeros(1, 2).long(), 3, zero_division=zero_division)


@pytest.mark.parametrize(('worst', 'error'), [(0, ValueError), (1.5, ValueError), ('some', TypeError)])
def test_a_share_out_of_range_is_named(worst, error):
    with pytest.raises(error, match=f'`worst`.*{worst!r}'):
        JaccardIndexByImage(3, worst=worst)
