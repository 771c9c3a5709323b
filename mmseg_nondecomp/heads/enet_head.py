"""Last layer of ENet. Importing it needs MMSegmentation."""

from typing import Any

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn

from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class ENetHead(BaseDecodeHead):
    """Transposed convolution from the 16 channels of `ENet` at stride 2 to the scores at the size of the image.

    The example and the reference are those of :class:`mmseg_nondecomp.backbones.ENet`.

    Args:
        **kwargs: Arguments of MMSegmentation's ``BaseDecodeHead``, such as ``num_classes`` and ``loss_decode``.
    """

    def __init__(self, **kwargs: Any) -> None:
        defaults: dict[str, Any] = dict(in_channels=16, channels=16, in_index=0, dropout_ratio=0)
        super().__init__(**(defaults | kwargs))
        self.conv_seg = nn.ConvTranspose2d(self.in_channels, self.out_channels, 3, 2, padding=1, output_padding=1)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Compute the scores, of shape [N, C, H, W]."""
        return self.cls_seg(self._transform_inputs(inputs))
