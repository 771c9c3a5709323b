import math

import pytest
import torch
import torch.nn.functional as F
from jaccard_scenes import assert_same_loss, batch

from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.functional import loss_max_pooling
from mmseg_nondecomp.functional._inputs import Reading, read_inputs
from mmseg_nondecomp.losses._pixel_losses import PIXEL_LOSSES

CLASS_WEIGHT = [1.0, 0.5, 2.0, 0.0, 3.0]


class TestDefinition:
    @pytest.mark.parametrize('p', [1, 1.3, 4, math.inf])
    @pytest.mark.parametrize('scope', ['image', 'batch', 'world'])
    def test_is_the_pooled_cross_entropy_of_each_set(self, scope, p):
        logits, labels = batch()
        losses, valid = F.cross_entropy(logits, labels, ignore_index=255, reduction='none'), labels != 255
        if scope == 'image':
            expected = sum(loss_max_pooling(losses[i], p, 0.3, valid[i]) for i in range(2)) / 2
        else:
            expected = loss_max_pooling(losses, p, 0.3, valid)
        found = LossMaxPooling(p, 0.3, scope=scope)(logits, labels)
        assert_same_loss(found, expected, logits)

    @pytest.mark.parametrize('scope', ['image', 'batch', 'world'])
    def test_the_terms_add_up_to_the_loss_with_its_gradient(self, scope):
        logits, labels = batch()
        loss = LossMaxPooling(scope=scope, loss_weight=0.5)
        terms = loss(logits, labels, reduction_override='none')
        assert terms.shape == labels.shape
        assert not terms[labels == 255].any()
        assert_same_loss(terms.sum(), loss(logits, labels), logits)


def test_the_logged_measure_is_the_share_of_pixels_at_full_weight():
    loss = LossMaxPooling(p=1, ratio=0.5)
    inputs = loss.read(*(part[:2] for part in batch()))
    assert loss.measures(inputs, loss.value(inputs).statistics) == {'support': 0.5}


@pytest.mark.parametrize('name', PIXEL_LOSSES)
def test_by_name_with_class_weights(name):
    logits, labels = batch()
    inputs = read_inputs(logits, labels, reading=Reading(overlaps=True, has_background=True))
    losses = PIXEL_LOSSES[name](inputs, torch.tensor(CLASS_WEIGHT).double())
    found = LossMaxPooling(pixel_loss=name, class_weight=CLASS_WEIGHT, scope='batch')(logits, labels)
    assert_same_loss(found, loss_max_pooling(losses, mask=inputs.valid), logits)


class TestConfiguration:
    @pytest.mark.parametrize(
        ('args', 'error', 'message'),
        [
            (dict(p=0.9), ValueError, r'`p` should be in \[1, inf\]. Found 0.9'),
            (dict(ratio=0), ValueError, r'`ratio` should be in \(0, 1\]. Found 0'),
            (dict(pixel_loss='hinge'), ValueError, "`pixel_loss`.*'cross_entropy'.*'hinge'"),
            (dict(pixel_loss=dict(gamma=2.0)), TypeError, '`pixel_loss`.*gamma'),
            (dict(pixel_loss=dict(type='mmseg.FocalLoss'), class_weight=[1.0]), ValueError, '`class_weight`'),
            (dict(use_sigmoid=True), TypeError, "`use_sigmoid` should be None with `pixel_loss='cross_entropy'`"),
            (dict(use_sigmoid=False, pixel_loss='bce'), TypeError, '`use_sigmoid`.*_delete_'),
        ],
    )
    def test_settings_out_of_range_are_named_at_construction(self, args, error, message):
        with pytest.raises(error, match=message):
            LossMaxPooling(**args)
