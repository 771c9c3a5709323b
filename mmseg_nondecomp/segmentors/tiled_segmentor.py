"""Prediction of any MMSegmentation model in tiles whose overlaps are cut in the middle, not averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.tiling import check_tiling, predict_in_tiles
from mmseg_nondecomp.registry import MODELS
from mmseg_nondecomp.segmentors._combined import combined_class


@MODELS.register_module()
class TiledSegmentor:
    """A segmentation model that predicts in tiles; the tile with the nearest centre determines a pixel.

    MMSegmentation's ``test_cfg=dict(mode='slide')`` averages the scores of all tiles that hold a pixel, also of tiles
    with the pixel at their border, where the network has little context. Here the tiles are the same, and each overlap
    is cut in the middle (the "optimized tiling" of the loss max-pooling paper); tiles side by side, with a stride of
    ``crop_size``, are its "efficient tiling". Training and checkpoints are not changed.

    Args:
        segmentor: The type of the model, by name or as a class, whose ``slide_inference`` runs ``encode_decode`` on
            tiles, as in all segmentors of MMSegmentation.
        **kwargs: Arguments of that type. Its ``test_cfg`` has to have ``mode='slide'``, ``crop_size`` and ``stride``,
            each height and width; the overlap is their difference.

    Example:
        Two lines in any MMSegmentation config::

            custom_imports = dict(imports=['mmseg_nondecomp'])
            model = dict(
                type='TiledSegmentor', segmentor='EncoderDecoder',
                test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(384, 384)))
    """

    test_cfg: Any
    encode_decode: Callable[[Tensor, list[dict]], Tensor]

    def __new__(cls, *args: Any, segmentor: str | type = 'EncoderDecoder', **kwargs: Any) -> TiledSegmentor:
        """Return an instance of this class and of the class of the segmentor."""
        # Copies are made by the combined class.
        return super().__new__(cls.combined_with(segmentor) if cls is TiledSegmentor else cls)

    @classmethod
    def combined_with(cls, segmentor: str | type = 'EncoderDecoder') -> type:
        """Return the class of a segmentor with this prediction."""
        return combined_class(cls, segmentor, needs=('slide_inference', 'encode_decode'))

    def __init__(self, *args: Any, segmentor: str | type = 'EncoderDecoder', **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.test_cfg or self.test_cfg.get('mode') != 'slide':
            raise ValueError(f"Parameter `test_cfg` should have mode='slide'. Found {self.test_cfg}.")
        check_tiling(self.test_cfg.get('crop_size'), self.test_cfg.get('stride'))

    def slide_inference(self, inputs: Tensor, batch_img_metas: Sequence[dict]) -> Tensor:
        """Return the scores [N, K, H, W] of images [N, C, H, W]."""

        def predict(tile: Tensor) -> Tensor:
            # Heads resize their scores to this size.
            return self.encode_decode(tile, [{**meta, 'img_shape': tile.shape[2:]} for meta in batch_img_metas])

        return predict_in_tiles(predict, inputs, self.test_cfg['crop_size'], self.test_cfg['stride'])
