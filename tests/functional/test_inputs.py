import math
import re

import pytest
import torch

from mmseg_nondecomp.functional import _inputs
from mmseg_nondecomp.functional._inputs import (
    Reading,
    activate,
    at_least_float32,
    can_be_read,
    in_one_process,
    number_of_classes,
    pull_back,
    read_class_weight,
    read_inputs,
)

ONE_VS_REST = Reading(overlaps=True, has_background=True)


def valid(labels, n_classes=3, ignore_index=None, weight=None, dtype=torch.long):
    weight = None if weight is None else torch.tensor(weight)
    return read_inputs(
        torch.zeros(len(labels), n_classes), torch.tensor(labels, dtype=dtype), weight, ignore_index
    ).valid.tolist()[0]


def test_labels_and_weights_remove_items_and_values_of_soft_labels_do_not():
    assert valid([0, 255, 2]) == [True, False, True]
    assert valid([0, 1, 2], ignore_index=1) == [True, False, True]
    assert valid([0, 1, 255], weight=[0.0, 1e-30, 1.0]) == [False, True, False]
    assert valid([0, -7, 99], weight=[1.0, 0.0, 0.0]) == [True, False, False]
    pred = torch.zeros(2, 3)
    shares = torch.eye(3)[:2]
    assert read_inputs(pred, shares, ignore_index=1).valid.all()
    assert read_inputs(pred, shares, torch.tensor([0.0, 1.0])).valid.tolist() == [[False, True]]


@pytest.mark.parametrize(('n_labels', 'is_class'), [(254, False), (255, False), (256, True), (1000, True)])
def test_255_is_ignored_where_it_cannot_be_a_class(n_labels, is_class):
    assert valid([0, 255], n_labels) == [True, is_class]
    assert valid([0, 255], n_labels, ignore_index=255) == [True, False]
    one_vs_rest = read_inputs(torch.zeros(1, n_labels - 1), torch.tensor([255]), reading=ONE_VS_REST)
    assert one_vs_rest.valid.tolist() == [[is_class]]


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int16, torch.int32])
def test_small_integers_do_not_wrap(dtype):
    assert valid([0, 200], 300, dtype=dtype) == [True, True]
    assert valid([0, 156], 300, ignore_index=-100, dtype=dtype) == [True, True]


@pytest.mark.parametrize(('label', 'n_labels'), [(-1, 3), (3, 3), (254, 3), (256, 256)])
def test_a_label_that_is_no_class_is_named(label, n_labels):
    message = rf'`target` .*\[0, {n_labels - 1}\].* Found {label} \(in 1 items\)'
    with pytest.raises(ValueError, match=message):
        valid([0, label], n_labels)
    with pytest.raises(ValueError, match=message):
        read_inputs(torch.zeros(1, n_labels - 1), torch.tensor([label]), reading=ONE_VS_REST)


X, Y = torch.zeros(4, 2), torch.zeros(4).long()


@pytest.mark.parametrize(
    ('pred', 'target', 'weight', 'error', 'message'),
    [
        (X.long(), Y, None, TypeError, '`pred`.*int64'),
        (X[:, 0], Y[:3], None, ValueError, r'`pred`.*\[N, C, \*\].*\(4,\)'),
        (X, Y[:3], None, ValueError, r'`target`.*\(4,\).*\(3,\)'),
        (torch.zeros(4, 2, 5), Y[:, None].expand(4, 2), None, ValueError, r'`target`.*\(4, 5\).*\(4, 2\)'),
        (X, Y + 0.5, None, ValueError, '`target`.*class indices: whole numbers. Found 0.5'),
        (X, torch.zeros(4, 3), None, ValueError, r'`target`.*\(4, 2\).*\(4, 3\)'),
        (X, X.long(), None, ValueError, '`target`.*add up to 1 over the 2 classes.*Found 0'),
        (X, Y, torch.ones(4, 2), ValueError, r'`weight`.*\(4,\).*\(4, 2\)'),
        (X[:2], Y[:2], torch.tensor([1, -0.5]), ValueError, '`weight`.*negative.*-0.5'),
        (X.tolist(), Y, None, TypeError, '`pred`.*a tensor.*list'),
        (X, [0], None, TypeError, '`target`.*a tensor.*list'),
        (X, None, None, TypeError, '`target`.*a tensor.*None'),
        (X, Y, [1.0], TypeError, '`weight`.*a tensor.*list'),
        (X + 0j, Y, None, TypeError, '`pred`.*real.*complex64'),
        (X, Y + 0j, None, TypeError, '`target`.*real.*complex64'),
    ],
)
def test_tensors_that_do_not_fit_are_named(pred, target, weight, error, message):
    with pytest.raises(error, match=message):
        read_inputs(pred, target, weight)
    if '`pred`' in message:
        with pytest.raises(error, match=message.replace('pred', 'logits')):
            read_inputs(pred, target, weight, name='logits')


@pytest.mark.parametrize('space', [(6,), (2, 3), (1, 2, 3)], ids=str)
def test_images_are_flattened(space):
    scores, target = torch.arange(36.0).view(2, 3, *space), torch.arange(12).view(2, *space) % 3
    found = read_inputs(scores, target)
    assert torch.equal(found.scores, scores.view(2, 3, 6))
    assert torch.equal(found.target, target.view(2, 6))
    assert found.weight is None
    assert found.mass.dtype == torch.int32
    assert found.mass.eq(1).all()
    assert found.n_classes == 3
    assert torch.equal(found.as_called(found.scores), scores)
    assert torch.equal(found.as_called(found.target), target)


def test_items_without_a_position_are_one_image():
    scores, target, shares = torch.rand(5, 3), torch.tensor([0, 1, 2, 1, 0]), torch.rand(5, 3).softmax(1)
    weight = torch.rand(5)
    found = read_inputs(scores, target, weight)
    assert torch.equal(found.scores, scores.t()[None])
    assert torch.equal(found.target, target[None])
    assert found.mass.dtype == torch.float64
    assert torch.equal(found.mass, weight.double()[None])
    assert torch.equal(read_inputs(scores, shares).target, shares.t()[None])
    assert torch.equal(found.as_called(found.scores), scores)
    assert torch.equal(found.as_called(found.target), target)


@pytest.mark.parametrize(('of_boxes', 'expected'), [(False, [1, 0, 1]), (True, [0, 1, 0])])
def test_the_label_of_a_single_class(of_boxes, expected):
    found = read_inputs(torch.zeros(3, 1), torch.tensor([0, 1, 0]), reading=Reading(of_boxes=of_boxes))
    assert found.target.tolist() == [expected]


def test_ignored_items_have_no_mass_and_no_class():
    pred, weight = torch.zeros(1, 2, 3), torch.tensor([[0.5, 7.0, 2.0]])
    found = read_inputs(pred, torch.tensor([[1, 255, 0]]), weight)
    assert found.mass.tolist() == [[0.5, 0.0, 2.0]]
    assert found.target.tolist() == [[1, 2, 0]]
    assert found.one_hot().tolist() == [[[False, False, True], [True, False, False]]]
    assert not found.is_soft
    shares = torch.tensor([[[0.25, math.nan, 1.0], [0.75, -9.0, 0.0]]])
    soft = read_inputs(pred, shares, torch.tensor([[1.0, 0.0, 1.0]]))
    assert soft.target.tolist() == soft.one_hot().tolist() == [[[0.25, 0, 1], [0.75, 0, 0]]]
    assert soft.is_soft


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_scores_and_soft_labels_are_float32_or_better(dtype):
    found = read_inputs(torch.zeros(1, 2, 3, dtype=dtype), torch.full((1, 2, 3), 0.5).half())
    assert found.scores.dtype == found.target.dtype == torch.promote_types(dtype, torch.float32)
    values = torch.zeros(3, dtype=dtype)
    assert (at_least_float32(values) is values) == (dtype in (torch.float32, torch.float64))


@pytest.mark.parametrize('share', [-0.1, 1.1])
def test_a_soft_label_outside_of_its_range_is_named(share):
    pred, shares = torch.zeros(1, 1, 2), torch.tensor([[[0.5, share]]])
    with pytest.raises(ValueError, match=rf'`target`.*\[0, 1\].* {share}'):
        read_inputs(pred, shares)
    assert read_inputs(pred, shares, torch.tensor([[1.0, 0.0]])).valid.tolist() == [[True, False]]


def test_two_channels_with_labels_are_one_decision():
    pred, labels = torch.randn(2, 2, 3).half(), torch.zeros(2, 3).long()
    pair = Reading(overlaps=True, has_background=True, is_stated=True, pair=True)
    difference = pred[:, 1:].float() - pred[:, :1].float()
    for target in (labels, labels.unsqueeze(1), labels.float()):
        found = read_inputs(pred, target, reading=pair).scores
        assert found.dtype == torch.float32
        assert torch.equal(found, difference)
    of_boxes = pair._replace(of_boxes=True)
    assert torch.equal(read_inputs(pred, labels, reading=of_boxes).scores, -difference)
    assert read_inputs(pred, torch.zeros(2, 2, 3), reading=pair).scores.shape == pred.shape
    assert read_inputs(torch.zeros(2, 3, 3), labels, reading=pair).scores.shape == (2, 3, 3)


def test_the_number_of_classes_is_read_from_a_tensor_and_values_where_that_costs_nothing():
    assert number_of_classes(torch.zeros(2, 5, 3), 'probs') == 5
    assert number_of_classes(torch.zeros(2), 'probs') == 0
    with pytest.raises(TypeError, match=r'`probs`.*a tensor'):
        number_of_classes([1.0], 'probs')
    assert can_be_read(torch.zeros(1))
    assert not can_be_read(torch.zeros(1, device='meta'))


def test_one_process_has_the_whole_sum():
    part = torch.tensor(3.0, requires_grad=True)
    assert in_one_process(part) is in_one_process.rescale(part) is part


@pytest.mark.parametrize('activation', ['softmax', 'sigmoid', 'margin', None])
@pytest.mark.parametrize('shape', [(2, 3, 5), (2, 1, 5), (4, 3)], ids=str)
def test_pulling_back_is_the_derivative_of_the_activation(activation, shape):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(shape, generator=generator, dtype=torch.float64)
    scores = activate(logits, activation)
    (expected,) = torch.autograd.grad(scores, logits, upstream)
    torch.testing.assert_close(pull_back(upstream, scores.detach(), activation), expected, rtol=1e-13, atol=1e-15)


def test_scores_of_logits():
    logits = torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(activate(logits, 'softmax'), torch.tensor([[0.26894142, 0.73105858]]))
    torch.testing.assert_close(activate(logits, 'sigmoid'), torch.tensor([[0.5, 0.73105858]]))
    assert activate(logits, 'margin').tolist() == [[1.0, 2.0]]
    assert activate(logits, None) is logits


def test_weights_of_classes_are_a_tensor_or_none():
    assert read_class_weight(None) is None
    for values in ([0, 1.5], (0.0, 1.5), torch.tensor([0, 1.5])):
        assert read_class_weight(values).tolist() == [0, 1.5]
    assert read_class_weight([1 / 3], torch.float64).item() == 1 / 3


def rows(error, message, *values):
    return [((value,), error, f'{message}{re.escape(repr(value))}') for value in values]


INTEGER = '`ignore_index` should be a label, an integer, or None. Found '
CLASSES = "`classes` should be 'present', 'all' or a list of class indices. Found "
LISTED = '`classes` should list class indices from 0 on, each once. Found '
WEIGHTS = '`class_weight` should hold non-negative numbers. Found '
BAD = {
    'check_integer': [
        (('n', 0, 1), ValueError, '`n` should be at least 1. Found 0'),
        (('n', 5, 1, 4), ValueError, '`n` should be from 1 to 4. Found 5'),
        (('n', 2.0, 1), TypeError, '`n` should be an integer. Found 2.0'),
        (('n', True, 1), TypeError, '`n` should be an integer. Found True'),
    ],
    'check_number': [
        (('p', 0.9, '[1, inf]'), ValueError, r'`p` should be in \[1, inf\]. Found 0.9'),
        (('p', math.inf, '(0, inf)'), ValueError, r'`p` should be in \(0, inf\). Found inf'),
        (('p', 0, '(0, 1]'), ValueError, r'`p` should be in \(0, 1\]. Found 0'),
        (('p', 2, '(0, 1]', ', a share'), ValueError, r'`p` should be in \(0, 1\], a share. Found 2'),
        (('p', math.nan, '[1, inf]'), ValueError, '`p`.*Found nan'),
        (('p', '1', '[1, inf]'), TypeError, "`p` should be a number. Found '1'"),
        (('p', True, '[1, inf]'), TypeError, '`p` should be a number. Found True'),
    ],
    'check_flag': [
        (('on', 1), TypeError, '`on` should be True or False. Found 1'),
        (('on', None), TypeError, '`on` should be True or False. Found None'),
    ],
    'check_option': [(('mode', 'c', ('a', 'b')), ValueError, r"`mode` should be one of \('a', 'b'\). Found 'c'")],
    'check_zero_or_one': [
        (('y', torch.tensor([1, 2, 3])), ValueError, r'`y` should be 0 or 1. Found 2 \(in 2 items\)'),
        (('y', torch.tensor([0.5, 1.0])), ValueError, r'`y` should be 0 or 1. Found 0.5 \(in 1 items\)'),
    ],
    'check_ignore_index': rows(TypeError, INTEGER, 'void', 0.5, True, torch.tensor(3)),
    'check_classes': rows(TypeError, CLASSES, None, 3, [0.5], [True], ['0'], {0, 1})
    + rows(ValueError, CLASSES, 'absent', '')
    + rows(ValueError, LISTED, [], [-1], [1, 1]),
    'read_class_weight': rows(ValueError, WEIGHTS, [1.0, -0.5], [1.0, math.nan], [[1.0, 2.0]], 2.0)
    + rows(TypeError, '`class_weight` should be a list of numbers. Found ', 'weights.npy'),
    'check_class_weight': [((torch.ones(2), 3), ValueError, '`class_weight`.*each of the 3 classes. Found 2')],
    'check_bins': rows(ValueError, '`bins` should be at least 1. Found ', 0)
    + rows(TypeError, '`bins` should be an integer, or None to sort. Found ', 10.0, True),
    'check_k': [
        ((0,), ValueError, '`k` should be at least 1. Found 0'),
        ((5, 5), ValueError, '`k` should be below the number of classes, 5.*Found 5; take at most 4'),
    ],
}


@pytest.mark.parametrize(
    ('check', 'args', 'error', 'message'), [(check, *row) for check, table in BAD.items() for row in table], ids=str
)
def test_arguments_out_of_range_are_named_with_their_value(check, args, error, message):
    with pytest.raises(error, match=message):
        getattr(_inputs, check)(*args)
