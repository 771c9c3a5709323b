"""Tiles that decide for themselves, as one uses them with tools/test.py and in a training."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmseg.registry import MODELS
from PIL import Image

CONFIG = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'
TILED = [
    *('model.type=TiledSegmentor', 'model.segmentor=EncoderDecoder', 'model.test_cfg.mode=slide'),
    *('model.test_cfg.crop_size=(64,64)', 'model.test_cfg.stride=(40,40)'),
]


@pytest.fixture
def model():
    """The stock model, untrained, with scores that differ from pixel to pixel."""
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(Config.fromfile(Path(__file__).parents[2] / CONFIG).model)
    model.decode_head.conv_seg.weight.data.normal_()
    return model.eval()


def test_checkpoints_of_the_stock_model_are_tested_in_tiles(tool, scenes, model, tmp_path):
    torch.save({'state_dict': model.state_dict(), 'meta': {}}, tmp_path / 'untrained.pth')
    arguments = ['test.py', CONFIG, tmp_path / 'untrained.pth', '--work-dir', tmp_path, '--out', tmp_path / 'labels']
    log = tool(*arguments, options=TILED)
    assert 'unexpected key' not in log
    assert 'missing key' not in log
    assert re.search(r'mIoU: [\d.]+', log)
    written = sorted((tmp_path / 'labels').glob('*.png'))
    assert len(written) == 4
    [images] = scenes.glob('val-4x128px-*/img_dir')
    for path in written:
        pixels = torch.from_numpy(np.array(Image.open(images / path.name))).permute(2, 0, 1).float().unsqueeze(0)
        scores = torch.zeros(1, 16, 128, 128)
        # Tiles begin at 0, 40 and 64; what they share is 40 to 63 and 64 to 103.
        with torch.no_grad():
            for y, top, bottom in ((0, 0, 52), (40, 52, 84), (64, 84, 128)):
                for x, left, right in ((0, 0, 52), (40, 52, 84), (64, 84, 128)):
                    found = model.encode_decode(
                        (pixels[..., y : y + 64, x : x + 64] - 127.5) / 64, [dict(img_shape=torch.Size([64, 64]))]
                    )
                    scores[..., top:bottom, left:right] = found[..., top - y : bottom - y, left - x : right - x]
        assert np.array_equal(np.array(Image.open(path)), scores.argmax(1)[0].numpy())


def test_a_training_validates_in_tiles_and_its_checkpoint_fits_the_stock_model(tool, model, tmp_path):
    options = ['train_cfg.max_iters=1', 'train_cfg.val_interval=1', 'default_hooks.checkpoint.interval=1']
    tool('train.py', CONFIG, '--work-dir', tmp_path, options=[*options, *TILED])
    [scalars] = tmp_path.glob('*/vis_data/scalars.json')
    [validated] = [json.loads(line) for line in scalars.read_text().splitlines() if 'mIoU' in line]
    assert validated['mIoU'] >= 0
    saved = torch.load(tmp_path / 'iter_1.pth', map_location='cpu', weights_only=False)['state_dict']
    model.load_state_dict(saved)
