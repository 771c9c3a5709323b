"""The head of ENet completes the network of the paper."""

import pytest
import torch

pytest.importorskip('mmseg')

from mmengine.registry import MODELS

from mmseg_nondecomp.backbones import ENet
from mmseg_nondecomp.heads import ENetHead

CE = dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True)


def test_network_has_the_number_of_parameters_of_the_paper():
    """0.37 million in the paper."""
    parts = ENet(), ENetHead(num_classes=19, loss_decode=CE)
    assert sum(weight.numel() for part in parts for weight in part.parameters()) == 365_858


def test_scores_have_the_size_of_the_image():
    head = MODELS.build(dict(type='ENetHead', num_classes=5, loss_decode=CE)).eval()
    assert head(ENet().eval()(torch.zeros(2, 3, 64, 96))).shape == (2, 5, 64, 96)
