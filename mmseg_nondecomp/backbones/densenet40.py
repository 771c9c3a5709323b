"""DenseNet-40, the densely connected network for images of 32 x 32 pixels."""

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import check_integer
from mmseg_nondecomp.registry import MODELS

STEM_CHANNELS = 16
N_BLOCKS, N_LAYERS = 3, 12  # With the stem, two transitions and the classifier: 40 layers


@MODELS.register_module()
class DenseNet40(BaseModule):
    """DenseNet-40 without its classifier: three dense blocks of twelve 3x3 convolutions, without bottlenecks.

    Each layer computes `growth_rate` channels from the channels of all earlier layers of its block. A 1x1 convolution
    and an average pooling, which halve height and width but not the channels, connect the blocks. The output is a tuple
    of one tensor at stride 4, with 16 + 36 `growth_rate` channels. There is no dropout.

    Args:
        growth_rate: Number of channels that each layer adds.

    Example:
        In an MMPretrain config, for CIFAR-100::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones'])
            model = dict(
                type='ImageClassifier',
                backbone=dict(type='DenseNet40', growth_rate=12),
                neck=dict(type='GlobalAveragePooling'),
                head=dict(type='LinearClsHead', num_classes=100, in_channels=448))

    References:
        G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger: Densely connected convolutional networks. CVPR 2017.
        https://arxiv.org/abs/1608.06993
    """

    def __init__(self, growth_rate: int = 12) -> None:
        super().__init__(init_cfg=dict(type='Kaiming', layer='Conv2d'))
        check_integer('growth_rate', growth_rate, 1)
        channels = STEM_CHANNELS
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        for block in range(N_BLOCKS):
            if block:
                layers += [*_layer(channels, channels, 1), nn.AvgPool2d(2)]
            for _ in range(N_LAYERS):
                layers.append(DenseLayer(channels, growth_rate))
                channels += growth_rate
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))

    def forward(self, image: Tensor) -> tuple[Tensor]:
        """Return the features, of shape `[N, C, H / 4, W / 4]`."""
        return (self.layers(image),)


class DenseLayer(nn.Module):
    """Layer that appends the channels it computes to its input."""

    def __init__(self, in_channels: int, growth_rate: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_layer(in_channels, growth_rate, 3))

    def forward(self, features: Tensor) -> Tensor:
        """Return the input and the computed channels."""
        return torch.cat([features, self.layers(features)], 1)


def _layer(in_channels: int, channels: int, kernel: int) -> list[nn.Module]:
    """Return batch normalization, ReLU and a convolution."""
    convolution = nn.Conv2d(in_channels, channels, kernel, padding=kernel // 2, bias=False)
    # Not in place: the input is a part of the output.
    return [nn.BatchNorm2d(in_channels), nn.ReLU(), convolution]
