"""The head of DeepLabV2 is a sum of dilated convolutions."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip('mmseg')

from mmengine.registry import MODELS

CE = dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True)


@pytest.mark.parametrize('out_channels', [3, 1])
def test_scores_are_the_sum_of_the_dilated_convolutions(out_channels: int):
    torch.manual_seed(0)
    n_classes = max(out_channels, 2)
    settings = dict(in_index=1, num_classes=n_classes, out_channels=out_channels, threshold=0.5, loss_decode=CE)
    head = MODELS.build(dict(type='DeepLabV2Head', in_channels=6, **settings))
    head.init_weights()
    features = torch.randn(2, 6, 33, 41)
    expected = 0
    for weights, rate in zip(head.conv_seg, (6, 12, 18, 24), strict=True):
        torch.nn.init.normal_(weights.bias)
        expected = expected + F.conv2d(F.pad(features, [rate] * 4), weights.weight, weights.bias, dilation=rate)
    scores = head([None, features])
    assert scores.shape == (2, out_channels, 33, 41)
    torch.testing.assert_close(scores, expected)


def test_weights_start_small():
    head = MODELS.build(dict(type='DeepLabV2Head', in_channels=64, num_classes=19, loss_decode=CE))
    head.init_weights()
    for convolution in head.conv_seg:
        assert convolution.weight.std().item() == pytest.approx(0.01, rel=0.05)
        assert not convolution.bias.any()
