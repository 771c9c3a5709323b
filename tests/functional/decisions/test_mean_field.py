import math

import numpy as np
import pytest
import torch
from reference.dense_crf import kernels_of_image, mean_field

from mmseg_nondecomp.functional.decisions.mean_field import _normalised, _smoothness_kernel, dense_crf

SETTINGS = [
    ((3.0, 3.0), (10.0, 80.0, 13.0)),
    ((3.0, 3.0), (4.0, 60.0, 10.0)),
    ((1.0, 2.0), (5.0, 10.0, 30.0)),
    ((3.0, 1.0), (2.0, 30.0, 20.0)),
]
IMAGES = ('noise', 'regions', 'gradient')


def scene(kind, n_classes, seed, side=16):
    """Return noisy probabilities [C, H, W] of two or three regions, an image [3, H, W], and the labels."""
    random = np.random.default_rng(seed)
    y, x = np.indices((side, side))
    labels = (x + y >= side) + ((x > y) & (n_classes > 2)).astype(int)
    colours = random.uniform(0, 255, (n_classes, 3))
    image = {
        'noise': random.uniform(0, 255, (3, side, side)),
        'regions': colours[labels].transpose(2, 0, 1) + 8 * random.standard_normal((3, side, side)),
        'gradient': np.stack([x, y, x + y]) * 255 / (2 * side),
    }[kind]
    logits = 1.5 * random.standard_normal((n_classes, side, side)) + (np.arange(n_classes)[:, None, None] == labels)
    probs = torch.tensor(logits).softmax(0)
    return probs[None], torch.tensor(image.clip(0, 255)).round()[None], torch.tensor(labels)[None]


def compare(probs, image, *settings):
    """Return the mean absolute difference from the oracle, which labels are equal, and the oracle's margins."""
    expected = mean_field(probs[0].numpy(), image[0].numpy(), *settings)
    found = dense_crf(probs, image, *settings)[0].numpy()
    second, first = np.sort(expected, axis=0)[-2:]
    return abs(found - expected).mean(), found.argmax(0) == expected.argmax(0), first - second


@pytest.mark.parametrize('kind', IMAGES)
@pytest.mark.parametrize(('smoothness', 'appearance'), SETTINGS)
@pytest.mark.parametrize(('iterations', 'limit', 'reversed_limit'), [(1, 0.01, 0), (10, 0.025, 0.035)])
def test_agrees_with_explicit_kernel_matrices(smoothness, appearance, kind, iterations, limit, reversed_limit):
    """Updates amplify differences: after 10 of them, a label that is not equal may have any margin."""
    differences, equal, margins = [], [], []
    for seed in range(12):
        probs, image, _ = scene(kind, (2, 3, 4, 6)[seed % 4], seed)
        for values, value in zip(
            (differences, equal, margins), compare(probs, image, smoothness, appearance, iterations), strict=True
        ):
            values.append(value)
    equal, margins = np.stack(equal), np.stack(margins)
    is_reversed = ~equal & (margins > 0.25)
    print(
        f'\n{iterations} updates, {smoothness}, {appearance}, {kind}: marginals differ by {np.mean(differences):.4f}, '
        f'at most {max(differences):.4f}; {equal.mean():.2%} of labels are equal, {is_reversed.mean():.2%} are not '
        f'though the margin is above 0.25'
    )
    assert np.mean(differences) < limit
    assert equal.mean() > 1 - 2 * limit
    assert is_reversed.mean() <= reversed_limit


@pytest.mark.parametrize('size', [(16, 16), (1, 40), (40, 1), (3, 50)])
@pytest.mark.parametrize('deviation', [0.01, 0.5, 3.0, 100.0])
def test_the_smoothness_kernel_is_exact(size, deviation):
    values = torch.rand(*size, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = _normalised(_smoothness_kernel(deviation), 2.0, values)(values)
    _, matrix = kernels_of_image(np.zeros((1, *size)), (1, deviation), (1, 1, 1))[0]
    expected = 2 * matrix @ values.flatten(0, 1).numpy()
    torch.testing.assert_close(found.flatten(0, 1), torch.tensor(expected), rtol=0, atol=3e-6)


def test_without_the_appearance_kernel_marginals_are_exact():
    for seed in range(4):
        probs, image, _ = scene('noise', 3, seed)
        difference, equal, _ = compare(probs, image, (3.0, 3.0), (0.0, 80.0, 13.0), 10)
        assert difference < 1e-5
        assert equal.all()


def test_a_constant_image_has_nearly_the_exact_marginals():
    probs, image, _ = scene('noise', 3, 0)
    difference, _, _ = compare(probs, torch.full_like(image, 77), (0, 1), (2.0, 3.0, 13.0), 3)
    assert difference < 0.01


@pytest.mark.parametrize('kind', IMAGES)
def test_marginals_are_distributions(kind):
    probs, image, _ = scene(kind, 4, 1)
    marginals = dense_crf(probs, image)
    assert (marginals >= 0).all()
    torch.testing.assert_close(marginals.sum(1), torch.ones_like(marginals[:, 0]))


def test_weights_of_0_and_no_iterations_give_the_probabilities():
    probs, image, _ = scene('regions', 3, 0)
    torch.testing.assert_close(dense_crf(probs, image, (0, 3), (0, 80, 13)), probs)
    torch.testing.assert_close(dense_crf(probs, image, iterations=0), probs)


def test_a_permutation_of_classes_permutes_the_marginals():
    probs, image, _ = scene('regions', 5, 0)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(dense_crf(probs[:, order], image), dense_crf(probs, image)[:, order])


def test_a_batch_gives_the_marginals_of_its_images_one_by_one():
    scenes = [scene(kind, 3, 5) for kind in IMAGES]
    probs, image = (torch.cat([scene[i] for scene in scenes]) for i in range(2))
    one_by_one = torch.cat([dense_crf(p[None], c[None]) for p, c in zip(probs, image, strict=True)])
    assert torch.equal(dense_crf(probs, image), one_by_one)


def test_one_channel_is_the_probability_of_the_second_of_two_classes():
    probs, image, _ = scene('regions', 2, 0)
    found = dense_crf(probs[:, 1:], image)
    assert found.shape == (1, 1, 16, 16)
    torch.testing.assert_close(found, dense_crf(probs, image)[:, 1:])


@pytest.mark.parametrize('n_classes', [2, 3])
def test_removes_noise_inside_of_regions_and_keeps_their_borders(n_classes):
    for seed in range(4):
        probs, image, labels = scene('regions', n_classes, seed, side=48)
        before, after = ((p.argmax(1) == labels).double().mean() for p in (probs, dense_crf(probs, image)))
        print(f'\n{n_classes} classes: accuracy of {before:.3f} before, {after:.3f} after')
        assert before < 0.75
        assert after > 0.97


def test_the_border_follows_the_image_where_smoothing_alone_moves_it():
    image = torch.full((1, 3, 20, 20), 50.0)
    image[..., 9:] = 200
    probs = torch.full((1, 1, 20, 20), 0.2)
    probs[..., 9:] = 0.8
    probs[..., 6:9] = 0.6  # the network is wrong next to the border
    assert torch.equal(dense_crf(probs, image)[0, 0] > 0.5, image[0, 0] > 100)
    assert not torch.equal(dense_crf(probs, image, appearance=(0, 80, 13))[0, 0] > 0.5, image[0, 0] > 100)


@pytest.mark.parametrize('n_classes', [1, 2, 7])
@pytest.mark.parametrize('size', [(1, 1), (1, 9), (9, 1), (12, 13)])
@pytest.mark.parametrize('values', ['constant', 'certain', 'certain and equal'])
def test_degenerate_probabilities_and_images_give_finite_marginals(n_classes, size, values):
    random = torch.Generator().manual_seed(0)
    label = torch.randint(0, max(n_classes, 2), (2, *size), generator=random) * (values == 'certain')
    probs = torch.nn.functional.one_hot(label, max(n_classes, 2)).movedim(-1, 1).float()[:, :n_classes]
    if values == 'constant':
        probs = torch.full_like(probs, 1 / max(n_classes, 2))
    for image in (torch.zeros(2, 3, *size), torch.full((2, 1, *size), 255), torch.rand(2, 3, *size) * 255):
        marginals = dense_crf(probs, image)
        assert marginals.isfinite().all()
        if values != 'certain':
            torch.testing.assert_close(marginals, probs)
        if values != 'constant':
            assert torch.equal(marginals > 0.5, probs > 0.5)


def test_a_probability_of_0_from_a_logit_of_minus_infinity_remains_0():
    probs, image, _ = scene('regions', 3, 0)
    logits = probs.log()
    logits[:, 2] = -math.inf
    marginals = dense_crf(logits.softmax(1), image)
    assert marginals[:, 2].max() < 1e-100
    torch.testing.assert_close(marginals[:, :2], dense_crf(logits[:, :2].softmax(1), image))


@pytest.mark.parametrize('shape', [(0, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (2, 1, 0, 0)])
def test_nothing_gives_nothing(shape):
    image = torch.zeros(shape[0], 3, *shape[2:])
    assert dense_crf(torch.zeros(shape), image).shape == shape


@pytest.mark.parametrize('where', ['probs', 'image'])
def test_nan_stays_in_its_image_and_is_not_hidden(where):
    scenes = [scene('regions', 3, seed) for seed in range(3)]
    probs, image = (torch.cat([scene[i] for scene in scenes]) for i in range(2))
    expected = dense_crf(probs, image)
    {'probs': probs, 'image': image}[where][1, 0, 4, 7] = math.nan
    for settings in ({}, {'smoothness': (0, 1)}, {'appearance': (0, 1, 1)}, {'iterations': 0}):
        marginals = dense_crf(probs, image, **settings)
        assert marginals[1, :, 4, 7].isnan().all()
        assert marginals[[0, 2]].isfinite().all()
    assert torch.equal(dense_crf(probs, image)[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize(
    ('dtype', 'computed', 'tolerance'),
    [
        (torch.float64, torch.float64, 0),
        (torch.float32, torch.float32, 2e-3),
        (torch.float16, torch.float32, 5e-3),
        (torch.bfloat16, torch.float32, 5e-2),
    ],
)
def test_is_computed_in_float32_or_better(dtype, computed, tolerance):
    probs, image, _ = scene('regions', 3, 0)
    expected = dense_crf(probs, image, *SETTINGS[3])
    found = dense_crf(probs.to(dtype), image, *SETTINGS[3])
    assert found.dtype == computed
    assert (found - expected).abs().max() <= tolerance
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert torch.equal(dense_crf(probs.to(dtype), image, *SETTINGS[3]), found)


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int64, torch.float16, torch.float32])
def test_images_of_whole_levels_may_have_any_dtype_and_memory_format(dtype):
    probs, image, _ = scene('regions', 3, 0)
    expected = dense_crf(probs, image)
    assert torch.equal(dense_crf(probs, image.to(dtype)), expected)
    channels_last = [part.contiguous(memory_format=torch.channels_last) for part in (probs, image.to(dtype))]
    assert torch.equal(dense_crf(*channels_last), expected)


@pytest.mark.parametrize('n_channels', [1, 2, 4, 12])
def test_images_may_have_any_number_of_channels(n_channels):
    probs, image, labels = scene('regions', 2, 0, side=24)
    marginals = dense_crf(probs, image[:, :1].expand(-1, n_channels, -1, -1))
    assert (marginals.argmax(1) == labels).double().mean() > 0.97


def test_the_result_has_no_gradient_and_the_arguments_are_unchanged():
    probs, image, _ = scene('regions', 3, 0)
    before = probs.clone(), image.clone()
    assert not dense_crf(probs.requires_grad_(), image).requires_grad
    assert torch.equal(probs, before[0])
    assert torch.equal(image, before[1])
    assert not dense_crf(probs, image, iterations=0).requires_grad


P, X = torch.full((2, 2, 4, 5), 0.5), torch.full((2, 3, 4, 5), 100.0)


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        ({'probs': [0.5]}, TypeError, '`probs` should be a tensor. Found list'),
        ({'probs': (P > 0).long()}, TypeError, '`probs` should be a floating-point tensor. Found torch.int64'),
        ({'probs': P[0]}, ValueError, r'`probs` should be of shape \[N, C, H, W\]. Found \(2, 4, 5\)'),
        ({'probs': P[:, :0]}, ValueError, r'`probs` should be of shape .* Found \(2, 0, 4, 5\)'),
        ({'probs': P * 6}, ValueError, '`probs` should hold probabilities in .* from 3 to 3'),
        ({'probs': -P}, ValueError, '`probs` should hold probabilities in .* from -0.5 to -0.5'),
        ({'probs': P * 0.8}, ValueError, '`probs` should hold probabilities that add up to 1 .* Found 0.8'),
        ({'image': None}, TypeError, '`image` should be a tensor. Found NoneType'),
        ({'image': X[0]}, ValueError, r'`image` should be of shape .*\(2, 2, 4, 5\). Found \(3, 4, 5\)'),
        ({'image': X[:1]}, ValueError, r'`image` should be of shape .* Found \(1, 3, 4, 5\)'),
        ({'image': X[..., :4]}, ValueError, r'`image` should be of shape .* Found \(2, 3, 4, 4\)'),
        ({'image': X[:, :0]}, ValueError, r'`image` should be of shape .* Found \(2, 0, 4, 5\)'),
        ({'image': X.movedim(1, -1)}, ValueError, r'`image` should be of shape .* Found \(2, 4, 5, 3\)'),
        ({'image': -X}, ValueError, '`image` should hold levels from 0 to 255, .* Found -100'),
        ({'image': X * 3}, ValueError, '`image` should hold levels from 0 to 255, .* Found 300'),
        ({'image': X / 255}, ValueError, r'`image` .* Found none above 1. Found 0.39.* Pass `image \* 255`'),
        ({'smoothness': 3}, ValueError, '`smoothness` should be a weight and a standard deviation in pixels. Found 3'),
        ({'smoothness': (3, 3, 3)}, ValueError, r'`smoothness` should be a weight .* Found \(3, 3, 3\)'),
        ({'smoothness': (-1, 3)}, ValueError, r'`smoothness\[0\]` should be in \[0, inf\). Found -1'),
        ({'smoothness': (1, 0)}, ValueError, r'`smoothness\[1\]` should be in \[0.001, inf\). Found 0'),
        ({'appearance': (10, 80)}, ValueError, '`appearance` should be .* in pixels and .* in levels. Found'),
        ({'appearance': (10, '80', 13)}, TypeError, r"`appearance\[1\]` should be a number. Found '80'"),
        ({'appearance': (10, 80, math.nan)}, ValueError, r'`appearance\[2\]` should be in .* Found nan'),
        ({'appearance': (10, math.inf, 13)}, ValueError, r'`appearance\[1\]` should be in .* Found inf'),
        ({'iterations': 2.5}, TypeError, '`iterations` should be an integer. Found 2.5'),
        ({'iterations': -1}, ValueError, '`iterations` should be at least 0. Found -1'),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        dense_crf(**{'probs': P, 'image': X, **arguments})
