"""The generated data set of detection, its drawing and its items."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from mmseg_nondecomp.datasets import shape_boxes
from mmseg_nondecomp.datasets.shape_boxes import CLASSES, OUTLINES, SIZE, ShapeBoxes, draw_boxed_shapes

PIPELINE = [dict(type='mmdet.LoadAnnotations', with_bbox=True), dict(type='mmdet.PackDetInputs')]


@pytest.mark.parametrize('split', ['train', 'val'])
def test_items_are_the_drawn_images_with_their_boxes(split: str):
    dataset = ShapeBoxes(split, num_images=6, seed=5)
    assert len(dataset) == 6
    for index in range(6):
        item, drawn = dataset[index], draw_boxed_shapes(5, split, index)
        assert np.array_equal(item['img'], drawn.image)
        assert [found['bbox'] for found in item['instances']] == drawn.boxes.tolist()
        assert [found['bbox_label'] for found in item['instances']] == drawn.labels.tolist()
        assert dataset.get_cat_ids(index) == drawn.labels.tolist()
        assert item['img_id'] == item['sample_idx'] == index
        assert item['img_shape'] == item['ori_shape'] == drawn.image.shape[:2] == (SIZE, SIZE)


def test_same_bytes_on_every_machine():
    drawn = [part for index in range(20) for part in draw_boxed_shapes(3, 'val', index)]
    found = hashlib.sha256(b''.join(part.tobytes() for part in drawn)).hexdigest()
    assert found[:16] == '80b3f2dfdfe05fee'


@pytest.fixture(scope='module')
def drawn():
    masks: list[list[np.ndarray]] = []
    free_place = shape_boxes._free_place

    def spy(rng, outline, taken):
        mask = free_place(rng, outline, taken)
        if mask is not None:
            masks[-1].append((mask, outline))
        return mask

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape_boxes, '_free_place', spy)
        for index in range(600):
            masks.append([])
            found.append(draw_boxed_shapes(0, 'train', index))
    return list(zip(found, masks, strict=True))


def test_boxes_and_classes_are_exact_and_no_object_hides_another(drawn):
    for (_, boxes, labels), objects in drawn:
        assert boxes.shape == (len(labels), 4)
        assert len(objects) == len(labels) <= shape_boxes.MOST_OBJECTS
        assert sum((mask.astype(int) for mask, _ in objects), np.zeros(1)).max() <= 1
        for (mask, outline), (left, top, right, bottom), label in zip(objects, boxes.astype(int), labels, strict=True):
            assert OUTLINES[CLASSES[label]][0] is outline
            inside = mask[top:bottom, left:right]
            assert inside.sum() == mask.sum()
            assert all(edge.any() for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
            assert min(inside.shape) >= 9


def test_disks_can_be_seen_in_their_boxes(drawn):
    """A disk has another colour than the corners of its box, mostly."""
    contrasts = []
    for (image, boxes, labels), _ in drawn:
        for (left, top, right, bottom), label in zip(boxes.astype(int), labels, strict=True):
            if CLASSES[label] == 'disk' and min(left, top) > 0 and max(right, bottom) < SIZE:
                middle = image[(top + bottom) // 2 - 2 :, (left + right) // 2 - 2 :][:4, :4].mean((0, 1))
                corners = image[[top, top, bottom - 1, bottom - 1], [left, right - 1, left, right - 1]]
                contrasts.append(abs(middle - corners.mean(0)).max())
    assert np.median(contrasts) > 40


def test_classes_are_unequally_frequent_and_some_images_are_empty(drawn):
    counts = np.bincount(np.concatenate([found.labels for found, _ in drawn]), minlength=len(CLASSES))
    assert (np.diff(counts) < 0).all()
    shares = [share for _, share in OUTLINES.values()]
    assert sum(shares) == pytest.approx(1)
    assert counts / counts.sum() == pytest.approx(shares, abs=0.04)
    assert np.mean([len(found.labels) == 0 for found, _ in drawn]) == pytest.approx(shape_boxes.EMPTY, abs=0.04)


def test_an_object_without_a_place_is_left_out():
    taken = np.ones((SIZE, SIZE), dtype=bool)
    rng = np.random.Generator(np.random.PCG64(0))
    assert shape_boxes._free_place(rng, OUTLINES['disk'][0], taken) is None


@pytest.mark.parametrize('flipped', [False, True])
def test_mmdetection_packs_the_items(flipped: bool):
    pytest.importorskip('mmdet')
    import mmdet.datasets  # noqa: F401  registers the pipeline

    flip = dict(type='mmdet.RandomFlip', prob=float(flipped))
    dataset = ShapeBoxes(num_images=4, seed=1, pipeline=[PIPELINE[0], flip, PIPELINE[1]])
    n_empty = 0
    for index in range(4):
        image, boxes, labels = draw_boxed_shapes(1, 'train', index)
        if flipped:
            image = image[:, ::-1]
            boxes = np.stack([SIZE - boxes[:, 2], boxes[:, 1], SIZE - boxes[:, 0], boxes[:, 3]], 1)
        packed = dataset[index]
        assert np.array_equal(packed['inputs'].permute(1, 2, 0).numpy(), image)
        found = packed['data_samples'].gt_instances
        assert np.array_equal(found.bboxes.numpy(), boxes)
        assert np.array_equal(found.labels.numpy(), labels)
        assert packed['data_samples'].scale_factor == (1.0, 1.0)
        n_empty += len(labels) == 0
    assert n_empty > 0


def test_stock_metric_gives_the_true_boxes_full_marks():
    pytest.importorskip('mmdet')
    import mmdet.datasets  # noqa: F401  registers the pipeline
    from mmdet.evaluation import VOCMetric

    dataset = ShapeBoxes(num_images=40, pipeline=PIPELINE)
    values = []
    for shift in (0.0, 8.0):
        metric = VOCMetric(eval_mode='area')
        metric.dataset_meta = dataset.metainfo
        for index in range(len(dataset)):
            sample = dataset[index]['data_samples'].to_dict()
            true = sample['gt_instances']
            sample['gt_instances'] = dict(bboxes=true['bboxes'].tensor, labels=true['labels'])
            ignored = sample['ignored_instances']
            sample['ignored_instances'] = dict(bboxes=ignored['bboxes'].tensor, labels=ignored['labels'])
            sample['pred_instances'] = dict(
                bboxes=true['bboxes'].tensor + shift, labels=true['labels'], scores=true['labels'] * 0.0 + 0.5
            )
            metric.process({}, [sample])
        values.append(metric.evaluate(len(dataset))['pascal_voc/mAP'])
    assert values[0] == 1
    assert values[1] < 0.7


def test_needs_mmengine_alone():
    program = """
import sys
from mmseg_nondecomp.datasets.shape_boxes import ShapeBoxes
assert len(ShapeBoxes(num_images=2)) == 2
assert 'mmdet' not in sys.modules
"""
    subprocess.run([sys.executable, '-c', program], check=True)
