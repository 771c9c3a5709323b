"""Checkpoints, states and class indices of an earlier version are read."""

import shutil

import needs_openmmlab  # noqa: F401
import numpy as np
import pytest
import torch
from saved import scenes

from mmseg_nondecomp import ClassIndex, index_classes


def load(name):
    return torch.load(scenes.FOLDER / name)


def assert_same(found, expected, **tolerance):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value, **tolerance)
    else:
        torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


@pytest.fixture(scope='module')
def saved():
    return load(scenes.LOSSES)


@pytest.mark.parametrize('name', scenes.SETTINGS)
def test_a_loss_goes_on_from_its_state(name, saved):
    kind, settings = scenes.SETTINGS[name]
    loss = kind(**settings)
    loss.load_state_dict(saved['states'][name])
    assert_same(dict(loss.state_dict()), dict(saved['states'][name]), rtol=0, atol=0)
    values = [scenes.called(loss, call) for call in saved['calls'][2:]]
    assert_same(torch.stack(values), torch.stack(saved['values'][name]), rtol=1e-5, atol=1e-6)


def test_the_state_of_a_memory_and_of_multipliers_matters(saved):
    for name in ('Lovasz softmax, memory', 'F_beta', 'F_beta per example'):
        kind, settings = scenes.SETTINGS[name]
        value = scenes.called(kind(**settings), saved['calls'][2])
        assert not torch.allclose(value, saved['values'][name][0], rtol=1e-3)


def test_a_training_is_resumed(tmp_path):
    shutil.copy(scenes.FOLDER / scenes.CHECKPOINT, tmp_path)
    resumed, expected = scenes.trained(tmp_path, tmp_path / scenes.CHECKPOINT), load(scenes.TRAINING)
    assert resumed['drawn'] == expected['drawn'], 'images that the sampler chose by the IoU'
    assert resumed['sampler']['since'] == expected['sampler']['since']
    assert_same(torch.stack(resumed['sampler']['iou']), torch.stack(expected['sampler']['iou']), rtol=1e-3, atol=1e-4)
    for part in ('counts', 'weights'):
        assert_same(resumed[part], expected[part], rtol=1e-3, atol=1e-4)
    for losses, of_before in zip(resumed['losses'], expected['losses'], strict=True):
        assert losses == pytest.approx(of_before, rel=1e-4)


def test_a_kept_class_index_is_read(tmp_path):
    for file in scenes.FOLDER.glob('class-index-*.npz'):
        shutil.copy(file, tmp_path)

    class LoadAnnotations:
        def __call__(self, info):
            raise AssertionError('Classes are counted that were counted before.')

    LoadAnnotations.__module__, LoadAnnotations.__qualname__ = 'saved', 'LoadAnnotations'
    index = index_classes(scenes.LabelMaps(LoadAnnotations()), cache_dir=tmp_path)
    anew = index_classes(scenes.LabelMaps(scenes.LoadAnnotations()), cache_dir=tmp_path / 'empty', num_workers=0)
    assert index.class_names == anew.class_names == scenes.CLASSES
    for name in ('starts', 'classes', 'counts', 'n_items', 'places', 'dataset_indices'):
        np.testing.assert_array_equal(getattr(index, name), getattr(anew, name))
    assert index.items_per_class.tolist() == [32 + 16, 32 + 16, 32 + 16]
    assert isinstance(index, ClassIndex)
