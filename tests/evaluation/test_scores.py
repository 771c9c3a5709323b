import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp.evaluation._batch import Scores


def logits(n_channels):
    return torch.randn(2, n_channels, 3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('n_channels', [2, 5])
def test_of_several_channels(n_channels):
    z = logits(n_channels)
    assert_close(Scores(z, False).of('scores', 'classes'), z.softmax(1))
    assert_close(Scores(z, False).of('logits', 'classes'), z)
    assert_close(Scores(z.softmax(1), True).of('logits', 'classes').softmax(1), z.softmax(1))


def test_of_one_channel():
    z = logits(1)
    for scores in (Scores(z, False), Scores(z.sigmoid(), True)):
        assert_close(scores.of('scores', 'binary'), z.sigmoid().squeeze(1))
        assert_close(scores.of('scores', 'channel'), z.sigmoid())
        assert_close(scores.of('logits', 'binary'), z.squeeze(1))
        assert_close(scores.of('scores', 'classes'), torch.cat([1 - z.sigmoid(), z.sigmoid()], 1))
        assert_close(scores.of('logits', 'classes').softmax(1), torch.cat([1 - z.sigmoid(), z.sigmoid()], 1))


def test_two_channels_are_one_decision():
    z = logits(2)
    for scores in (Scores(z, False), Scores(z.softmax(1), True)):
        assert_close(scores.of('scores', 'binary'), z.softmax(1)[:, 1])
        assert_close(scores.of('logits', 'binary'), z[:, 1] - z[:, 0])


def test_certainty_half_precision_and_three_classes():
    for p in (torch.tensor([[0.0]]), torch.tensor([[1.0]]), torch.tensor([[0.0, 1.0]])):
        assert Scores(p, True).of('logits', 'classes').isfinite().all()
    assert Scores(logits(3).half(), False).of('scores', 'classes').dtype == torch.float32
    with pytest.raises(ValueError, match=r'1 or 2 channels\. Found 3'):
        Scores(logits(3), False).of('scores', 'binary')
