"""Also on MMSegmentation's own configs and classes."""

import copy
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip('mmseg')

import mmseg
from mmengine.config import Config, ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import PixelData
from mmseg.apis import inference_model
from mmseg.models import CascadeEncoderDecoder, EncoderDecoder
from mmseg.models.segmentors import __all__ as segmentors
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from mmseg_nondecomp import DecidingSegmentor, DecidingTTAModel, TiledSegmentor
from mmseg_nondecomp.functional.decisions import ClassOffsets, DenseCRF, ImageOverlap, Thresholds, write_decision

ROOT = Path(__file__).parents[2]
STOCK = Path(mmseg.__file__).parent / '.mim' / 'configs' / 'erfnet' / 'erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'
N_CLASSES = 4
CRF = dict(smoothness=(2.0, 2.0), appearance=(4.0, 20.0, 30.0), iterations=2)
DECISIONS = {
    'offsets': (dict(type='ClassOffsets', values=[0.0, 0.4, -0.4, 0.2]), ClassOffsets([0.0, 0.4, -0.4, 0.2])),
    'overlap': (
        dict(type='ImageOverlap', measure='dice', temperature=0.5, expectation='first_order'),
        ImageOverlap('dice', 0.5, expectation='first_order'),
    ),
    'thresholds': (
        dict(type='Thresholds', values=[0.9, None, 0.2, 0.3]),
        Thresholds([0.9, None, 0.2, 0.3]),
    ),
    'crf': (dict(type='DenseCRF', **CRF), DenseCRF(**CRF)),
}
OF_ONE_CHANNEL = {
    'offsets': (dict(type='ClassOffsets', values=[0.3]), ClassOffsets([0.3])),
    'overlap': (dict(type='ImageOverlap', temperature=2.0), ImageOverlap(temperature=2.0)),
    'thresholds': (dict(type='Thresholds', values=[0.45]), Thresholds([0.45])),
    'crf': (dict(type='DenseCRF', **CRF), DenseCRF(**CRF)),
}


@pytest.fixture(autouse=True)
def _mmseg_scope():
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def settings(one_channel=False):
    cfg = Config.fromfile(ROOT / 'configs/_base_/models/tiny_unet.py').model
    cfg.decode_head.num_classes = N_CLASSES
    if one_channel:
        cfg.decode_head.update(num_classes=2, out_channels=1, threshold=0.5)
        cfg.decode_head.loss_decode = dict(type='CrossEntropyLoss', use_sigmoid=True)
    return cfg


def cascade():
    cfg = settings()
    coarse, fine = copy.deepcopy(cfg.decode_head), copy.deepcopy(cfg.decode_head)
    fine.update(type='OCRHead', ocr_channels=8)
    for name in ('num_convs', 'concat_input'):
        del fine[name]
    cfg.update(type='CascadeEncoderDecoder', num_stages=2, decode_head=[coarse, fine])
    return cfg


def build(cfg):
    torch.manual_seed(0)
    model = MODELS.build(cfg).eval()
    heads = model.decode_head if isinstance(model.decode_head, torch.nn.ModuleList) else [model.decode_head]
    heads[-1].conv_seg.weight.data.normal_()  # scores that differ from pixel to pixel
    return model


def deciding(cfg, decision, segmentor=None):
    return ConfigDict(copy.deepcopy(cfg), type='DecidingSegmentor', segmentor=segmentor or cfg.type, decision=decision)


def pair(cfg, decision):
    stock, model = build(copy.deepcopy(cfg)), build(deciding(cfg, decision))
    model.load_state_dict(stock.state_dict())
    return stock, model


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def levels(number, height, width):
    """Return images in levels from 0 to 255, with blue first."""
    g = torch.Generator().manual_seed(2)
    coarse = torch.randint(0, 256, (number, 3, height // 8 + 1, width // 8 + 1), generator=g).float()
    return F.interpolate(coarse, size=(height, width), mode='nearest').byte()


def samples(number, height, width, **meta):
    metainfo = dict(ori_shape=(height, width), img_shape=(height, width), pad_shape=(height, width)) | meta
    label = PixelData(data=torch.zeros(1, height, width, dtype=torch.int64))
    return [SegDataSample(metainfo=metainfo, gt_sem_seg=label.clone()) for _ in range(number)]


def batch_of(inputs, size=None):
    """Return a batch of images whose labels have a size, by default theirs."""
    shape = tuple(inputs.shape[2:])
    return dict(inputs=list(inputs), data_samples=samples(len(inputs), *(size or shape), img_shape=shape))


def logits_of(sample):
    scores = sample.seg_logits.data.unsqueeze(0)
    return scores if scores.shape[1] > 1 else scores.logit()


def assert_same_map(found, expected, is_rounded=False):
    """Assert that maps are equal, but for a few pixels if an image was normalised and rounded on the way."""
    assert found.shape == expected.shape
    assert (found == expected).double().mean() >= (0.999 if is_rounded else 1)


def assert_decided(sample, decision, stock, *image):
    """Assert that only the map of a sample differs from that of the stock model, and by the decision."""
    assert torch.equal(sample.seg_logits.data, stock.seg_logits.data)
    found, before = sample.pred_sem_seg.data, stock.pred_sem_seg.data
    assert found.dtype == before.dtype
    assert found.shape == before.shape
    assert_same_map(found, decision(logits_of(sample), *image).to(before.dtype), is_rounded=bool(image))
    assert sorted(sample.keys()) == sorted(stock.keys())


def raw_of(inputs):
    """Return images as `DenseCRF` gets them: the levels in the order of the network's channels."""
    return inputs[:, [2, 1, 0]].float()


# Predictions


@pytest.mark.parametrize('name', DECISIONS)
@pytest.mark.parametrize('is_resized', [False, True])
def test_maps_are_decided_at_the_size_of_the_labels(name, is_resized):
    cfg, decision = DECISIONS[name]
    stock, model = pair(settings(), cfg)
    inputs = levels(2, 48, 64)
    size = (70, 90) if is_resized else (48, 64)
    changed = 0
    for image, found, before in zip(
        inputs, *(m.test_step(batch_of(inputs, size)) for m in (model, stock)), strict=True
    ):
        image = F.interpolate(raw_of(image[None]), size=size, mode='bilinear', align_corners=False).clamp(0, 255)
        assert found.pred_sem_seg.data.shape == (1, *size)
        assert_decided(found, decision, before, *([image] if name == 'crf' else []))
        changed += int((found.pred_sem_seg.data != before.pred_sem_seg.data).sum())
    assert changed > 0


@pytest.mark.parametrize('name', OF_ONE_CHANNEL)
def test_a_single_channel(name):
    cfg, decision = OF_ONE_CHANNEL[name]
    stock, model = pair(settings(one_channel=True), cfg)
    inputs = levels(2, 48, 64)
    changed = 0
    for image, found, before in zip(inputs, *(m.test_step(batch_of(inputs)) for m in (model, stock)), strict=True):
        assert_decided(found, decision, before, *([raw_of(image[None])] if name == 'crf' else []))
        assert set(found.pred_sem_seg.data.unique().tolist()) <= {0, 1}
        changed += int((found.pred_sem_seg.data != before.pred_sem_seg.data).sum())
    assert changed > 0


@pytest.mark.parametrize('name', OF_ONE_CHANNEL)
def test_a_probability_that_was_rounded_to_0_or_1_is_decided(name):
    _, model = pair(settings(one_channel=True), OF_ONE_CHANNEL[name][0])
    scores = torch.zeros(1, 16, 16)
    scores[:, 4:12] = 1
    sample = SegDataSample()
    sample.set_data(dict(seg_logits=PixelData(data=scores), pred_sem_seg=PixelData(data=torch.zeros_like(scores))))
    if name == 'crf':
        sample.set_field(PixelData(data=levels(1, 16, 16)[0].float()), 'image', dtype=PixelData)
    model.decide(sample)
    assert torch.equal(sample.pred_sem_seg.data, scores)


def test_predictions_without_samples():
    for name in ('offsets', 'crf'):
        cfg, decision = DECISIONS[name]
        stock, model = pair(settings(), cfg)
        raw = raw_of(levels(2, 48, 64))
        inputs = (raw - 127.5) / 64
        with torch.no_grad():
            for image, found, before in zip(raw, model.predict(inputs), stock.predict(inputs), strict=True):
                image = (image[None].sub(127.5) / 64) * 64 + 127.5
                assert_decided(found, decision, before, *([image.clamp(0, 255)] if name == 'crf' else []))


def test_without_a_decision_maps_are_those_of_the_model():
    stock, model = pair(settings(), None)
    images = draw(2, 3, 48, 64)
    with torch.no_grad():
        for found, before in zip(model.predict(images), stock.predict(images), strict=True):
            assert torch.equal(found.pred_sem_seg.data, before.pred_sem_seg.data)


def test_trains_as_the_model():
    stock, model = pair(settings(), DECISIONS['offsets'][0])
    assert model.state_dict().keys() == stock.state_dict().keys()
    images = draw(2, 3, 64, 64)
    first, second = (m.train().loss(images, samples(2, 64, 64)) for m in (stock, model))
    assert first == second


@pytest.mark.parametrize('direction', [None, 'horizontal', 'vertical'])
def test_the_crf_gets_the_raw_image_as_the_labels_lie(direction):
    """Without padding, as before the flip, in levels."""
    cfg = settings()
    cfg.data_preprocessor = dict(cfg.data_preprocessor, size=None, test_cfg=dict(size_divisor=16))
    _, model = pair(cfg, DECISIONS['crf'][0])
    images = levels(2, 50, 41)
    flips = dict(flip=direction is not None, flip_direction=direction)
    flipped = images if direction is None else images.flip(3 if direction == 'horizontal' else 2)
    got = []
    decision = model.decision

    class Watch:
        needs_image = True

        def __call__(self, logits, image):
            got.append(image)
            return decision(logits, image)

    model.decision = Watch()
    found = model.test_step(dict(inputs=list(flipped), data_samples=samples(2, 50, 41, **flips)))
    assert len(got) == 2
    for image, raw in zip(got, raw_of(images), strict=True):
        assert image.shape == (1, 3, 50, 41)
        assert image.min() >= 0
        assert image.max() <= 255
        torch.testing.assert_close(image[0], raw, rtol=0, atol=1e-3)
    for sample, image in zip(found, got, strict=True):
        assert torch.equal(sample.pred_sem_seg.data, decision(sample.seg_logits.data[None], image))
        assert 'image' not in sample


def test_the_crf_gets_an_image_that_is_not_normalised():
    cfg = settings()
    cfg.data_preprocessor = dict(type='SegDataPreProcessor', bgr_to_rgb=True)
    stock, model = pair(cfg, DECISIONS['crf'][0])
    inputs = levels(1, 48, 64)
    [found], [before] = (m.test_step(batch_of(inputs)) for m in (model, stock))
    assert_decided(found, DECISIONS['crf'][1], before, raw_of(inputs))


# Segmentors


@pytest.mark.parametrize(('cfg', 'cls'), [(settings(), EncoderDecoder), (cascade(), CascadeEncoderDecoder)])
def test_is_the_model(cfg, cls):
    decision_cfg, decision = DECISIONS['offsets']
    stock, model = pair(cfg, decision_cfg)
    assert isinstance(model, cls)
    assert isinstance(model, DecidingSegmentor)
    images = draw(2, 3, 64, 64)
    with torch.no_grad():
        for found, before in zip(model.predict(images), stock.predict(images), strict=True):
            assert_decided(found, decision, before)


@pytest.mark.parametrize('with_arguments', [False, True])
def test_decides_after_tiles(with_arguments):
    decision_cfg, decision = DECISIONS['offsets']
    cfg, test_cfg = settings(), dict(mode='slide', crop_size=(32, 32), stride=(24, 24))
    inner = dict(type='TiledSegmentor', segmentor='EncoderDecoder')
    tiled = build(ConfigDict(cfg, **inner, test_cfg=test_cfg))
    if with_arguments:
        model = build(deciding(cfg, decision_cfg, inner) | dict(test_cfg=test_cfg))
    else:
        outer = deciding(cfg, decision_cfg, dict(inner, test_cfg=test_cfg))
        del outer['test_cfg']
        model = build(outer)
    assert isinstance(model, TiledSegmentor)
    assert type(model).__name__ == 'DecidingTiledEncoderDecoder'
    model.load_state_dict(tiled.state_dict())
    images = draw(2, 3, 72, 56)
    with torch.no_grad():
        for found, before in zip(model.predict(images), tiled.predict(images), strict=True):
            assert_decided(found, decision, before)


@pytest.mark.parametrize('name', [name for name in segmentors if name not in ('BaseSegmentor', 'SegTTAModel')])
def test_any_segmentor_of_mmsegmentation_can_decide(name):
    cls = DecidingSegmentor.__new__(DecidingSegmentor, segmentor=name).__class__
    assert issubclass(cls, getattr(mmseg.models.segmentors, name))
    assert cls.predict is DecidingSegmentor.predict


def test_a_class_in_the_place_of_a_name_and_no_name():
    assert isinstance(build(ConfigDict(settings(), type='DecidingSegmentor', segmentor=EncoderDecoder)), EncoderDecoder)
    assert isinstance(build(ConfigDict(settings(), type='mmseg_nondecomp.DecidingSegmentor')), EncoderDecoder)


def test_segmentors_that_cannot_decide():
    with pytest.raises(ValueError, match=r"`segmentor` should .* registered model. Found 'EncoderDecodr'"):
        build(deciding(settings(), None, 'EncoderDecodr'))
    with pytest.raises(TypeError, match='without predict, postprocess_result'):
        build(deciding(settings(), None, 'UNet'))


def test_is_copied():
    _, model = pair(settings(), DECISIONS['offsets'][0])
    copied = copy.deepcopy(model)
    assert type(copied) is type(model)
    images = draw(1, 3, 48, 64)
    with torch.no_grad():
        assert torch.equal(copied.predict(images)[0].pred_sem_seg.data, model.predict(images)[0].pred_sem_seg.data)


def test_the_example_on_a_stock_config(tmp_path):
    """The lines of the docstring, on top of a config that comes with MMSegmentation."""
    example = DecidingSegmentor.__doc__.partition('config::\n')[2].rstrip()
    path = tmp_path / 'deciding.py'
    path.write_text(f'_base_ = {str(STOCK)!r}\n{textwrap.dedent(example)}')
    cfg = Config.fromfile(path)
    cfg.merge_from_dict(
        {'model.decode_head.norm_cfg.type': 'BN', 'model.data_preprocessor.test_cfg': dict(size_divisor=8)}
    )
    model = build(cfg.model)
    assert type(model).__name__ == 'DecidingEncoderDecoder'
    with torch.no_grad():
        [found] = model.predict(draw(1, 3, 24, 32))
    assert torch.equal(found.pred_sem_seg.data, ImageOverlap()(found.seg_logits.data[None]))
    plain = Config.fromfile(STOCK)
    plain.model.decode_head.norm_cfg.type = 'BN'
    assert model.state_dict().keys() == MODELS.build(plain.model).state_dict().keys()


@pytest.mark.parametrize('name', ['thresholds', 'crf'])
def test_inference_model(name, tmp_path):
    cfg, decision = DECISIONS[name]
    stock, model = pair(settings(), cfg)
    pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(64, 48)), dict(type='PackSegInputs')]
    for m in (stock, model):
        m.cfg = Config(dict(test_pipeline=pipeline, test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    raw = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    found, before = inference_model(model, raw), inference_model(stock, raw)
    image = raw_of(torch.from_numpy(raw).permute(2, 0, 1)[None])
    assert torch.equal(found.seg_logits.data, before.seg_logits.data)
    expected = decision(found.seg_logits.data[None], *([image] if name == 'crf' else []))
    assert_same_map(found.pred_sem_seg.data, expected, is_rounded=name == 'crf')


# Decisions of configs


@pytest.mark.parametrize('name', ['offsets', 'overlap', 'thresholds'])
def test_a_decision_may_be_a_file(name, tmp_path):
    decision = DECISIONS[name][1]
    path, kind = str(tmp_path / 'decision.json'), type(decision).__name__
    write_decision(decision, path)
    for cfg in (path, dict(file=path), dict(type=kind, file=path), dict(type=f'mmseg_nondecomp.{kind}', file=path)):
        found = build(deciding(settings(), cfg)).decision
        assert found.state() == decision.state()


def test_a_file_of_another_decision_and_further_arguments(tmp_path):
    path = str(tmp_path / 'decision.json')
    write_decision(ClassOffsets([0.0] * N_CLASSES), path)
    for cfg in (
        dict(type='ImageOverlap', file=path),
        dict(type='DenseCRF', file=path),
        dict(type='ClassOffsets', file=path, values=[1.0] * N_CLASSES),
        dict(file=path, measure='iou'),
    ):
        with pytest.raises(ValueError, match='no arguments beside a file of ClassOffsets'):
            build(deciding(settings(), cfg))
    with pytest.raises(FileNotFoundError):
        build(deciding(settings(), str(tmp_path / 'missing.json')))
    (tmp_path / 'decision.json').write_text('{}')
    with pytest.raises(ValueError, match='should hold a decision'):
        build(deciding(settings(), path))


def test_several_labels_for_a_pixel_are_refused(tmp_path):
    decision = Thresholds([0.5] * N_CLASSES, 'multilabel')
    write_decision(decision, tmp_path / 'decision.json')
    for cfg in (dict(type='Thresholds', values=[0.5] * 4, mode='multilabel'), str(tmp_path / 'decision.json')):
        with pytest.raises(ValueError, match=r"one class for each pixel\. Found mode='multilabel'"):
            build(deciding(settings(), cfg))


def test_wrong_decisions():
    with pytest.raises(KeyError, match='Offsets'):
        build(deciding(settings(), dict(type='Offsets')))
    with pytest.raises(TypeError, match='values'):
        build(deciding(settings(), dict(type='ClassOffsets', values='abc')))
    with pytest.raises(ValueError, match=r'`decision` should have a value for each of the 4 channels.*Found 3'):
        build(deciding(settings(), dict(type='ClassOffsets', values=[0.0] * 3)))


# Test-time augmentation


def views(one_channel=False):
    """Return a batch of two images in four views: two scales, each with its mirror image."""
    inputs, metas = [], []
    raw = levels(2, 48, 64)
    for size in ((48, 64), (96, 128)):
        resized = F.interpolate(raw.float(), size=size, mode='bilinear').byte()
        for is_flipped in (False, True):
            inputs.append(list(resized.flip(3) if is_flipped else resized))
            direction = 'horizontal' if is_flipped else None
            meta = dict(img_shape=size, flip=is_flipped, flip_direction=direction, img_path='a.png')
            metas.append(samples(2, 48, 64, **meta))
    return raw, dict(inputs=inputs, data_samples=metas)


@pytest.mark.parametrize('name', DECISIONS)
def test_the_mean_probability_of_views_is_decided(name):
    cfg, decision = DECISIONS[name]
    stock, model = pair(settings(), cfg)
    tta = DecidingTTAModel(module=model)
    raw, batch = views()
    with torch.no_grad():
        found = tta.test_step(copy.deepcopy(batch))
        by_view = [stock.test_step(dict(inputs=i, data_samples=s)) for i, s in zip(*batch.values(), strict=True)]
    for index, sample in enumerate(found):
        mean = torch.stack([view[index].seg_logits.data.softmax(0) for view in by_view]).mean(0)
        torch.testing.assert_close(sample.seg_logits.data, mean.log())
        image = raw_of(raw[index : index + 1])
        expected = decision(mean.log()[None], *([image] if name == 'crf' else []))
        assert expected.shape == (1, 48, 64)
        assert_same_map(sample.pred_sem_seg.data, expected, is_rounded=True)
        assert 'image' not in sample
    assert model.is_deciding


@pytest.mark.parametrize('name', OF_ONE_CHANNEL)
def test_views_of_a_single_channel(name):
    cfg, decision = OF_ONE_CHANNEL[name]
    stock, model = pair(settings(one_channel=True), cfg)
    raw, batch = views()
    with torch.no_grad():
        found = DecidingTTAModel(module=model).test_step(copy.deepcopy(batch))
        by_view = [stock.test_step(dict(inputs=i, data_samples=s)) for i, s in zip(*batch.values(), strict=True)]
    for index, sample in enumerate(found):
        mean = torch.stack([view[index].seg_logits.data for view in by_view]).mean(0)
        torch.testing.assert_close(sample.seg_logits.data, mean)
        image = raw_of(raw[index : index + 1])
        expected = decision(mean.logit()[None], *([image] if name == 'crf' else []))
        assert_same_map(sample.pred_sem_seg.data, expected, is_rounded=True)


def test_views_are_merged_as_before_without_a_decision():
    stock, model = pair(settings(), None)
    _, batch = views()
    merged = [
        MODELS.build(dict(type=kind, module=module)).test_step(copy.deepcopy(batch))
        for kind, module in (('DecidingTTAModel', model), ('SegTTAModel', stock))
    ]
    for found, expected in zip(*merged, strict=True):
        assert torch.equal(found.pred_sem_seg.data, expected.pred_sem_seg.data)
        assert found.metainfo['img_path'] == 'a.png'


def test_views_are_not_decided_and_a_single_prediction_is_after_a_failure(monkeypatch):
    _, model = pair(settings(), DECISIONS['offsets'][0])
    tta = DecidingTTAModel(module=model)
    decided = []
    monkeypatch.setattr(model, 'decide', lambda sample: decided.append(sample))
    tta.test_step(views()[1])
    assert len(decided) == 2, 'one map for each image'

    def fail(*args):
        assert not model.is_deciding
        raise RuntimeError('out of memory')

    monkeypatch.setattr(model, 'encode_decode', fail)
    with pytest.raises(RuntimeError, match='out of memory'):
        tta.test_step(views()[1])
    assert model.is_deciding


def test_views_of_another_model_are_refused():
    with pytest.raises(TypeError, match=r'`module` should be a DecidingSegmentor\. Found EncoderDecoder'):
        MODELS.build(dict(type='DecidingTTAModel', module=settings()))
    built = MODELS.build(dict(type='mmseg_nondecomp.DecidingTTAModel', module=deciding(settings(), None)))
    assert isinstance(built.module, DecidingSegmentor)
    assert type(copy.deepcopy(built)) is type(built)
