"""DenseNet-40 has the layers, the shapes and the number of parameters of the paper."""

import pytest
import torch

pytest.importorskip('mmengine')

from mmengine.registry import MODELS
from torch import nn

from mmseg_nondecomp.backbones import DenseNet40
from mmseg_nondecomp.backbones.densenet40 import DenseLayer


def test_number_of_parameters_is_that_of_the_paper():
    """1.0 million for CIFAR-10 in table 2, with the classifier."""
    model = MODELS.build(dict(type='DenseNet40', growth_rate=12))
    n_parameters = sum(weight.numel() for weight in model.parameters())
    assert n_parameters + 448 * 10 + 10 == 1_019_722


@pytest.mark.parametrize('growth_rate', [12, 40])
def test_output_has_stride_4(growth_rate: int):
    [features] = DenseNet40(growth_rate).eval()(torch.zeros(1, 3, 32, 32))
    assert features.shape == (1, 16 + 36 * growth_rate, 8, 8)


def test_forty_layers_are_convolutions_and_the_classifier():
    kernels = [layer.kernel_size for layer in DenseNet40(2).modules() if isinstance(layer, nn.Conv2d)]
    assert len(kernels) + 1 == 40
    assert kernels.count((1, 1)) == 2


def test_layer_keeps_its_input():
    layer = DenseLayer(3, 2)
    features = torch.randn(2, 3, 4, 4)
    before = features.clone()
    output = layer(features)
    assert output.shape == (2, 5, 4, 4)
    assert torch.equal(output[:, :3], before)


def test_all_weights_have_a_finite_gradient():
    torch.manual_seed(0)
    model = DenseNet40(2)
    model.init_weights()
    model(torch.randn(2, 3, 16, 16))[0].square().mean().backward()
    assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize(('value', 'error'), [(0, ValueError), (1.5, TypeError)])
def test_bad_growth_rate_is_named(value: float, error: type):
    with pytest.raises(error, match='`growth_rate`'):
        DenseNet40(value)
