"""The contract of every registered loss. Values and errors for a table of inputs are in hard_use/test_contract.py."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from calls import assert_same, step_after_training_batch, value_and_gradient
from every_loss import CASES, EVERY, N_CLASSES, WRAPPERS, build, every_loss, every_loss_but, in_box_heads, items, pixels
from torch import nn

import mmseg_nondecomp

STATEFUL = [
    ('LovaszSoftmaxLoss', dict(memory=3)),
    ('LovaszHingeLoss', dict(memory=3)),
    ('SMeasureLoss', dict(per_example=True)),
]


def test_every_loss_has_a_case_and_is_registered():
    assert set(CASES) | WRAPPERS == set(mmseg_nondecomp.losses.__all__)
    assert all(issubclass(getattr(mmseg_nondecomp, name), nn.Module) for name in CASES)
    registered = {
        name: cls
        for name, cls in pytest.importorskip('mmengine.registry').MODELS.module_dict.items()
        if cls.__module__.startswith('mmseg_nondecomp.losses.')
    }
    assert registered == {name: getattr(mmseg_nondecomp, name) for name in {*CASES, *WRAPPERS}}


@pytest.mark.parametrize('data', [pixels, items])
@every_loss
def test_value_is_a_positive_scalar_whatever_the_avg_factor(name, args, data):
    loss, (logits, labels) = build(name, in_box_heads(name, args)), data()
    expected, gradient = value_and_gradient(loss, logits, labels)
    assert expected.shape == ()
    assert expected > 0
    assert gradient.isfinite().all()
    assert gradient.any()
    with torch.no_grad():
        assert torch.equal(loss(logits, labels), expected)
    for avg_factor in (1, 1000.0, 0, torch.tensor(7.0)):
        for reduction in (None, 'mean'):
            value = loss(logits, labels, avg_factor=avg_factor, reduction_override=reduction)
            assert torch.equal(value, expected)


@every_loss
def test_loss_name_and_loss_weight(name, args):
    assert build(name, args).loss_name.startswith('loss_')
    assert build(name, args | dict(loss_name='loss_of_mine')).loss_name == 'loss_of_mine'
    logits, labels = pixels()
    once, thrice = (build(name, args | dict(loss_weight=factor))(logits, labels) for factor in (1.0, 3.0))
    torch.testing.assert_close(thrice, 3 * once)
    with pytest.raises(ValueError, match='`loss_name`'):
        build(name, args | dict(loss_name='pooled'))


@pytest.mark.parametrize('way', ['255', 'ignore_index', 'weight', 'weight of probabilities'])
@every_loss
def test_ignored_items_change_neither_value_nor_gradient(name, args, way):
    loss = build(name, args)
    logits, labels = pixels(requires_grad=False)
    logits[..., 4:] = 50 * logits[..., 4:].roll(1, 0)
    target, how = labels.clone(), {}
    if way == '255':
        target[..., 4:] = 255
    elif way == 'ignore_index':
        target[..., 4:] = -1
        how = dict(ignore_index=-1)
    else:
        how = dict(weight=torch.ones(labels.shape).index_fill(2, torch.arange(4, 8), 0))
        if way == 'weight of probabilities':
            target = labels = F.one_hot(labels, N_CLASSES).movedim(-1, 1).float()
    value, gradient = value_and_gradient(loss, logits, target, **how)
    expected, its_gradient = value_and_gradient(loss, logits[..., :4], labels[..., :4])
    assert_same((value, gradient[..., :4]), (expected, its_gradient))
    assert not gradient[..., 4:].any()
    assert not torch.allclose(expected, loss(logits, labels))


@pytest.mark.parametrize(
    'layout',
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x[..., :1].expand_as(x),
    ],
    ids=['channels last', 'transposed', 'strided', 'expanded'],
)
@every_loss
def test_memory_layout_changes_neither_value_nor_gradient(name, args, layout):
    logits, labels = pixels(requires_grad=False)
    logits = layout(logits)
    assert not logits.is_contiguous()
    expected = value_and_gradient(build(name, args), logits.contiguous(), labels)
    labels = torch.stack([labels, labels], -1)[..., 0]
    assert_same(value_and_gradient(build(name, args), logits, labels), expected)


@every_loss
def test_dtype_of_the_module_does_not_change_the_value(name, args):
    logits, labels = pixels()
    expected = build(name, args)(logits, labels)
    for loss in (build(name, args).half(), build(name, args).double()):
        torch.testing.assert_close(loss(logits, labels), expected)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@every_loss
def test_autocast_computes_in_float32(name, args, dtype):
    """Of logits that autocast has rounded: the value is that of float32, the gradient is rounded once."""
    logits, labels = pixels(dtype)
    expected = value_and_gradient(build(name, args), logits.float(), labels)
    with torch.autocast('cpu', dtype):
        value, gradient = value_and_gradient(build(name, args), logits, labels)
    assert value.dtype == torch.float32
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert_same((value, gradient), expected, rtol=1e-6 + torch.finfo(dtype).eps / 2, atol=1e-6 + smallest)
    torch.testing.assert_close(value, expected[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize('leaked', [dict(use_sigmoid=False), dict(avg_non_ignore=True), dict(reduction='mean')])
@pytest.mark.parametrize('registry', ['mmengine', 'mmseg', 'mmdet'])
@pytest.mark.parametrize('name', CASES)
def test_what_leaks_from_a_merged_config_is_named(name, registry, leaked):
    models = pytest.importorskip(f'{registry}.registry').MODELS
    with pytest.raises(TypeError, match=rf'{name} has no argument `{next(iter(leaked))}`.*`_delete_=True`'):
        models.build(dict(type=name, **CASES[name][0][1], **leaked))


def test_unknown_scope_is_named():
    for name in set(CASES) - {'SmoothTopKLoss', 'HardTopKLoss'}:  # a mean over items, whatever the set
        with pytest.raises(ValueError, match=r"`scope`.*'galaxy'"):
            build(name, dict(scope='galaxy'))


@pytest.mark.parametrize(('name', 'args'), [*EVERY, *STATEFUL])
def test_state_is_copied_pickled_saved_and_loaded(name, args):
    """All four go on as the loss itself, which differs from a new one where it has a state."""

    def value_of_batch(loss, seed):
        logits, labels = items()
        how = dict(ids=torch.arange(len(labels))) if args.get('per_example') else {}
        return loss(logits + torch.arange(N_CLASSES) * seed, labels, **how)

    loss, new = build(name, args), build(name, args)
    for seed in range(3):
        value_of_batch(loss, seed)
        step_after_training_batch(loss)
    loaded = build(name, args)
    loaded.load_state_dict(copy.deepcopy(loss.state_dict()))
    others = copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loaded
    expected = value_of_batch(loss, 4)
    assert all(torch.equal(value_of_batch(other, 4), expected) for other in others)
    is_stateful = 'memory' in args or name == 'SMeasureLoss'
    assert torch.equal(value_of_batch(new, 4), expected) != is_stateful
    if 'memory' not in args:  # A checkpoint of another loss, such as cross-entropy, resumes without missing keys.
        assert new.load_state_dict({}, strict=False).missing_keys == []


@every_loss_but('DirectAPLoss', 'DirectZeroOneLoss')  # their gradient is not that of their value
def test_gradcheck(name, args):
    logits, labels = pixels(torch.float64, requires_grad=False)
    logits, labels = logits[..., :2, :3].clone().requires_grad_(), labels[..., :2, :3].clone()
    labels[0, 0, 0] = 255
    weight = torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)).double()
    assert torch.autograd.gradcheck(lambda x: build(name, args)(x, labels, weight=weight), logits)


@every_loss
def test_order_of_items_does_not_matter(name, args):
    logits, labels = items()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    value, gradient = value_and_gradient(build(name, args), logits, labels)
    assert_same(value_and_gradient(build(name, args), logits[order], labels[order]), (value, gradient[order]))
