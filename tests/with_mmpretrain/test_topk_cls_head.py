"""The top-k losses in MMPretrain's heads, and the head whose predictions are averaged."""

import needs_mmpretrain  # noqa: F401  isort: skip

import pytest
import torch
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import DefaultScope
from mmpretrain.registry import MODELS
from mmpretrain.structures import DataSample

import mmseg_nondecomp.heads  # noqa: F401
from mmseg_nondecomp.functional import smooth_topk_loss, topk_marginals

N_CLASSES, N_FEATURES = 12, 8


@pytest.fixture(autouse=True)
def _scope():
    DefaultScope.get_instance('topk', scope_name='mmpretrain')


def head(type='TopKClsHead', loss=None, **kwargs):
    loss = loss or dict(type='SmoothTopKLoss', k=3, tau=0.5)
    return MODELS.build(dict(type=type, num_classes=N_CLASSES, in_channels=N_FEATURES, loss=loss, **kwargs))


def features(n=6):
    return (torch.randn(n, N_FEATURES, generator=torch.Generator().manual_seed(0)),)


def samples(labels):
    return [DataSample().set_gt_label(label) for label in labels]


def test_predicts_the_marginals_of_its_loss():
    model = head()
    scores = model(features())
    actual = model.predict(features())
    torch.testing.assert_close(
        torch.stack([sample.pred_score for sample in actual]), topk_marginals(scores / (3 * 0.5), 3)
    )
    assert [sample.pred_label.item() for sample in actual] == scores.argmax(1).tolist()
    torch.testing.assert_close(torch.stack([sample.pred_score.sum() for sample in actual]), torch.ones(6))


def test_settings_of_its_own():
    model = head(loss=dict(type='CrossEntropyLoss'), k=2, tau=2.0)
    actual = model.predict(features())[0].pred_score
    torch.testing.assert_close(actual, topk_marginals(model(features())[0] / 4, 2))


def test_fills_the_samples_that_are_given():
    given = samples(range(6))
    actual = head().predict(features(), given)
    assert all(after is before for before, after in zip(given, actual, strict=True))
    assert [sample.gt_label.item() for sample in actual] == list(range(6))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_predictions_of_half_precision_add_up_to_one(dtype):
    scores = torch.randn(4, N_CLASSES).to(dtype)
    for sample in head()._get_predictions(scores, None):
        assert sample.pred_score.sum().item() == pytest.approx(1, abs=1e-6)


class Crops(torch.nn.Module):
    """A backbone that hands on the features it is given."""

    def forward(self, inputs):
        return (inputs,)


def test_test_time_augmentation_averages_marginals():
    averaged = dict(type='TopKClsHead', num_classes=N_CLASSES, in_channels=N_FEATURES)
    averaged['loss'] = dict(type='SmoothTopKLoss', k=3, tau=0.1)
    module = dict(type='ImageClassifier', backbone=Crops(), head=averaged)
    tta = MODELS.build(dict(type='AverageClsScoreTTA', module=module))
    tta.module.data_preprocessor = BaseDataPreprocessor()  # features are no images
    crops = [torch.randn(2, N_FEATURES, generator=torch.Generator().manual_seed(i)) for i in range(10)]
    with torch.no_grad():
        actual = tta.test_step({'inputs': crops, 'data_samples': [samples([0, 1]) for _ in crops]})
        expected = sum(topk_marginals(tta.module.head((crop,)) / (3 * 0.1), 3) for crop in crops) / len(crops)
    torch.testing.assert_close(torch.stack([sample.pred_score for sample in actual]), expected)


@pytest.mark.parametrize('offset', [-100.0, 0.0, 100.0])
def test_logs_the_accuracy_of_the_training_batch_whatever_the_offset(offset):
    model = head(cal_acc=True, topk=(1, 3))
    scores = torch.randn(50, N_CLASSES, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(N_CLASSES, (50,), generator=torch.Generator().manual_seed(2))
    losses = model._get_loss(scores + offset, samples(labels.tolist()))
    ranks = scores.argsort(1, descending=True)
    for k in (1, 3):
        expected = 100 * (ranks[:, :k] == labels[:, None]).any(1).float().mean().item()
        [accuracy] = losses[f'accuracy_top-{k}']
        assert accuracy.item() == pytest.approx(expected)
    expected = smooth_topk_loss(scores + offset, labels, 3, 0.5)
    torch.testing.assert_close(losses['loss'], expected)


def test_the_stock_head_takes_the_loss_with_labels_and_with_soft_labels():
    for loss in ('SmoothTopKLoss', 'HardTopKLoss'):
        model = head('LinearClsHead', loss=dict(type=loss, k=3))
        labels = torch.arange(6)
        of_labels = model.loss(features(), samples(labels.tolist()))['loss']
        one_hot = torch.nn.functional.one_hot(labels, N_CLASSES).float()
        of_soft_labels = model.loss(features(), [DataSample().set_gt_score(score) for score in one_hot])['loss']
        torch.testing.assert_close(of_labels, of_soft_labels)
        of_soft_labels.backward()
        assert model.fc.weight.grad.isfinite().all()
        assert model.fc.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ('settings', 'error', 'message'),
    [
        (dict(loss=dict(type='CrossEntropyLoss')), TypeError, '`k`.*CrossEntropyLoss'),
        (dict(loss=dict(type='HardTopKLoss')), TypeError, '`tau`.*HardTopKLoss'),
        (dict(loss=dict(type='SmoothTopKLoss', k=12)), ValueError, '`k`.*12'),
        (dict(tau=0.0), ValueError, '`tau`'),
        (dict(k=2.0), TypeError, '`k`'),
    ],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        head(**settings)
