"""DenseCRF decides for the highest marginal of `dense_crf`."""

import pytest
import torch

from mmseg_nondecomp.functional.decisions import DenseCRF, dense_crf


def scene(n_classes):
    """Return logits [2, C, 9, 11] and an image in levels."""
    g = torch.Generator().manual_seed(0)
    return torch.randn(2, n_classes, 9, 11, generator=g), torch.rand(2, 3, 9, 11, generator=g) * 255


@pytest.mark.parametrize('settings', [dict(), dict(smoothness=(1, 2), appearance=(5, 20, 30), iterations=2)])
@pytest.mark.parametrize('temperature', [1.0, 0.5])
def test_is_the_highest_marginal(settings, temperature):
    logits, image = scene(4)
    found = DenseCRF(**settings, temperature=temperature)(logits, image)
    assert found.dtype == torch.int64
    assert torch.equal(found, dense_crf((logits / temperature).softmax(1), image, **settings).argmax(1))
    assert not torch.equal(found, logits.argmax(1))


def test_a_single_channel_is_a_probability_of_label_1():
    logits, image = scene(1)
    found = DenseCRF(temperature=2.0)(logits, image)
    assert torch.equal(found, (dense_crf((logits / 2).sigmoid(), image)[:, 0] > 0.5).long())
    two = DenseCRF(temperature=2.0)(torch.cat([torch.zeros_like(logits), logits], 1), image)
    assert torch.equal(found, two)


def test_half_precision_is_computed_in_float32():
    logits, image = scene(3)
    assert torch.equal(DenseCRF()(logits.half(), image), DenseCRF()(logits.half().float(), image))


@pytest.mark.parametrize(
    ('settings', 'error'),
    [
        (dict(smoothness=3.0), ValueError),
        (dict(appearance=(1.0, 2.0)), ValueError),
        (dict(iterations=-1), ValueError),
        (dict(temperature=0), ValueError),
        (dict(temperature='1'), TypeError),
    ],
)
def test_settings_are_checked(settings, error):
    [name] = settings
    with pytest.raises(error, match=f'`{name}'):
        DenseCRF(**settings)


def test_calls_are_checked():
    logits, image = scene(3)
    with pytest.raises(ValueError, match='`image` should be of shape'):
        DenseCRF()(logits, image[:, :, 1:])
    with pytest.raises(ValueError, match='levels from 0 to 255'):
        DenseCRF()(logits, image - 100)
    with pytest.raises(TypeError, match='`logits`'):
        DenseCRF()(logits.long(), image)
