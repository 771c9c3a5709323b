"""What every registered loss promises, whatever it computes. A new loss joins by its arguments in every_loss.CASES."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from every_loss import (
    CASES,
    N_CLASSES,
    WITH_SOFTMAX,
    assert_same,
    build,
    every_loss,
    every_loss_but,
    items,
    pixels,
    value_and_gradient,
)
from torch import nn

import mmseg_nondecomp


def test_every_loss_has_a_case():
    assert set(CASES) == set(mmseg_nondecomp.losses.__all__)
    assert all(issubclass(getattr(mmseg_nondecomp, name), nn.Module) for name in CASES)


def test_every_loss_is_registered():
    registered = {
        name: cls
        for name, cls in pytest.importorskip('mmengine.registry').MODELS.module_dict.items()
        if cls.__module__.startswith('mmseg_nondecomp.losses.')
    }
    assert registered == {name: getattr(mmseg_nondecomp, name) for name in CASES}


CALLS = {
    'mmseg': lambda loss, x, y: loss(x, y, weight=None, ignore_index=255),
    'mmseg with a sampler': lambda loss, x, y: loss(x, y, weight=torch.ones(y.shape), ignore_index=255),
    'mmdet RoI head': lambda loss, x, y: loss(x, y, torch.ones(len(y)), avg_factor=7.0, reduction_override=None),
    'mmdet anchor head': lambda loss, x, y: loss(x, y, torch.ones(len(y)), avg_factor=7),
    'mmdet anchor-free head': lambda loss, x, y: loss(x, y, avg_factor=torch.tensor(7.0)),
    'mmpretrain': lambda loss, x, y: loss(x, y, avg_factor=len(y)),
    'mmpretrain, mixed labels': lambda loss, x, y: loss(x, F.one_hot(y, N_CLASSES) * 0.9 + 0.02, avg_factor=len(y)),
    'plain': lambda loss, x, y: loss(x, y),
}


@pytest.mark.parametrize('call', CALLS)
@every_loss
def test_call_forms(name, args, call):
    logits, labels = pixels() if call.startswith('mmseg') else items()
    value = CALLS[call](build(name, args), logits, labels)
    value.backward()
    assert value.shape == ()
    assert value.isfinite()
    assert value > 0
    assert logits.grad.isfinite().all()
    assert logits.grad.any()


@pytest.mark.parametrize('data', [pixels, items])
@every_loss
def test_is_never_divided_by_avg_factor(name, args, data):
    loss, (logits, labels) = build(name, args), data()
    for avg_factor in (1, 1000.0, 0):
        for reduction in (None, 'mean'):
            value = loss(logits, labels, avg_factor=avg_factor, reduction_override=reduction)
            assert torch.equal(value, loss(logits, labels))


@every_loss
def test_name_and_factor(name, args):
    assert build(name, args).loss_name.startswith('loss_')
    assert build(name, args | dict(loss_name='loss_of_mine')).loss_name == 'loss_of_mine'
    logits, labels = pixels()
    once, thrice = (build(name, args | dict(loss_weight=factor))(logits, labels) for factor in (1.0, 3.0))
    torch.testing.assert_close(thrice, 3 * once)
    with pytest.raises(ValueError, match='`loss_name`'):
        build(name, args | dict(loss_name='pooled'))


@pytest.mark.parametrize('way', ['255', 'ignore_index', 'weight', 'weight of probabilities'])
@every_loss
def test_ignored_items_do_not_exist(name, args, way):
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


@pytest.mark.parametrize('removed', [dict(), dict(weight=torch.zeros(2, 6, 8)), dict(ignore_index=3)])
@every_loss
def test_nothing_left_is_an_attached_zero(name, args, removed):
    logits, labels = pixels()
    labels = labels if 'weight' in removed else torch.full_like(labels, removed.get('ignore_index', 255))
    value, gradient = value_and_gradient(build(name, args), logits * 1e3, labels, **removed)
    assert value == 0
    assert torch.equal(gradient, torch.zeros_like(logits))


@pytest.mark.parametrize('shape', [(0, N_CLASSES), (0, N_CLASSES, 3, 4), (2, N_CLASSES, 0, 4)], ids=str)
@every_loss
def test_empty_batch(name, args, shape):
    labels = torch.zeros(shape[0], *shape[2:], dtype=torch.long)
    value, gradient = value_and_gradient(build(name, args), torch.zeros(shape), labels)
    assert value == 0
    assert gradient.shape == shape


@pytest.mark.parametrize('shape', [(1, N_CLASSES), (1, N_CLASSES, 1, 1)], ids=str)
@every_loss
def test_one_item(name, args, shape):
    logits, labels = torch.zeros(shape), torch.zeros(1, *shape[2:], dtype=torch.long)
    value, gradient = value_and_gradient(build(name, args), logits, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()
    # One item cannot be ranked among those of its class and others.
    assert gradient[:, 0] < 0 or (name == 'DirectAPLoss' and args.get('per_class', True) and value == 0)


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
def test_memory_layout_does_not_matter(name, args, layout):
    logits, labels = pixels(requires_grad=False)
    logits = layout(logits)
    assert not logits.is_contiguous()
    expected = value_and_gradient(build(name, args), logits.contiguous(), labels)
    labels = torch.stack([labels, labels], -1)[..., 0]
    assert_same(value_and_gradient(build(name, args), logits, labels), expected)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@every_loss
def test_floating_point_types(name, args, dtype):
    logits, labels = pixels(dtype)
    value, gradient = value_and_gradient(build(name, args), logits, labels)
    expected = value_and_gradient(build(name, args), logits.double(), labels)
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert gradient.dtype == dtype
    atol = 1e-5 * gradient.abs().max() + torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert_same((value, gradient), expected, rtol=1e-5 + torch.finfo(dtype).eps, atol=atol)


@every_loss
def test_the_module_may_change_its_type(name, args):
    logits, labels = pixels()
    expected = build(name, args)(logits, labels)
    for loss in (build(name, args).half(), build(name, args).double()):
        torch.testing.assert_close(loss(logits, labels), expected)


@every_loss
def test_autocast_does_not_make_it_coarse(name, args):
    logits, labels = pixels()
    expected = value_and_gradient(build(name, args), logits, labels)
    with torch.autocast('cpu', torch.bfloat16):
        assert_same(value_and_gradient(build(name, args), logits, labels), expected)


@every_loss
def test_huge_logits(name, args):
    logits, labels = pixels()
    value, gradient = value_and_gradient(build(name, args), logits * 1e30, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize(('name', 'args'), WITH_SOFTMAX)
def test_classes_ruled_out_by_minus_infinity(name, args):
    logits, labels = pixels(requires_grad=False)
    other = (labels + 1) % N_CLASSES
    ruled_out = F.one_hot(other, N_CLASSES).movedim(-1, 1).bool()
    value, gradient = value_and_gradient(build(name, args), logits.masked_fill(ruled_out, -math.inf), labels)
    expected = value_and_gradient(build(name, args), logits.masked_fill(ruled_out, -1e4), labels)
    assert_same((value, gradient), expected)


@every_loss
def test_nan_is_not_hidden(name, args):
    logits, labels = pixels(requires_grad=False)
    logits[1, 2, 3, 3] = math.nan
    assert build(name, args)(logits, labels).isnan()
    labels[1, 3, 3] = 255
    assert build(name, args)(logits, labels).isfinite()


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int32, torch.int16])
@every_loss
def test_integer_types_of_labels(name, args, dtype):
    logits, labels = pixels()
    labels[:, 0] = 255
    assert torch.equal(build(name, args)(logits, labels.to(dtype)), build(name, args)(logits, labels))


BAD_CALLS = [
    ('pred', dict(pred=torch.ones(2, N_CLASSES, 6, 8, dtype=torch.long)), TypeError, 'int64'),
    ('pred', dict(pred=torch.randn(96)), ValueError, r'\(96,\)'),
    ('target', dict(target=torch.zeros(2, 6, 8)), ValueError, 'float32'),
    ('target', dict(target=torch.zeros(2, 6, 7, dtype=torch.long)), ValueError, r'\(2, 6, 7\)'),
    ('target', dict(target=torch.zeros(2, 1, 6, 8, dtype=torch.long)), ValueError, r'\(2, 1, 6, 8\)'),
    ('target', dict(target=torch.full((2, 6, 8), -1)), ValueError, '-1'),
    ('target', dict(target=torch.full((2, 6, 8), N_CLASSES + 1)), ValueError, str(N_CLASSES + 1)),
    ('target', dict(target=torch.full((2, 6, 8), 255), ignore_index=254), ValueError, '255'),
    ('weight', dict(weight=torch.ones(2)), ValueError, r'\(2,\)'),
    ('weight', dict(weight=torch.ones(2, 1, 6, 8)), ValueError, r'\(2, 1, 6, 8\)'),
    ('weight', dict(weight=torch.full((2, 6, 8), -2.0)), ValueError, '-2'),
    ('reduction_override', dict(reduction_override='total'), ValueError, 'total'),
]


@pytest.mark.parametrize(('parameter', 'change', 'error', 'found'), BAD_CALLS)
@every_loss
def test_bad_calls_are_named(name, args, parameter, change, error, found):
    logits, labels = pixels()
    with pytest.raises(error, match=f'`{parameter}`.*{found}'):
        build(name, args)(**(dict(pred=logits, target=labels) | change))


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


@pytest.mark.parametrize('duplicate', [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
@every_loss
def test_copies_and_saved_states(name, args, duplicate):
    logits, labels = pixels()
    loss = build(name, args)
    other = duplicate(loss)
    assert torch.equal(other(logits, labels), loss(logits, labels))
    other.load_state_dict(loss.state_dict())
    # A checkpoint trained with another loss, say cross-entropy, resumes without missing keys.
    assert other.load_state_dict({}, strict=False).missing_keys == []


@every_loss_but('DirectAPLoss')  # what is ranked has a size that depends on the labels
def test_compiles_without_graph_breaks(name, args):
    torch._dynamo.reset()
    logits, labels = pixels(requires_grad=False)
    labels[:, 0] = 255
    weight = torch.rand(labels.shape).round()
    compiled = torch.compile(build(name, args), fullgraph=True, backend='aot_eager')
    expected = value_and_gradient(build(name, args), logits, labels, weight=weight)
    assert_same(value_and_gradient(compiled, logits, labels, weight=weight), expected)


@every_loss_but('DirectAPLoss', 'DirectZeroOneLoss')  # their gradient is not that of their value
def test_gradcheck(name, args):
    logits, labels = pixels(torch.float64, requires_grad=False)
    logits, labels = logits[..., :2, :3].clone().requires_grad_(), labels[..., :2, :3].clone()
    labels[0, 0, 0] = 255
    weight = torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)).double()
    assert torch.autograd.gradcheck(lambda x: build(name, args)(x, labels, weight=weight), logits)


@every_loss
def test_knows_no_order_of_the_items(name, args):
    logits, labels = items()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    value, gradient = value_and_gradient(build(name, args), logits, labels)
    assert_same(value_and_gradient(build(name, args), logits[order], labels[order]), (value, gradient[order]))
