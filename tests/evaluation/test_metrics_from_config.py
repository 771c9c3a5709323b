import pytest
from mmengine.config import ConfigDict
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy, MulticlassF1Score
from torchmetrics.wrappers import ClasswiseWrapper

from mmseg_nondecomp.evaluation._metrics_from_config import build_metrics
from mmseg_nondecomp.metrics import LovaszJaccardIndex

NAME = 'torchmetrics.classification.MulticlassAccuracy'


def test_full_names_bare_names_classes_and_instances():
    instance = BinaryAccuracy()
    built = build_metrics(
        ConfigDict(
            full=dict(type=NAME, num_classes=3, average=None),
            bare=dict(type='LovaszJaccardIndex', num_classes=3),
            cls=dict(type=MulticlassF1Score, num_classes=3),
            task=dict(type='torchmetrics.Accuracy', task='multiclass', num_classes=3),
        )
        | dict(instance=instance)
    )
    kinds = [MulticlassAccuracy, LovaszJaccardIndex, MulticlassF1Score, MulticlassAccuracy, BinaryAccuracy]
    assert [type(metric) for metric in built.values()] == kinds
    assert built['full'].average is None
    assert built['instance'] is instance


def test_metrics_within_metrics():
    wrapper = dict(type='torchmetrics.wrappers.ClasswiseWrapper', metric=dict(type=NAME, num_classes=3, average=None))
    built = build_metrics(dict(a=wrapper))['a']
    assert type(built) is ClasswiseWrapper
    assert built.metric.num_classes == 3


def test_collections():
    members = [dict(type=NAME, num_classes=3), dict(type='torchmetrics.classification.BinaryAccuracy')]
    collection = dict(type='torchmetrics.MetricCollection', metrics=members, prefix='val_')
    assert set(build_metrics(collection)) == {'val_MulticlassAccuracy', 'val_BinaryAccuracy'}
    assert set(build_metrics(dict(a=collection))) == {'a.val_MulticlassAccuracy', 'a.val_BinaryAccuracy'}


@pytest.mark.parametrize(
    ('name', 'hint'),
    [
        (
            'torchmetrics.classification.MulticlasJaccardIndex',
            'Did you mean .*torchmetrics.classification.MulticlassJaccardIndex',
        ),
        ('MulticlassJaccardIndex', 'Did you mean .*torchmetrics.classification.MulticlassJaccardIndex'),
        ('LovaszJacardIndex', "Did you mean .*'LovaszJaccardIndex'"),
        ('torchmetrics.clasification.BinaryAccuracy', 'Did you mean .*torchmetrics.classification.BinaryAccuracy'),
        ('torchmetric.classification.BinaryAccuracy', 'Did you mean .*torchmetrics.classification.BinaryAccuracy'),
        ('MeanIoU', 'Did you mean .*torchmetrics.segmentation.MeanIoU'),
        ('Xyzzy', 'Metrics of mmseg_nondecomp'),
    ],
)
def test_unknown_names(name, hint):
    with pytest.raises(ValueError, match=rf'Metric type {name!r} is not known\. {hint}'):
        build_metrics(dict(a=dict(type=name)))


@pytest.mark.parametrize(
    'value', [dict(type=nn.Linear, in_features=1, out_features=1), dict(num_classes=3), 3, nn.ReLU()]
)
def test_no_metric(value):
    with pytest.raises(TypeError, match="'a' should be a torchmetrics Metric or MetricCollection, or its config"):
        build_metrics(dict(a=value))


@pytest.mark.parametrize(
    'metrics', [{}, [dict(type=NAME)], None, {3: BinaryAccuracy()}, BinaryAccuracy(), dict(type=NAME, num_classes=3)]
)
def test_no_metrics_by_name(metrics):
    with pytest.raises(TypeError, match='`metrics` should map names'):
        build_metrics(metrics)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"Metric 'a' \(torchmetrics.*\) cannot be built: .*`n_classes`"):
        build_metrics(dict(a=dict(type=NAME, num_classes=3, n_classes=4)))
    with pytest.raises(TypeError, match=r"'a' .* cannot be built: .*'num_labels'"):
        build_metrics(dict(a=dict(type='torchmetrics.classification.MultilabelAccuracy')))


def test_one_metric_under_two_names():
    metric = MulticlassAccuracy(3, average=None)
    for other in (metric, ClasswiseWrapper(metric)):
        with pytest.raises(ValueError, match=r"states of their own\. Found one MulticlassAccuracy in 'a' and in 'b'"):
            build_metrics(dict(a=metric, b=other))


def test_two_metrics_under_one_name():
    with pytest.raises(ValueError, match=r"different names\. Found 'a\.x' twice"):
        build_metrics({'a.x': BinaryAccuracy(), 'a': MetricCollection(dict(x=BinaryAccuracy()))})


def test_error_within_a_module_that_is_found_is_its_own(tmp_path, monkeypatch):
    (tmp_path / 'module_of_a_metric.py').write_text('import module_that_is_missing\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match='module_that_is_missing'):
        build_metrics(dict(a=dict(type='module_of_a_metric.Metric')))
