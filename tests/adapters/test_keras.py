"""Losses in `keras.Model.compile`."""

import os
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp import LovaszHingeLoss, LovaszSoftmaxLoss, SoftIoULoss

os.environ.setdefault('KERAS_BACKEND', 'torch')
keras = pytest.importorskip('keras', exc_type=ImportError)
if keras.backend.backend() != 'torch':
    pytest.skip('Keras has another backend', allow_module_level=True)
KerasLoss = pytest.importorskip('mmseg_nondecomp.adapters.keras').KerasLoss


def scene(n_classes=3, n=4):
    """Return images that show their labels, and labels [N, 8, 8] of which a row is ignored."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, n_classes, (n, 8, 8)).astype('uint8')
    images = np.eye(n_classes, dtype='float32')[label] + 0.3 * rng.standard_normal((n, 8, 8, n_classes)).astype('f')
    label[:, 0] = 255
    return images, label


def network(n_channels, activation=None, n_inputs=3):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, n_inputs))
    return keras.Sequential([inputs, keras.layers.Conv2D(n_channels, 1, activation=activation)])


def assert_same(first, second, scores, tolerance=1e-6):
    """Compare values and gradients of two losses."""
    gradients = [torch.autograd.grad(loss, scores, retain_graph=True)[0] for loss in (first, second)]
    assert_close(first, second, rtol=0, atol=tolerance)
    assert gradients[0].abs().sum() > 0
    assert_close(*gradients, rtol=0, atol=tolerance)


@pytest.mark.parametrize('loss', [SoftIoULoss, LovaszSoftmaxLoss])
@pytest.mark.parametrize('from_logits', [True, False])
def test_equals_direct_call(loss, from_logits):
    label = torch.from_numpy(scene()[1]).long()
    scores = torch.randn(4, 8, 8, 3, requires_grad=True)
    direct = loss(mode='multiclass', ignore_index=255)(scores.movedim(-1, 1), label)
    pred = scores if from_logits else scores.softmax(-1)
    ours = KerasLoss(loss, from_logits=from_logits, ignore_index=255)
    for target in (label, label.unsqueeze(-1), label.numpy(), label.float(), label.to(torch.uint8)):
        assert_same(ours(target, pred), direct, scores)
    assert ours(torch.full_like(label, 255), pred) == 0
    one_hot = torch.nn.functional.one_hot(label.clamp(max=2), 3)
    direct = loss(mode='multiclass')(scores.movedim(-1, 1), one_hot.movedim(-1, 1))
    assert_same(KerasLoss(loss, from_logits=from_logits)(one_hot, pred), direct, scores)
    first = KerasLoss(loss, from_logits=from_logits, data_format='channels_first')
    assert_same(first(one_hot.movedim(-1, 1), pred.movedim(-1, 1)), direct, scores)


def test_sigmoid():
    label = torch.from_numpy(scene(2)[1]).long()
    scores = torch.randn(4, 8, 8, 1, requires_grad=True)
    direct = LovaszHingeLoss(mode='binary')(scores[..., 0], label)
    ours = KerasLoss(LovaszHingeLoss, mode='binary')
    assert_same(ours(label.unsqueeze(-1), scores), direct, scores)
    probs = KerasLoss(LovaszHingeLoss, mode='binary', from_logits=False)(label, scores.sigmoid())
    assert_same(probs, direct, scores)
    several = torch.randint(0, 2, (4, 8, 8, 3))
    scores = torch.randn(4, 8, 8, 3, requires_grad=True)
    direct = SoftIoULoss(mode='multilabel')(scores.movedim(-1, 1), several.movedim(-1, 1))
    assert_same(KerasLoss(SoftIoULoss, mode='multilabel')(several, scores), direct, scores)


def test_sample_weight_is_that_of_pixels():
    label = torch.from_numpy(scene()[1]).long()
    scores = torch.randn(4, 8, 8, 3, requires_grad=True)
    ours = KerasLoss(SoftIoULoss, ignore_index=255)
    direct, weight = SoftIoULoss(mode='multiclass', ignore_index=255), torch.rand(4, 8, 8)
    expected = direct(scores.movedim(-1, 1), label, weight)
    assert_same(ours(label, scores, weight), expected, scores)
    assert_same(ours(label, scores, weight.unsqueeze(-1)), expected, scores)
    assert_same(ours(label, scores, [1.0, 0.0, 0.0, 0.0]), ours(label[:1], scores[:1]), scores)
    assert_same(ours(label, scores, [[1.0], [0.0], [0.0], [0.0]]), ours(label[:1], scores[:1]), scores)
    first = KerasLoss(SoftIoULoss, ignore_index=255, data_format='channels_first')
    for weights, same in ((weight, expected), ([1.0, 0.0, 0.0, 0.0], ours(label[:1], scores[:1]))):
        assert_same(first(label, scores.movedim(-1, 1), weights), same, scores)
    with pytest.raises(ValueError, match='`weight` should be of shape'):
        ours(label, scores, weight[:, :2])


@pytest.mark.parametrize(
    'loss',
    [dict(loss='miou'), dict(loss=LovaszSoftmaxLoss), dict(loss=SoftIoULoss, from_logits=False, classes='all')],
    ids=['name', 'class', 'probabilities'],
)
def test_fits_saves_and_clones(loss, tmp_path):
    images, label = scene()
    model = network(3, None if loss.get('from_logits', True) else 'softmax')
    model.compile('adam', KerasLoss(ignore_index=255, **loss))
    for _ in range(2):
        before = model.get_weights()
        history = model.fit(images, label, batch_size=4, verbose=0)
        assert np.isfinite(history.history['loss']).all()
        assert not np.allclose(before[0], model.get_weights()[0])
    value = model.evaluate(images, label, verbose=0)
    direct = model.loss.loss if model.loss.from_logits else SoftIoULoss('all', mode='multiclass', ignore_index=255)
    scores = model(images) if model.loss.from_logits else model(images).log()
    assert value == pytest.approx(direct(scores.movedim(-1, 1), torch.from_numpy(label)).item(), abs=1e-5)
    model.save(tmp_path / 'model.keras')
    loaded = keras.saving.load_model(tmp_path / 'model.keras')
    assert loaded.evaluate(images, label, verbose=0) == pytest.approx(value, abs=1e-6)
    assert keras.models.clone_model(model).count_params() == model.count_params()
    same = KerasLoss.from_config(model.loss.get_config())
    assert same.get_config() == model.loss.get_config()
    of_images = KerasLoss(SoftIoULoss, scope='image')
    assert of_images.loss.scope == KerasLoss.from_config(of_images.get_config()).loss.scope == 'image'


def test_weights_of_fit_and_mixed_precision():
    images, label = scene()
    model = network(3)
    model.compile('adam', KerasLoss('miou', ignore_index=255))
    for weight in (np.ones(4, 'f'), np.ones((4, 8, 8), 'f')):
        history = model.fit(images, label, sample_weight=weight, verbose=0)
        assert np.isfinite(history.history['loss']).all()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        model = network(3)
        model.compile('adam', KerasLoss('miou', ignore_index=255))
        assert np.isfinite(model.fit(images, label, verbose=0).history['loss']).all()
        assert model(images).dtype == torch.bfloat16
    finally:
        keras.config.set_dtype_policy('float32')


def test_single_channel_fits():
    images, label = scene(2)
    model = network(1, n_inputs=2)
    model.compile('adam', KerasLoss('dice', mode='binary', ignore_index=255))
    before = model.get_weights()
    assert np.isfinite(model.fit(images, label[..., None], verbose=0).history['loss']).all()
    assert not np.allclose(before[0], model.get_weights()[0])


def test_mistakes():
    images, label = scene()
    scores = torch.randn(4, 8, 8, 3)
    with pytest.raises(ValueError, match='logits need `from_logits=True`'):
        KerasLoss(SoftIoULoss, from_logits=False)(label, scores)
    with pytest.warns(UserWarning, match='expects logits, and all scores look like probabilities'):
        KerasLoss(SoftIoULoss)(label, scores.softmax(-1))
    with pytest.raises(ValueError, match="`mode='binary'` reads a single channel"):
        KerasLoss(SoftIoULoss)(label, scores[..., :1])
    with pytest.raises(TypeError, match='Instead of `reduction`: nothing'):
        KerasLoss(SoftIoULoss, reduction='sum')
    with pytest.raises(ValueError, match='`data_format` should be one of'):
        KerasLoss(SoftIoULoss, data_format='NHWC')
    model = network(3)
    model.compile('adam', KerasLoss(SoftIoULoss(mode='multiclass')))
    model.fit(images, label, verbose=0)
    with pytest.raises(TypeError, match=r'so that the model can be saved.*write `KerasLoss\(SoftIoULoss'):
        model.loss.get_config()


def test_losses_with_multipliers_are_refused():
    with pytest.raises(TypeError, match='Keras neither updates nor stores'):
        KerasLoss('f_beta', mode='binary')


def test_other_backends_are_refused(tmp_path, monkeypatch):
    environment = {**os.environ, 'KERAS_BACKEND': 'tensorflow', 'KERAS_HOME': str(tmp_path), 'PYTHONPATH': os.getcwd()}
    command = [sys.executable, '-c', f'import {KerasLoss.__module__}']
    message = subprocess.run(command, env=environment, capture_output=True, text=True).stderr
    assert 'NotFoundError: mmseg_nondecomp.adapters.keras needs' in message
    assert 'KERAS_BACKEND=torch' in message
    monkeypatch.setattr(keras.backend, 'backend', lambda: 'jax')
    with pytest.raises(ImportError, match=r"KERAS_BACKEND=torch.* Found the backend 'jax'"):
        runpy.run_path(sys.modules[KerasLoss.__module__].__file__)
