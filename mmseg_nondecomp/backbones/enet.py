"""ENet, a fast encoder and decoder for segmentation with 0.4 million parameters."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmseg_nondecomp.registry import MODELS

STRIDE = 8  # Of the encoder
ASYMMETRIC = 0
SECTION = (1, 2, ASYMMETRIC, 4, 1, 8, ASYMMETRIC, 16)  # Dilations of the bottlenecks 2.1 to 2.8 and 3.1 to 3.8


@MODELS.register_module()
class ENet(BaseModule):
    """ENet without its last layer: bottlenecks with dilated and asymmetric convolutions, and a light decoder.

    The encoder has 16, 64 and 128 channels at strides 2, 4 and 8. The decoder returns to stride 2: it puts features at
    the positions of the maxima that the encoder pooled. The output is a tuple of one tensor with 16 channels, for
    `ENetHead`. Height and width of the image should be multiples of 8.

    Numbers in comments are those of the paper's table 1.

    Example:
        In an MMSegmentation config::

            custom_imports = dict(
                imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones', 'mmseg_nondecomp.heads'])
            model = dict(backbone=dict(type='ENet'), decode_head=dict(type='ENetHead', num_classes=19))

    References:
        A. Paszke, A. Chaurasia, S. Kim, E. Culurciello: ENet: A deep neural network architecture for real-time semantic
        segmentation. 2016. https://arxiv.org/abs/1606.02147
    """

    def __init__(self) -> None:
        super().__init__(init_cfg=dict(type='Kaiming', layer=['Conv2d', 'ConvTranspose2d']))
        self.initial = InitialBlock()
        self.down_1 = DownBottleneck(16, 64, dropout=0.01)  # 1.0
        self.stage_1 = nn.Sequential(*(Bottleneck(64, 1, dropout=0.01) for _ in range(4)))  # 1.1 to 1.4
        self.down_2 = DownBottleneck(64, 128)  # 2.0
        self.stages_2_3 = nn.Sequential(*(Bottleneck(128, dilation) for dilation in 2 * SECTION))  # 2.1 to 3.8
        self.up_4 = UpBottleneck(128, 64)  # 4.0
        self.stage_4 = nn.Sequential(Bottleneck(64, 1), Bottleneck(64, 1))  # 4.1, 4.2
        self.up_5 = UpBottleneck(64, 16)  # 5.0
        self.stage_5 = Bottleneck(16, 1)  # 5.1

    def forward(self, image: Tensor) -> tuple[Tensor]:
        """Return the features, of shape `[N, 16, H / 2, W / 2]`."""
        if image.shape[2] % STRIDE or image.shape[3] % STRIDE:
            raise ValueError(
                f'Height and width of the images should be multiples of {STRIDE}. Found {tuple(image.shape[2:])}.'
            )
        features, fine = self.down_1(self.initial(image))
        features, coarse = self.down_2(self.stage_1(features))
        features = self.stage_4(self.up_4(self.stages_2_3(features), coarse))
        return (self.stage_5(self.up_5(features, fine)),)


class InitialBlock(nn.Module):
    """Convolution to 13 channels beside the pooled image, at stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 13, 3, stride=2, padding=1, bias=False)
        self.activation = nn.Sequential(nn.BatchNorm2d(16), nn.PReLU(16))

    def forward(self, image: Tensor) -> Tensor:
        """Return the 16 channels."""
        return self.activation(torch.cat([self.convolution(image), F.max_pool2d(image, 2)], 1))


class Bottleneck(nn.Module):
    """Residual block with a 3x3 convolution of some dilation, or a 5x1 and a 1x5 one, on a quarter of the channels."""

    def __init__(self, channels: int, dilation: int, dropout: float = 0.1) -> None:
        super().__init__()
        inner = channels // 4
        if dilation == ASYMMETRIC:
            middle = [
                nn.Conv2d(inner, inner, (5, 1), padding=(2, 0), bias=False),
                nn.Conv2d(inner, inner, (1, 5), padding=(0, 2), bias=False),
            ]
        else:
            middle = [nn.Conv2d(inner, inner, 3, padding=dilation, dilation=dilation, bias=False)]
        self.branch = _branch(nn.Conv2d(channels, inner, 1, bias=False), middle, channels, dropout)
        self.activation = nn.PReLU(channels)

    def forward(self, features: Tensor) -> Tensor:
        """Return the features of the block."""
        return self.activation(features + self.branch(features))


class DownBottleneck(nn.Module):
    """Bottleneck that halves height and width; the maxima of its input are padded with channels of zeros."""

    def __init__(self, in_channels: int, channels: int, dropout: float = 0.1) -> None:
        super().__init__()
        inner = channels // 4
        projection = nn.Conv2d(in_channels, inner, 2, stride=2, bias=False)
        middle = [nn.Conv2d(inner, inner, 3, padding=1, bias=False)]
        self.branch = _branch(projection, middle, channels, dropout)
        self.activation = nn.PReLU(channels)
        self.n_added = channels - in_channels

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the block and the positions of the maxima."""
        maxima, positions = F.max_pool2d(features, 2, return_indices=True)
        padded = F.pad(maxima, (0, 0, 0, 0, 0, self.n_added))
        return self.activation(padded + self.branch(features)), positions


class UpBottleneck(nn.Module):
    """Bottleneck that doubles height and width; its projected input is put at the positions of maxima."""

    def __init__(self, in_channels: int, channels: int, dropout: float = 0.1) -> None:
        super().__init__()
        inner = channels // 4
        projection = nn.Conv2d(in_channels, inner, 1, bias=False)
        middle = [nn.ConvTranspose2d(inner, inner, 3, stride=2, padding=1, output_padding=1, bias=False)]
        self.branch = _branch(projection, middle, channels, dropout)
        self.main = nn.Sequential(nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.activation = nn.PReLU(channels)

    def forward(self, features: Tensor, positions: Tensor) -> Tensor:
        """Return the features of the block, for the positions of the bottleneck that halved this size."""
        return self.activation(F.max_unpool2d(self.main(features), positions, (2, 2)) + self.branch(features))


def _branch(projection: nn.Module, middle: Sequence[nn.Module], channels: int, dropout: float) -> nn.Sequential:
    """Return the projection, the convolutions and the expansion to channels, with the regulariser."""
    layers: list[nn.Module] = []
    for convolution in (projection, *middle):
        layers += [convolution, nn.BatchNorm2d(channels // 4), nn.PReLU(channels // 4)]
    expansion = nn.Conv2d(channels // 4, channels, 1, bias=False)
    return nn.Sequential(*layers, expansion, nn.BatchNorm2d(channels), nn.Dropout2d(dropout))
