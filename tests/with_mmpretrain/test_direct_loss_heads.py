"""The loss of average precision in MMPretrain's multi-label heads: its value, and what the heads hand to it."""

import needs_mmpretrain  # noqa: F401  isort: skip

from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.evaluation import AveragePrecision
from mmpretrain.structures import DataSample
from torchmetrics.classification import BinaryAveragePrecision

N, C, CHANNELS = 40, 6, 8
ABSENT, FULL = 2, 4
"""A class that no item has, and one that all have."""


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


def head(kind: str = 'MultiLabelLinearClsHead', loss: dict | None = None, **settings: Any) -> Any:
    torch.manual_seed(0)
    if kind == 'MultiLabelLinearClsHead':
        settings = dict(num_classes=C, in_channels=CHANNELS, init_cfg=dict(type='Normal', layer='Linear', std=1))
    built = MODELS.build(dict(type=kind, loss=loss or dict(type='DirectAPLoss'), **settings))
    built.init_weights()
    return built


def features(n: int = N, channels: int = CHANNELS) -> tuple[torch.Tensor]:
    return (torch.randn(n, channels, generator=torch.Generator().manual_seed(1)),)


def targets() -> torch.Tensor:
    labels = (torch.rand(N, C, generator=torch.Generator().manual_seed(2)) < 0.3).float()
    labels[:, ABSENT] = 0
    labels[:, FULL] = 1
    return labels


def with_scores(labels: torch.Tensor) -> list[DataSample]:
    return [DataSample().set_gt_score(row) for row in labels]


def with_labels(labels: torch.Tensor) -> list[DataSample]:
    """Return lists of classes, the form of MMPretrain's multi-label data sets."""
    return [DataSample().set_gt_label(row.nonzero().flatten()) for row in labels]


def expected(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Return one minus the mean average precision of the classes with positives and negatives."""
    compared = [c for c in range(C) if 0 < labels[:, c].sum() < len(labels)]
    precisions = [BinaryAveragePrecision()(scores[:, c].sigmoid(), labels[:, c].long()) for c in compared]
    return 1 - torch.stack(precisions).mean().item()


@pytest.mark.parametrize('kind', ['MultiLabelLinearClsHead', 'MultiLabelClsHead', 'CSRAClsHead'])
@pytest.mark.parametrize('samples', [with_scores, with_labels])
def test_value_is_that_of_torchmetrics(kind: str, samples: Any):
    feats, settings = features(), {}
    if kind == 'MultiLabelClsHead':
        feats = features(channels=C)
    if kind == 'CSRAClsHead':
        feats = (torch.randn(N, CHANNELS, 2, 2, generator=torch.Generator().manual_seed(1)),)
        settings = dict(num_classes=C, in_channels=CHANNELS, num_heads=1, lam=0.1)
    built = head(kind, **settings)
    scores, labels = built(feats), targets()
    found = built.loss(feats, samples(labels))
    assert found.keys() == {'loss'}
    assert found['loss'].item() == pytest.approx(expected(scores, labels), abs=1e-6)


def test_value_is_that_of_mmpretrains_metric():
    built, feats, labels = head(), features(), targets()
    compared = [c for c in range(C) if c not in (ABSENT, FULL)]
    scores = built(feats).detach().sigmoid()
    measured = AveragePrecision.calculate(scores[:, compared], labels[:, compared]).item() / 100
    assert built.loss(feats, with_scores(labels))['loss'].item() == pytest.approx(1 - measured, abs=1e-6)


def test_classes_without_positives_or_negatives_have_no_gradient():
    # So large that the rankings compared differ in every class that has any.
    built, feats, labels = head(loss=dict(type='DirectAPLoss', epsilon=10.0)), features(), targets()
    built.loss(feats, with_scores(labels))['loss'].backward()
    gradient = built.fc.weight.grad
    assert gradient.isfinite().all()
    assert [c for c in range(C) if not gradient[c].any()] == [ABSENT, FULL]


def test_batch_without_anything_to_rank_is_0_and_has_a_gradient():
    built, feats = head(), features()
    loss = built.loss(feats, with_scores(torch.zeros(N, C)))['loss']
    loss.backward()
    assert loss.item() == 0
    assert not built.fc.weight.grad.any()


def test_mixed_labels_count_from_a_half():
    built, feats, labels = head(), features(), targets()
    mixed = (0.7 * labels + 0.3 * labels.roll(1, 0)).clamp(0, 1)
    found = built.loss(feats, with_scores(mixed))['loss'].item()
    assert found == pytest.approx(expected(built(feats), labels), abs=1e-6)
