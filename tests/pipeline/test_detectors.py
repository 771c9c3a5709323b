"""Stock configs of MMDetection with one line changed: their classifiers train on the average precision."""

import pytest
import torch

pytest.importorskip('mmdet')

from detection_scenes import N_CLASSES, batch
from mmdet.models.losses import FocalLoss
from mmdet.registry import MODELS
from mmdet.utils import register_all_modules
from mmengine.config import ConfigDict
from mmengine.hub import get_config

from mmseg_nondecomp import DirectAPLoss, DirectZeroOneLoss

AP = dict(type='DirectAPLoss', use_sigmoid=True)
CONFIGS = {
    'faster-rcnn': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'cascade-rcnn': 'cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco.py',
    'retinanet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'fcos': 'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
    'conditional-detr': 'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
}
CLASSIFIERS = {
    'faster-rcnn': ['roi_head.bbox_head.fc_cls'],
    'cascade-rcnn': [f'roi_head.bbox_head.{stage}.fc_cls' for stage in range(3)],
    'retinanet': ['bbox_head.retina_cls'],
    'fcos': ['bbox_head.conv_cls'],
    'conditional-detr': ['bbox_head.fc_cls'],
}
N_CALLS = {'faster-rcnn': 1, 'cascade-rcnn': 3, 'retinanet': 5, 'fcos': 1, 'conditional-detr': 2}
every_detector = pytest.mark.parametrize('name', CONFIGS)


def changed(config, changes):
    """Return a config with other values for some keys at any depth."""
    if isinstance(config, dict):
        return ConfigDict({k: changes[k] if k in changes else changed(v, changes) for k, v in config.items()})
    if isinstance(config, (list, tuple)):
        return type(config)(changed(value, changes) for value in config)
    return config


def with_loss(config, loss):
    """Return a config with another loss in the heads that classify. The RPN keeps its own."""
    if isinstance(config, (list, tuple)):
        return type(config)(with_loss(value, loss) for value in config)
    if not isinstance(config, dict):
        return config
    parts = {key: value if key == 'rpn_head' else with_loss(value, loss) for key, value in config.items()}
    return ConfigDict(parts | dict(loss_cls=ConfigDict(loss))) if 'loss_cls' in parts else ConfigDict(parts)


def detector(name, loss=AP):
    register_all_modules(init_default_scope=True)
    torch.manual_seed(0)
    config = get_config(f'mmdet::{CONFIGS[name]}').model
    config.backbone = ConfigDict(
        type='ResNet', depth=18, base_channels=8, out_indices=config.backbone.out_indices, init_cfg=None
    )
    config.neck.in_channels = [8, 16, 32, 64] if name != 'conditional-detr' else [64]
    small = dict(num_classes=N_CLASSES, fc_out_channels=32, num_layers=2, num_queries=40, stacked_convs=1)
    model = MODELS.build(with_loss(changed(config, small), loss))
    model.init_weights()
    return model


def losses_of(model, data):
    return model(data['inputs'], data['data_samples'], mode='loss')


def recorded(model):
    """Return a list to which each call of a classification loss adds its arguments and its value."""
    calls = []
    for module in model.modules():
        if isinstance(module, (DirectAPLoss, DirectZeroOneLoss)):
            module.register_forward_hook(
                lambda _, args, kwargs, value: calls.append((args, kwargs, value)), with_kwargs=True
            )
    return calls


def classification_losses(losses):
    """Return the classification losses in the output of a model."""
    found = [losses[key] for key in losses if key.endswith('loss_cls') and 'rpn' not in key]
    return [value for each in found for value in (each if isinstance(each, (list, tuple)) else [each])]


@every_detector
def test_trains(name):
    model = detector(name).train()
    data, calls = batch(model, [2, 1, 3]), recorded(model)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        optimiser.zero_grad()
        calls.clear()
        losses = losses_of(model, data)
        total, shown = model.parse_losses(losses)
        assert total.isfinite()
        total.backward()
        optimiser.step()
    classifiers = [model.get_submodule(path) for path in CLASSIFIERS[name]]
    assert all(classifier.weight.grad.abs().sum() > 0 for classifier in classifiers)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    found = classification_losses(losses)
    # Anchors are ranked level by level, points all at once.
    assert len(found) == len(calls) == N_CALLS[name]
    for args, kwargs, value in calls:
        assert kwargs.get('avg_factor') is not None
        assert args[0].shape == (len(args[1]), N_CLASSES)
        assert 0 <= value <= 1
    # Cascades weigh their stages; otherwise heads take the loss as it is.
    weights = [1.0, 0.5, 0.25] if name == 'cascade-rcnn' else [1.0] * len(calls)
    expected = [weight * value.item() for weight, (_, _, value) in zip(weights, calls, strict=True)]
    assert sorted(value.item() for value in found) == pytest.approx(sorted(expected))
    if name in ('faster-rcnn', 'fcos'):
        (accuracy,) = (value for key, value in shown.items() if key.endswith('acc_classes'))
        assert 0 <= accuracy <= 100


@every_detector
def test_images_without_objects(name):
    model = detector(name).train()
    losses = losses_of(model, batch(model, [0, 0]))
    total, _ = model.parse_losses(losses)
    assert total.isfinite()
    assert all(value == 0 for value in classification_losses(losses))
    total.backward()
    for path in CLASSIFIERS[name]:
        assert not model.get_submodule(path).weight.grad.any()


@every_detector
def test_predicts(name):
    model = detector(name).eval()
    for part in model.modules():
        for config in (getattr(part, 'test_cfg', None), (getattr(part, 'test_cfg', None) or {}).get('rcnn')):
            if config is not None and 'score_thr' in config:
                config.score_thr = 0.0
    labels = set()
    with torch.no_grad():
        data = batch(model, [2, 1])
        for sample in model(data['inputs'], data['data_samples'], mode='predict'):
            predicted = sample.pred_instances
            assert len(predicted.bboxes) == len(predicted.labels) == len(predicted.scores) > 0
            assert predicted.bboxes.shape[1] == 4
            assert predicted.scores.min() > 0
            assert predicted.scores.max() < 1
            labels |= set(predicted.labels.tolist())
    assert labels == set(range(N_CLASSES))  # the last class too, where box heads drop the last column


@pytest.mark.parametrize(('name', 'has_column'), [('faster-rcnn', True), ('cascade-rcnn', True), ('fcos', False)])
def test_the_background_has_a_column_in_box_heads_only(name, has_column):
    losses = [module for module in detector(name).modules() if isinstance(module, DirectAPLoss)]
    assert {loss.has_background_column for loss in losses} == {has_column}
    assert {loss.get_activation(torch.zeros(2, N_CLASSES)).shape[1] for loss in losses} == {N_CLASSES + has_column}


@pytest.mark.parametrize('name', ['faster-rcnn', 'fcos'])
def test_the_zero_one_loss_trains_too(name):
    model = detector(name, dict(type='DirectZeroOneLoss', use_sigmoid=True, mode='hinge')).train()
    total, _ = model.parse_losses(losses_of(model, batch(model, [2, 1])))
    total.backward()
    assert total.isfinite()
    assert model.get_submodule(CLASSIFIERS[name][0]).weight.grad.any()


def test_the_rpn_ranks_objects_against_background_and_elementwise_losses_are_refused():
    register_all_modules(init_default_scope=True)
    config = get_config(f'mmdet::{CONFIGS["faster-rcnn"]}').model.rpn_head
    head = MODELS.build(ConfigDict(config, loss_cls=AP, in_channels=8, feat_channels=8, train_cfg=None, test_cfg=None))
    assert head.cls_out_channels == 1
    scores, labels = torch.tensor([[2.0], [1.0], [0.0]]), torch.tensor([1, 0, 1])  # 0 is the object
    assert head.loss_cls(scores, labels, torch.ones(3), avg_factor=3) == pytest.approx(0.5)
    with pytest.raises(ValueError, match='elementwise loss such as FocalLoss'):
        DirectAPLoss()(torch.randn(4, N_CLASSES), torch.arange(4), reduction_override='none')
    assert FocalLoss()(torch.randn(4, N_CLASSES), torch.arange(4), reduction_override='none').shape == (4, N_CLASSES)
