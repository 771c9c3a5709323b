"""S-measure losses in MMPretrain's heads: two classes, several labels, and a training that reaches its recall."""

import needs_mmpretrain  # noqa: F401  isort: skip

from typing import Any

import pytest
import torch
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmpretrain.structures import DataSample
from torch.utils.data import Dataset

from mmseg_nondecomp import SMeasureLoss

N, C, CHANNELS = 400, 6, 5


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


def features(n: int = N) -> torch.Tensor:
    return torch.randn(n, CHANNELS, generator=torch.Generator().manual_seed(0))


def head(kind: str, num_classes: int, **loss: Any) -> Any:
    torch.manual_seed(0)
    loss = dict(type='SMeasureLoss', **loss)
    return MODELS.build(dict(type=kind, num_classes=num_classes, in_channels=CHANNELS, loss=loss))


def test_two_classes_are_one_decision():
    built, labels = head('LinearClsHead', 2), torch.arange(N) % 5 == 0
    found = built.loss((features(),), [DataSample().set_gt_label(int(label)) for label in labels])['loss']
    scores = built((features(),))
    expected = SMeasureLoss()((scores[:, 1] - scores[:, 0]).unsqueeze(1), labels.long())
    torch.testing.assert_close(found, expected)


def test_each_of_several_labels_is_a_query():
    built = head('MultiLabelLinearClsHead', C, measure='precision_at_recall', target=0.8)
    labels = (torch.rand(N, C, generator=torch.Generator().manual_seed(1)) < 0.2).float()
    found = built.loss((features(),), [DataSample().set_gt_score(row) for row in labels])['loss']
    scores = built((features(),))
    queries = [
        SMeasureLoss(measure='precision_at_recall', target=0.8)(scores[:, [c]], labels[:, c].long()) for c in range(C)
    ]
    torch.testing.assert_close(found, torch.stack(queries).mean())
    built.loss_module.step()
    assert built.loss_module.state.mu.shape == (C, 1)


class Points(Dataset):
    """Points of two classes that overlap, one in ten a positive."""

    metainfo = dict(classes=('rest', 'thing'))

    def __init__(self) -> None:
        self.x = features()
        noise = torch.randn(N, generator=torch.Generator().manual_seed(3))
        self.y = (self.x[:, 0] + noise > 1.8).long()

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(inputs=self.x[index], data_samples=DataSample().set_gt_label(int(self.y[index])))


class Features(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor]:
        return (inputs,)


def test_a_runner_trains_to_the_recall(tmp_path):
    of_recall = dict(type='LinearClsHead', num_classes=2, in_channels=CHANNELS)
    of_recall['loss'] = dict(type='SMeasureLoss', measure='precision_at_recall', target=0.9)
    model = MODELS.build(dict(type='ImageClassifier', backbone=Features(), head=of_recall))
    model.data_preprocessor = BaseDataPreprocessor()  # features are no images
    loader = dict(dataset=Points(), batch_size=100, collate_fn=dict(type='default_collate'), num_workers=0)
    runner = Runner(
        model=model,
        work_dir=str(tmp_path),
        train_dataloader=dict(loader, sampler=dict(type='InfiniteSampler', shuffle=True)),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=600),
        param_scheduler=dict(type='LinearLR', start_factor=1.0, end_factor=0.01, by_epoch=False, begin=0, end=600),
        optim_wrapper=dict(optimizer=dict(type='Adam', lr=3e-2)),
        default_scope='mmpretrain',
        experiment_name=str(tmp_path),
        randomness=dict(seed=0),
    )
    runner.train()
    data = Points()
    with torch.no_grad():
        scores = model.head((data.x,))
    taken = scores[:, 1] > scores[:, 0]
    recall = (taken & (data.y == 1)).sum() / (data.y == 1).sum()
    assert recall.item() == pytest.approx(0.9, abs=0.05)  # a positive is 0.025 of it
    assert model.head.loss_module.state.mu.item() != 1
    assert 'train/loss_s_measure_recall' in runner.message_hub.log_scalars
