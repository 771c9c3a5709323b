import pytest
import torch

from mmseg_nondecomp.evaluation._report import Report

CLASSES = ('sky', 'pole', 'road')


def test_names():
    values = dict(a=torch.tensor(0.5), b=torch.tensor([0.25, 0.5, 0.75]), c=dict(x=torch.tensor(3), y=2.5))
    report = Report(values, CLASSES)
    assert report.numbers == {'a': 0.5, 'b.sky': 0.25, 'b.pole': 0.5, 'b.road': 0.75, 'c.x': 3, 'c.y': 2.5}
    assert Report(dict(b=torch.tensor([1.0, 2.0])), None).numbers == {'b.0': 1, 'b.1': 2}
    with pytest.raises(ValueError, match=r"Found two called 'a\.x'"):
        Report({'a.x': torch.tensor(1.0), 'a': {'x': torch.tensor(2.0)}}, None)


def test_what_is_not_for_each_class_stays_as_it_is():
    curve = (torch.zeros(4), torch.ones(4))
    report = Report(dict(curve=curve, four=torch.zeros(4), matrix=torch.eye(3)), CLASSES)
    assert report.numbers['curve'] is curve
    assert report.numbers['four'].shape == (4,)
    assert report.numbers['matrix'].shape == (3, 3)
    assert report.table() == ''


def test_table():
    values = dict(IoU=torch.tensor([0.5, 0.25, 1.0]), Acc=torch.tensor([0.75, torch.nan, 1.0]), mIoU=torch.tensor(1.0))
    expected = """
class     IoU     Acc
---------------------
  sky  0.5000  0.7500
 pole  0.2500     nan
 road  1.0000  1.0000
"""
    assert Report(values, CLASSES).table() == expected.strip('\n')


def test_classes_of_boxes_are_those_that_were_met():
    """In the form of torchmetrics' MeanAveragePrecision."""
    value = dict(
        map=torch.tensor(0.5), map_per_class=torch.tensor([0.25, 0.75]), classes=torch.tensor([0, 2], dtype=torch.int32)
    )
    report = Report(dict(coco=value), CLASSES)
    assert report.numbers == {'coco.map': 0.5, 'coco.map_per_class.sky': 0.25, 'coco.map_per_class.road': 0.75}
    assert 'pole' not in report.table()


def test_classes_of_boxes_that_were_not_asked_for_are_left_out():
    value = dict(map=torch.tensor(0.5), map_per_class=torch.tensor(-1.0), classes=torch.tensor(1, dtype=torch.int32))
    assert Report(dict(coco=value), CLASSES).numbers == {'coco.map': 0.5}
