"""Also on MMSegmentation's own configs and classes."""

import copy
import textwrap
from pathlib import Path

import pytest
import torch

pytest.importorskip('mmseg')

import mmseg
from mmengine.config import Config, ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import PixelData
from mmseg.models import CascadeEncoderDecoder, EncoderDecoder, SegTTAModel
from mmseg.models.segmentors import __all__ as segmentors
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from mmseg_nondecomp import TiledSegmentor
from mmseg_nondecomp.functional import predict_in_tiles

ROOT = Path(__file__).parents[2]
STOCK = Path(mmseg.__file__).parent / '.mim' / 'configs' / 'erfnet' / 'erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'


@pytest.fixture(autouse=True)
def _mmseg_scope():
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def settings(**test_cfg):
    cfg = Config.fromfile(ROOT / 'configs/_base_/models/tiny_unet.py').model
    cfg.test_cfg = dict(mode='slide', crop_size=(32, 32), stride=(24, 24)) | test_cfg
    return cfg


def build(cfg):
    torch.manual_seed(0)
    return MODELS.build(cfg).eval()


def pair(cfg):
    stock = build(copy.deepcopy(cfg))
    tiled = build(ConfigDict(cfg, type='TiledSegmentor', segmentor=cfg.type))
    tiled.load_state_dict(stock.state_dict())
    return stock, tiled


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def samples(number, height, width, **meta):
    metainfo = dict(ori_shape=(height, width), img_shape=(height, width), pad_shape=(height, width)) | meta
    label = PixelData(data=torch.zeros(1, height, width, dtype=torch.int64))
    return [SegDataSample(metainfo=metainfo, gt_sem_seg=label.clone()) for _ in range(number)]


def cascade():
    cfg = settings()
    coarse, fine = copy.deepcopy(cfg.decode_head), copy.deepcopy(cfg.decode_head)
    fine.update(type='OCRHead', ocr_channels=8)
    for name in ('num_convs', 'concat_input'):
        del fine[name]
    cfg.update(type='CascadeEncoderDecoder', num_stages=2, decode_head=[coarse, fine])
    return cfg


@pytest.mark.parametrize(('cfg', 'cls'), [(settings(), EncoderDecoder), (cascade(), CascadeEncoderDecoder)])
def test_is_the_model_but_for_its_overlaps(cfg, cls):
    stock, tiled = pair(cfg)
    assert isinstance(tiled, cls)
    assert isinstance(tiled, TiledSegmentor)
    images = draw(2, 3, 72, 56)
    with torch.no_grad():
        found = tiled.predict(images, samples(2, 72, 56))
        averaged = stock.predict(images, samples(2, 72, 56))
        expected = predict_in_tiles(
            lambda tile: stock.encode_decode(tile, [dict(img_shape=tile.shape[2:])] * 2), images, (32, 32), (24, 24)
        )
    for i, (sample, other) in enumerate(zip(found, averaged, strict=True)):
        scores = sample.seg_logits.data
        assert torch.equal(scores, expected[i])
        assert torch.equal(sample.pred_sem_seg.data[0], scores.argmax(0))
        # The corners belong to one tile alone.
        assert torch.equal(scores[:, :24, :24], other.seg_logits.data[:, :24, :24])
        assert not torch.equal(scores, other.seg_logits.data)


def test_tiles_side_by_side_are_those_of_mmsegmentation():
    stock, tiled = pair(settings(stride=(32, 32)))
    images = draw(2, 3, 64, 96)
    with torch.no_grad():
        for found, expected in zip(tiled.predict(images), stock.predict(images), strict=True):
            assert torch.equal(found.seg_logits.data, expected.seg_logits.data)


def test_trains_as_the_model():
    stock, tiled = pair(settings())
    images = draw(2, 3, 64, 64)
    first, second = (model.train().loss(images, samples(2, 64, 64)) for model in (stock, tiled))
    assert first == second


def test_padding_is_tiled_with_the_image_and_taken_away():
    """To a size that the network can halve."""
    cfg = settings()
    cfg.data_preprocessor = dict(cfg.data_preprocessor, size=None, test_cfg=dict(size_divisor=16))
    _, tiled = pair(cfg)
    data = dict(inputs=list(draw(2, 3, 50, 41)), data_samples=samples(2, 50, 41))
    found = tiled.test_step(data)
    with torch.no_grad():
        padded = tiled.data_preprocessor(data, training=False)['inputs']
        assert padded.shape[2:] == (64, 48)
        scores = tiled.slide_inference(padded, [{}, {}])
    for sample, score in zip(found, scores, strict=True):
        assert torch.equal(sample.seg_logits.data, score[:, :50, :41])


def test_the_metainfo_of_a_batch_is_left_alone():
    _, tiled = pair(settings())
    metas = [dict(img_shape=(64, 64)), dict(img_shape=(64, 64))]
    with torch.no_grad():
        tiled.slide_inference(draw(2, 3, 64, 64), metas)
    assert metas == [dict(img_shape=(64, 64))] * 2


def test_the_example_on_a_stock_config(tmp_path):
    """The lines of the docstring, on top of a config that comes with MMSegmentation."""
    example = TiledSegmentor.__doc__.partition('config::\n')[2].partition('\n\n        or')[0]
    path = tmp_path / 'tiled.py'
    path.write_text(f'_base_ = {str(STOCK)!r}\n{textwrap.dedent(example)}')
    cfg = Config.fromfile(path)
    cfg.merge_from_dict(
        {'model.decode_head.norm_cfg.type': 'BN', 'model.data_preprocessor.test_cfg': dict(size_divisor=8)}
    )
    model = build(cfg.model)
    assert type(model).__name__ == 'TiledEncoderDecoder'
    with torch.no_grad():
        assert model.slide_inference(draw(1, 3, 520, 64), [{}]).shape == (1, 19, 520, 64)
    plain = Config.fromfile(STOCK)
    plain.model.decode_head.norm_cfg.type = 'BN'
    assert model.state_dict().keys() == MODELS.build(plain.model).state_dict().keys()


@pytest.mark.parametrize('name', [name for name in segmentors if name not in ('BaseSegmentor', 'SegTTAModel')])
def test_any_segmentor_of_mmsegmentation_can_be_tiled(name):
    cls = TiledSegmentor.__new__(TiledSegmentor, segmentor=name).__class__
    assert issubclass(cls, getattr(mmseg.models.segmentors, name))
    assert cls.slide_inference is TiledSegmentor.slide_inference


def test_a_class_in_the_place_of_a_name_and_no_name():
    assert isinstance(build(ConfigDict(settings(), type='TiledSegmentor', segmentor=EncoderDecoder)), EncoderDecoder)
    assert isinstance(build(ConfigDict(settings(), type='mmseg_nondecomp.TiledSegmentor')), EncoderDecoder)


def test_is_copied_and_augmented_at_test_time():
    _, tiled = pair(settings())
    copied = copy.deepcopy(tiled)
    assert type(copied) is type(tiled)
    images = draw(1, 3, 64, 64)
    assert torch.equal(copied.predict(images)[0].seg_logits.data, tiled.predict(images)[0].seg_logits.data)
    tta = SegTTAModel(module=ConfigDict(settings(), type='TiledSegmentor', segmentor='EncoderDecoder'))
    assert isinstance(tta.module, TiledSegmentor)


@pytest.mark.parametrize(
    ('test_cfg', 'message'),
    [
        (dict(mode='whole'), "`test_cfg` should have mode='slide'. Found .*whole"),
        (dict(crop_size=None), '`crop_size` should be two positive ints, a height and a width. Found None'),
        (dict(crop_size=256), '`crop_size`.*Found 256'),
        (dict(stride=(40, 32)), '`stride` should be at most `crop_size`'),
    ],
)
def test_wrong_settings(test_cfg, message):
    with pytest.raises(ValueError, match=message):
        build(ConfigDict(settings(**test_cfg), type='TiledSegmentor', segmentor='EncoderDecoder'))


def test_no_test_settings():
    cfg = ConfigDict(settings(), type='TiledSegmentor')
    del cfg['test_cfg']
    with pytest.raises(ValueError, match=r'`test_cfg` should have .* Found None'):
        build(cfg)


def test_types_that_cannot_be_tiled():
    with pytest.raises(ValueError, match=r"`segmentor` should .* registered model. Found 'EncoderDecodr'"):
        build(ConfigDict(settings(), type='TiledSegmentor', segmentor='EncoderDecodr'))
    with pytest.raises(TypeError, match='without slide_inference, encode_decode'):
        build(ConfigDict(settings(), type='TiledSegmentor', segmentor='UNet'))
