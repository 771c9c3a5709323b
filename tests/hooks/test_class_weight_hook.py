"""Class weights by the formulas of the papers, in the losses of a model."""

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip('mmseg')

from mmseg.models.losses import CrossEntropyLoss
from torch import nn

from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.class_index import ClassIndex
from mmseg_nondecomp.class_index._index import ImageClasses
from mmseg_nondecomp.hooks import ClassWeightHook, class_weight_hook

LABELS = [[0, 0, 0, 1], [0, 0, 255, 255], [2, 2, 1, 1], [255] * 4]
"""Labels of four pixels in each of four images. There is no pixel of class 3."""
BALANCED = [0.5 / (5 / 6), 0.5 / (3 / 8), 0.5 / (2 / 4)]
"""Pixels of the class, and of the images with it that are not ignored; the median of 5/6, 3/8 and 2/4 is 2/4."""
ENET = [1 / math.log(1.02 + share) for share in (0.5, 0.3, 0.2)]


@pytest.fixture(autouse=True)
def _counted(monkeypatch):
    """Count the labels above."""
    images = []
    for label in LABELS:
        classes, counts = np.unique([item for item in label if item != 255], return_counts=True)
        images.append(ImageClasses(classes.astype(int), counts, len(label), np.zeros((len(classes), 0, 2))))
    index = ClassIndex.from_images(images, ('sky', 'sea', 'ship', 'shark'), n_places=0)
    monkeypatch.setattr(class_weight_hook, 'index_classes', lambda dataset: index)


def start(hook, *losses):
    loader = SimpleNamespace(dataset=None)
    hook.before_train(SimpleNamespace(model=nn.ModuleList(losses), train_dataloader=loader, logger=logging.getLogger()))


def cross_entropy(**settings):
    return CrossEntropyLoss(reduction='none', **settings)


@pytest.mark.parametrize(('weighting', 'expected'), [('median_frequency', BALANCED), ('enet', ENET)])
def test_weights_are_those_of_the_paper(weighting, expected):
    loss = cross_entropy()
    start(ClassWeightHook(weighting), loss)
    assert loss.class_weight == pytest.approx([*expected, 1])


def test_loss_is_weighted_and_ignores_255():
    loss = cross_entropy()
    start(ClassWeightHook('median_frequency'), loss)
    label = torch.tensor(LABELS).view(4, 2, 2)
    found = loss(torch.zeros(4, 4, 2, 2), label, ignore_index=255)
    expected = torch.tensor([*BALANCED, 1])[label.clamp(max=3)] * math.log(4) * (label != 255)
    torch.testing.assert_close(found, expected)


def test_all_losses_of_the_name_are_weighted_and_no_other():
    main, auxiliary, other = cross_entropy(), cross_entropy(), cross_entropy(loss_name='loss_other')
    start(ClassWeightHook('enet'), nn.ModuleList([main, other]), auxiliary)
    assert main.class_weight is not None
    assert main.class_weight == auxiliary.class_weight
    assert other.class_weight is None


def test_weights_are_logged(caplog):
    caplog.set_level(logging.INFO)
    start(ClassWeightHook('median_frequency'), cross_entropy())
    assert 'Class weights of loss_ce: sky 0.6, sea 1.33, ship 1, shark 1' in caplog.text


@pytest.mark.parametrize(
    'loss', [cross_entropy(class_weight=[1.0] * 4), LossMaxPooling(loss_name='loss_ce')], ids=['weighted', 'set loss']
)
def test_losses_that_have_weights_or_take_none_are_refused(loss):
    with pytest.raises(ValueError, match='should name stock losses with `class_weight=None`'):
        start(ClassWeightHook('enet'), loss)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"one of \['loss_ce'\]\. Found 'loss_x'"):
        start(ClassWeightHook('enet', loss_name='loss_x'), cross_entropy())
    with pytest.raises(ValueError, match=r'`weighting`.*median_frequency'):
        ClassWeightHook('inverse')
