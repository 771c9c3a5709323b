import pytest
from jaccard_scenes import assert_same_loss, batch

from mmseg_nondecomp import SoftIoULoss
from mmseg_nondecomp.functional import soft_iou


@pytest.mark.parametrize('n_channels', [1, 2, 5])
@pytest.mark.parametrize('classes', ['present', 'all', [0]], ids=str)
@pytest.mark.parametrize('scope', ['image', 'batch'])
def test_is_the_function_of_the_probabilities(n_channels, scope, classes):
    logits, labels = batch(n_channels)
    probs = logits.sigmoid() if n_channels == 1 else logits.softmax(1)
    weight = [1.0, 0.5, 2.0, 0.0, 3.0][:n_channels]
    loss = SoftIoULoss(classes=classes, scope=scope, class_weight=weight)
    assert_same_loss(loss(logits, labels), soft_iou(probs, labels, classes, scope == 'image', 255, weight), logits)
