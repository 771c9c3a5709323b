import itertools
import math

import numpy as np
import pytest
import torch
from jaccard_scenes import inputs_of
from reference import lovasz as reference

from mmseg_nondecomp.functional._inputs import activate
from mmseg_nondecomp.functional.lovasz.extension import shares_of_bins
from mmseg_nondecomp.functional.lovasz.histogram import (
    MarginBins,
    ProbabilityBins,
    error_histogram,
    loss_of_bins,
    lovasz_losses,
)

BINNINGS = [ProbabilityBins(4), MarginBins(4)]
KINDS = ['labels', 'weights', 'shares', 'several labels']
each_kind = pytest.mark.parametrize('kind', KINDS)
each_binning = pytest.mark.parametrize('binning', BINNINGS, ids=str)
each_scene = pytest.mark.parametrize(('kind', 'binning'), list(itertools.product(KINDS, BINNINGS)), ids=str)
each_bins = pytest.mark.parametrize('bins', [1, 4, 64, 1024, 6000])
each_dtype = pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
per_image_or_not = pytest.mark.parametrize('per_image', [False, True])


def ends_of_bins(binning, errors):
    """Check the bins of ascending errors; return the smallest and largest error in each, infinite in an empty one."""
    place = binning.of(errors)
    assert place.dtype == torch.int32
    assert bool((place.diff() >= 0).all())
    assert bool((place[errors == 0] == 0).all())
    assert place[-1] == binning.number - 1
    errors = errors.double()
    lowest = torch.full((binning.number,), torch.inf).double().scatter_reduce_(0, place.long(), errors, 'amin')
    highest = torch.full((binning.number,), -torch.inf).double().scatter_reduce_(0, place.long(), errors, 'amax')
    return lowest, highest


@each_bins
@each_dtype
def test_cells_of_probabilities_are_no_wider_than_half_a_bin(bins, dtype):
    binning = ProbabilityBins(bins)
    errors = torch.linspace(0, 1, 400_001, dtype=torch.float64)
    errors = torch.cat([errors, errors[1:] ** 4, 1 - errors[1:] ** 4]).sort().values.to(dtype)
    lowest, highest = ends_of_bins(binning, errors)
    assert bool((binning.of(errors[errors > 1e-14]) > 0).all())
    slack = 1e-6 if dtype == torch.float32 else 0
    assert (highest - lowest).max() <= 1 / (2 * bins) + slack


@each_bins
@each_dtype
def test_cells_of_margins_are_as_fine_as_the_logit_is_small(bins, dtype):
    binning = MarginBins(bins)
    errors = torch.linspace(math.asinh(-100), math.asinh(1e8), 400_001, dtype=torch.float64).sinh() / 100 + 1
    errors = torch.cat([torch.zeros(1), errors.clamp(0, 1e6)]).to(dtype)
    lowest, highest = ends_of_bins(binning, errors)
    assert bool((binning.of(errors[errors > 2e-5]) > 0).all())
    assert (binning.of(torch.tensor([1e6, 2e6, 1e30, math.inf], dtype=dtype)) == binning.number - 1).all()
    logit = torch.maximum((lowest - 1).abs(), (highest - 1).abs())
    slack = 1e-6 * (1 + logit) if dtype == torch.float32 else 0
    assert bool((highest - lowest <= 8.2 / bins * (logit + 0.01) + slack).all())


@pytest.mark.parametrize('binning', [ProbabilityBins, MarginBins])
@each_bins
def test_centres_are_in_their_bins(binning, bins):
    binning = binning(bins)
    centres = binning.centres(torch.device('cpu'))
    assert centres.dtype == torch.float64
    assert centres[0].abs() < 1e-30  # the first bin is for errors of 0
    assert (centres.diff() > 0).all()
    assert binning.of(centres)[1:].tolist() == list(range(1, binning.number))


@each_dtype
def test_errors_beyond_the_range_are_in_the_first_or_the_last_cell(dtype):
    step = torch.finfo(dtype).eps
    binning = ProbabilityBins(64)
    assert binning.of(torch.tensor([-step, 1 + step], dtype=dtype)).tolist() == [0, binning.number - 1]
    assert MarginBins(64).of(torch.tensor([-step, -1.0, -math.inf], dtype=dtype)).tolist() == [0, 0, 0]
    inputs = inputs_of(torch.tensor([[[1 + step, -step]]], dtype=dtype), [[1, 0]], torch.ones(1, 2).int())
    assert error_histogram(inputs, BINNINGS[0], False).mass[0, 0, :, -1].tolist() == [1, 1]


def scene(kind, n_images=3, n_classes=3, n_pixels=40, seed=0, binning=BINNINGS[0]):
    """Return inputs. Some pixels are of no class, some are ignored; some errors of a hinge are 0."""
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.random((n_images, n_classes, n_pixels)))
    if kind == 'shares':
        shares = rng.dirichlet(np.full(n_classes, 0.3), (n_images, n_pixels))
        shares[:, ::3] = np.eye(n_classes)[shares[:, ::3].argmax(2)]
        target = shares.swapaxes(1, 2)
    elif kind == 'several labels':
        target = rng.integers(0, 3, (n_images, n_classes, n_pixels)) / 2
    else:
        target = rng.integers(0, n_classes + 1, (n_images, n_pixels))
    mass = rng.random((n_images, n_pixels)) < 0.8
    mass = mass * rng.exponential(size=mass.shape) if kind == 'weights' else mass.astype(np.int32)
    return inputs_of(scores * 8 - 3 if isinstance(binning, MarginBins) else scores, target, mass)


def part_of(inputs, images=slice(None), pixels=slice(None)):
    scores, target, valid, weight, _ = inputs
    valid = valid[images, pixels]
    weight = None if weight is None else weight[images, pixels]
    return type(inputs)(scores[images, :, pixels], target[images, ..., pixels], valid, weight, valid.shape)


def gradient_of(histogram, upstream, scores):
    return torch.autograd.grad((histogram.errors * upstream).sum(), scores)[0]


@each_scene
@per_image_or_not
@pytest.mark.parametrize(('n_pixels', 'bins'), [(5, 4), (40, 4), (40, 6000)])
def test_counts_and_sums_are_those_of_a_loop_and_backward_that_of_the_dense_histogram(
    kind, binning, per_image, n_pixels, bins
):
    binning = type(binning)(bins)
    inputs = scene(kind, n_pixels=n_pixels, binning=binning)
    scores, share = inputs.scores.requires_grad_(), inputs.one_hot().double()
    counts = torch.zeros(3 if per_image else 1, 3, 2, binning.number, dtype=torch.float64)
    sums = torch.zeros_like(counts)
    for n, c, i in np.ndindex(*scores.shape):
        score, belongs = scores[n, c, i].item(), share[n, c, i].item()
        for role, error, amount in ((0, score, 1 - belongs), (1, binning.top - score, belongs)):
            error, amount = max(error, 0.0), amount * float(inputs.mass[n, i])
            if amount:
                place = n if per_image else 0, c, role, binning.of(torch.tensor(error, dtype=scores.dtype)).item()
                counts[place] += amount
                sums[place] += amount * error
    found = error_histogram(inputs, binning, per_image)
    assert not found.mass.requires_grad
    torch.testing.assert_close(found.mass.double(), counts, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(found.errors.detach(), sums, rtol=1e-13, atol=1e-15)
    upstream = torch.randn(counts.shape, generator=torch.Generator().manual_seed(0)).double()
    loss = 0
    for role, error, amount in ((0, scores, 1 - share), (1, binning.top - scores, share)):
        error = error.clamp(min=0)
        at = upstream[:, :, role].expand(len(scores), -1, -1).gather(2, binning.of(error.detach()).long())
        loss = loss + (error * at * amount * inputs.mass.unsqueeze(1)).sum()
    expected = torch.autograd.grad(loss, scores)[0]
    torch.testing.assert_close(gradient_of(found, upstream, scores), expected, rtol=1e-12, atol=1e-14)


@each_scene
@pytest.mark.parametrize('elements', [1, 40])
@pytest.mark.parametrize('shape', [(2, 3, 20), (20, 3, 3), (1, 3, 20)], ids=str)
@per_image_or_not
def test_the_size_of_blocks_does_not_matter(kind, binning, elements, shape, per_image, monkeypatch):
    inputs = scene(kind, *shape, binning=binning)
    inputs.scores.requires_grad_()
    upstream = torch.rand(1, 3, 2, binning.number, generator=torch.Generator().manual_seed(0))

    def run():
        found = error_histogram(inputs, binning, per_image)
        return *found, gradient_of(found, upstream, inputs.scores)

    expected = run()
    monkeypatch.setattr('mmseg_nondecomp.functional.lovasz.histogram.BLOCK', elements)
    for part, other in zip(run(), expected, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-14, atol=0)


@each_kind
@pytest.mark.parametrize(
    ('binning', 'activation'),
    [(ProbabilityBins(64), 'softmax'), (ProbabilityBins(64), 'sigmoid'), (MarginBins(64), 'margin')],
)
@pytest.mark.parametrize('elements', [40, 1 << 17])
def test_an_activation_in_blocks_is_the_activation_of_all(kind, binning, activation, elements, monkeypatch):
    monkeypatch.setattr('mmseg_nondecomp.functional.lovasz.histogram.BLOCK', elements)
    inputs = scene(kind)
    logits = (8 * inputs.scores - 4).requires_grad_()
    found = error_histogram(inputs._replace(scores=logits), binning, False, activation)
    expected = error_histogram(inputs._replace(scores=activate(logits, activation)), binning, False)
    assert torch.equal(found.mass, expected.mass)
    torch.testing.assert_close(found.errors, expected.errors, rtol=1e-14, atol=0)
    upstream = torch.rand(1, 3, 2, binning.number, generator=torch.Generator().manual_seed(0)).double()
    gradients = [gradient_of(histogram, upstream, logits) for histogram in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)


@each_scene
def test_histograms_of_parts_add_up_to_that_of_the_whole_in_any_order(kind, binning):
    inputs = scene(kind, n_pixels=300, binning=binning)
    whole, images = (error_histogram(inputs, binning, per_image) for per_image in (False, True))
    halves = [error_histogram(part_of(inputs, pixels=part), binning, False) for part in (slice(0, 17), slice(17, None))]
    for name in ('mass', 'errors'):
        total = getattr(whole, name).double()
        for parts in (getattr(images, name).sum(0, keepdim=True), sum(getattr(half, name) for half in halves)):
            torch.testing.assert_close(parts.double(), total, rtol=1e-13, atol=1e-15)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    for per_image, found in ((False, whole.mass), (True, images.mass)):
        permuted = error_histogram(part_of(inputs, pixels=order), binning, per_image).mass
        torch.testing.assert_close(permuted, found, rtol=1e-13, atol=1e-15)
        if kind == 'labels':
            assert found.dtype == torch.int32
            assert torch.equal(permuted, found)
            assert torch.equal(shares_of_bins(permuted), shares_of_bins(found))


@pytest.mark.parametrize('kind', ['labels', 'shares'])
def test_infinite_margins_have_cells_of_their_own(kind):
    scores = torch.tensor([[[math.inf, -math.inf, math.inf, -math.inf]]])
    target = torch.tensor([[0, 1, 1, 0]]) if kind == 'labels' else torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])
    found = error_histogram(inputs_of(scores, target, torch.ones(1, 4).int()), BINNINGS[1], False)
    assert found.mass[0, 0].nonzero().tolist() == [[0, 0], [0, 12], [1, 0], [1, 12]]
    assert found.errors[0, 0, :, 0].tolist() == [0, 0]
    assert found.errors[0, 0, :, -1].tolist() == [math.inf, math.inf]


BINS = 64
WAYS = {
    'sorted': (ProbabilityBins, None),
    'bins of probabilities': (ProbabilityBins, BINS),
    'sorted margins': (MarginBins, None),
    'bins of margins': (MarginBins, BINS),
}
each_way = pytest.mark.parametrize(('binning', 'bins'), WAYS.values(), ids=WAYS)
TARGETS = ['labels', 'weights', 'several labels']
each_target = pytest.mark.parametrize('kind', TARGETS)
each_set = pytest.mark.parametrize(('kind', 'per_image'), list(itertools.product(TARGETS, [False, True])))


def sets_of(kind, seed=0, top=1.0):
    """Return inputs of 3 images and 4 classes; the last image has none, the first no foreground of class 3."""
    rng = np.random.default_rng(seed)
    scores = rng.random((3, 4, 60)) if top == 1 else rng.normal(1, 3, (3, 4, 60))
    if kind == 'several labels':
        target = rng.integers(0, 5, (3, 4, 60)) / 4
        target[0, 3] = 0
    else:
        target = rng.integers(0, 5, (3, 60))  # 4 is none
        target[0] %= 3
    mass = rng.exponential(size=(3, 60)) if kind == 'weights' else np.ones((3, 60), np.int32)
    mass[2] = 0
    mass[1, :7] = 0
    return inputs_of(scores, target, mass)


def losses_by_levels(inputs, top, per_image):
    """Compute the loss of each class in each set from the definition, with soft labels in proportion."""
    sets = [[n] for n in range(3)] if per_image else [[0, 1, 2]]
    losses = np.zeros((len(sets), 4))
    for (row, images), c in ((each, c) for each in enumerate(sets) for c in range(4)):
        parts = inputs.scores[:, c], inputs.one_hot().double()[:, c], inputs.mass
        s, y, w = (part[images].flatten().numpy() for part in parts)
        errors, masses = np.maximum(np.concatenate([top - s, s]), 0), np.concatenate([w * y, w * (1 - y)])
        losses[row, c] = reference.lovasz_extension_by_levels(errors, np.arange(2 * s.size) < s.size, masses)
    return losses


@each_set
@each_way
def test_losses_are_those_of_the_definition_or_below_by_the_width_of_a_bin(kind, per_image, binning, bins):
    for seed in range(3):
        inputs = sets_of(kind, seed, binning.top)
        expected = losses_by_levels(inputs, binning.top, per_image)
        found, _ = lovasz_losses(inputs, binning, bins, per_image)
        if bins is None:
            np.testing.assert_allclose(found.losses, expected, rtol=1e-12, atol=1e-15)
            continue
        below = expected - found.losses.numpy()
        assert below.min() >= -1e-12
        assert (below <= (1 / (2 * BINS) if binning.top == 1 else 10 / BINS * (1 + expected))).all()


@each_set
@each_way
def test_a_class_is_present_with_any_foreground_and_a_set_non_empty_with_any_pixel(kind, per_image, binning, bins):
    inputs = sets_of(kind)
    present = [[True, True, True, False], [True] * 4, [False] * 4] if per_image else [[True] * 4]
    non_empty = [True, True, False] if per_image else [True]
    found, _ = lovasz_losses(inputs, binning, bins, per_image)
    assert found.present.tolist() == present
    assert found.non_empty.tolist() == non_empty
    assert found.losses.shape == found.present.shape
    if not inputs.is_soft:
        found, _ = lovasz_losses(inputs._replace(target=torch.full((3, 60), 4)), binning, bins, per_image)
        assert not found.present.any()
        assert found.non_empty.tolist() == non_empty
    for empty in (part_of(inputs, images=slice(0, 0)), part_of(inputs, pixels=slice(0, 0))):
        found, _ = lovasz_losses(empty, binning, bins, False)
        assert found.losses.eq(0).all()
        assert not found.present.any()
        assert not found.non_empty.any()


@each_set
@pytest.mark.parametrize('binning', [ProbabilityBins, MarginBins])
def test_gradcheck_of_sorted_losses(kind, per_image, binning):
    inputs = part_of(sets_of(kind, top=binning.top), pixels=slice(5, 9))
    assert torch.autograd.gradcheck(
        lambda scores: lovasz_losses(inputs._replace(scores=scores), binning, None, per_image)[0].losses,
        inputs.scores.clone().requires_grad_(),
    )


@each_target
def test_the_sum_of_histograms_has_the_loss_of_all_images_and_not_the_mean_of_their_losses(kind):
    inputs, binning = sets_of(kind), ProbabilityBins(1024)
    parts = [error_histogram(part_of(inputs, images=slice(n, n + 1)), binning, False) for n in range(3)]
    found = loss_of_bins(sum(part.errors for part in parts), shares_of_bins(sum(part.mass for part in parts)))
    losses, mass = lovasz_losses(inputs, ProbabilityBins, 1024, False)
    torch.testing.assert_close(found, losses.losses, rtol=1e-12, atol=0)
    torch.testing.assert_close(mass, sum(part.mass for part in parts))
    np.testing.assert_allclose(found, losses_by_levels(inputs, 1.0, False), atol=1 / 2048)
    of_images = losses_by_levels(inputs, 1.0, True)[:2].mean(0)
    assert np.abs(found.numpy() - of_images).max() > 0.02


@pytest.mark.parametrize('binning', [ProbabilityBins, MarginBins])
def test_errors_of_the_past_are_at_the_centres_of_their_bins(binning):
    inputs, before = sets_of('labels', 0, binning.top), sets_of('labels', 1, binning.top)
    past, expected = (error_histogram(each, binning(BINS), False) for each in (before, inputs))
    found, mass = lovasz_losses(inputs, binning, BINS, False, past=lambda like: past.mass.to(like))
    assert torch.equal(mass, expected.mass)
    errors = expected.errors + past.mass * binning(BINS).centres(torch.device('cpu'))
    shares = shares_of_bins(mass + past.mass)
    torch.testing.assert_close(found.losses, loss_of_bins(errors, shares), rtol=1e-12, atol=0)
