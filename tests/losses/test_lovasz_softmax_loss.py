import pytest
from jaccard_scenes import assert_same_loss, batch

from mmseg_nondecomp import LovaszSoftmaxLoss
from mmseg_nondecomp.functional import lovasz_softmax

exact_and_binned = pytest.mark.parametrize('bins', [None, 1024])


@pytest.mark.parametrize('n_channels', [1, 2, 5])
@pytest.mark.parametrize('classes', ['present', 'all', [0]], ids=str)
@pytest.mark.parametrize('scope', ['image', 'batch'])
@exact_and_binned
def test_is_the_function_of_the_probabilities(n_channels, scope, classes, bins):
    logits, labels = batch(n_channels)
    probs = logits.sigmoid() if n_channels == 1 else logits.softmax(1)
    weight = [1.0, 0.5, 2.0, 0.0, 3.0][:n_channels]
    loss = LovaszSoftmaxLoss(classes=classes, scope=scope, class_weight=weight, bins=bins)
    expected = lovasz_softmax(probs, labels, classes, scope == 'image', 255, weight, bins)
    assert_same_loss(loss(logits, labels), expected, logits)


@pytest.mark.parametrize(
    ('args', 'error', 'named'),
    [
        (dict(memory=-1), ValueError, '`memory`.*-1'),
        (dict(memory=2, scope='image'), ValueError, "`memory`.*scope='image'"),
        (dict(memory=2, bins=None), ValueError, '`bins`.*`memory`'),
        (dict(scope='world', bins=None), ValueError, "`bins`.*scope='world'"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_together_are_named(args, error, named):
    with pytest.raises(error, match=named):
        LovaszSoftmaxLoss(**args)
