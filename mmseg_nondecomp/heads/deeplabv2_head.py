"""Atrous spatial pyramid pooling of DeepLabV2. Importing it needs MMSegmentation."""

from collections.abc import Sequence
from typing import Any

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn

from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class DeepLabV2Head(BaseDecodeHead):
    """Sum of the scores of parallel 3x3 convolutions with different dilations.

    DeepLabV3 (MMSegmentation's ``ASPPHead``) concatenates features instead, adds those of the whole image, and
    normalises them.

    Args:
        in_channels: Number of channels of the features.
        dilations: The dilation of each convolution. The default is the paper's ASPP-L.
        **kwargs: Arguments of MMSegmentation's ``BaseDecodeHead``, such as ``in_index``, ``num_classes`` and
            ``loss_decode``.

    Example:
        In an MMSegmentation config of a ResNet with stride 8::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])
            model = dict(
                decode_head=dict(_delete_=True, type='DeepLabV2Head', in_channels=2048, in_index=3, num_classes=19))

    References:
        L.-C. Chen, G. Papandreou, I. Kokkinos, K. Murphy, A. L. Yuille: DeepLab: Semantic image segmentation with deep
        convolutional nets, atrous convolution, and fully connected CRFs. TPAMI 2017. https://arxiv.org/abs/1606.00915
    """

    def __init__(self, in_channels: int, dilations: Sequence[int] = (6, 12, 18, 24), **kwargs: Any) -> None:
        super().__init__(in_channels, **(dict(channels=in_channels, dropout_ratio=0) | kwargs))
        self.conv_seg = SummedConvolutions(self.in_channels, self.out_channels, dilations)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Compute the scores at the stride of the features, of shape [N, C, H, W]."""
        return self.cls_seg(self._transform_inputs(inputs))


class SummedConvolutions(nn.ModuleList):
    """Sum of 3x3 convolutions of the same input, one for each dilation."""

    def __init__(self, in_channels: int, channels: int, dilations: Sequence[int]) -> None:
        super().__init__(nn.Conv2d(in_channels, channels, 3, padding=rate, dilation=rate) for rate in dilations)

    def forward(self, features: Tensor) -> Tensor:
        """Return the sum."""
        return sum(convolution(features) for convolution in self)
