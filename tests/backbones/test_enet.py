"""ENet has the sizes of the paper's table 1, and upsamples to the positions of the pooled maxima."""

import pytest
import torch

pytest.importorskip('mmengine')

from mmengine.registry import MODELS
from torch import nn

from mmseg_nondecomp.backbones import ENet
from mmseg_nondecomp.backbones.enet import ASYMMETRIC, Bottleneck, DownBottleneck, UpBottleneck


def test_outputs_have_the_sizes_of_the_papers_table():
    model = MODELS.build(dict(type='ENet')).eval()
    found = {}
    for name, block in model.named_children():
        block.register_forward_hook(lambda _, __, output, name=name: found.update({name: output}))
    [features] = model(torch.zeros(1, 3, 512, 512))
    shapes = {name: tuple((out[0] if isinstance(out, tuple) else out).shape[1:]) for name, out in found.items()}
    assert shapes == {
        'initial': (16, 256, 256),
        'down_1': (64, 128, 128),
        'stage_1': (64, 128, 128),
        'down_2': (128, 64, 64),
        'stages_2_3': (128, 64, 64),
        'up_4': (64, 128, 128),
        'stage_4': (64, 128, 128),
        'up_5': (16, 256, 256),
        'stage_5': (16, 256, 256),
    }
    assert torch.equal(features, found['stage_5'])


def test_convolutions_are_those_of_the_papers_table():
    model = ENet()
    kinds = [block.branch[3] for block in model.stages_2_3]
    assert [kind.dilation[0] for kind in kinds] == 2 * [1, 2, 1, 4, 1, 8, 1, 16]
    assert [kind.kernel_size for kind in kinds] == 2 * ([(3, 3), (3, 3), (5, 1), (3, 3)] * 2)
    blocks = [block for block in model.modules() if isinstance(block, (Bottleneck, DownBottleneck, UpBottleneck))]
    assert len(blocks) == 1 + 4 + 1 + 16 + 1 + 2 + 1 + 1
    dropout = [block.branch[-1].p for block in blocks]
    assert sorted(dropout) == [0.01] * 5 + [0.1] * 22
    assert all(layer.bias is None for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)))


@pytest.mark.parametrize('dilation', [1, 4, ASYMMETRIC])
def test_field_of_a_bottleneck(dilation: int):
    """The features on which an output depends: 3 x 3 with gaps, or 5 x 5."""
    block = Bottleneck(8, dilation).eval()
    image = torch.randn(1, 8, 17, 17, requires_grad=True)
    block(image)[0, :, 8, 8].sum().backward()
    used = image.grad.abs().sum((0, 1)) > 0
    steps = [-2, -1, 0, 1, 2] if dilation == ASYMMETRIC else [-dilation, 0, dilation]
    expected = torch.zeros(17, 17, dtype=torch.bool)
    for y in steps:
        for x in steps:
            expected[8 + y, 8 + x] = True
    assert torch.equal(used, expected)


def test_a_bottleneck_without_its_branch_keeps_maxima_and_puts_them_back():
    torch.manual_seed(0)
    down, up = DownBottleneck(4, 8).eval(), UpBottleneck(8, 4).eval()
    for block in (down, up):
        block.branch[-2].weight.data.zero_()
        block.activation.weight.data.fill_(1)  # the identity
    up.main[0].weight.data = torch.eye(4, 8)[:, :, None, None]
    image = torch.rand(2, 4, 8, 6)
    features, positions = down(image)
    assert torch.equal(features[:, :4], nn.functional.max_pool2d(image, 2))
    assert not features[:, 4:].any()
    restored = up(features, positions)
    scale = (1 + up.main[1].eps) ** 0.5
    is_maximum = restored > 0
    assert is_maximum.sum() == image.numel() // 4
    torch.testing.assert_close(restored[is_maximum] * scale, image[is_maximum])


def test_size_that_cannot_be_halved_three_times_is_refused():
    with pytest.raises(ValueError, match=r'multiples of 8. Found \(64, 68\)'):
        ENet()(torch.zeros(1, 3, 64, 68))


def test_all_weights_have_a_finite_gradient():
    torch.manual_seed(0)
    model = ENet()
    model.init_weights()
    model(torch.randn(2, 3, 64, 64))[0].square().mean().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert all(weight.grad.any() for weight in model.parameters() if weight.dim() == 4)
