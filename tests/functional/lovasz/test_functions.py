"""Theorems of the Lovász losses alone; those of all Jaccard losses are in `functional/test_jaccard_losses`."""

import numpy as np
import pytest
import torch
from jaccard_scenes import LOGITS, one_hot, scene
from reference import lovasz as reference

from mmseg_nondecomp.functional import lovasz_hinge, lovasz_softmax
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins

each_family = pytest.mark.parametrize('family', LOGITS)
exact_and_binned = pytest.mark.parametrize('bins', [None, 1024])


def blocks(n_classes, size):
    """Return labels of one image in which classes form connected regions, as in photographs."""
    labels = torch.randint(n_classes, (1, size // 8, size // 8), generator=torch.Generator().manual_seed(0))
    return labels.repeat_interleave(8, 1).repeat_interleave(8, 2)


@each_family
@pytest.mark.parametrize('bins', [4, 64, 1024])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_binned_is_at_most_half_a_bin_below_exact(family, bins, dtype):
    for n_classes in (1, 2, 5):
        logits, target = scene(n_classes, family, (3, 400), dtype=dtype)
        probs = logits.softmax(1) if n_classes > 1 else logits.sigmoid()
        for settings in ({}, {'classes': 'all'}, {'per_image': True}, {'ignore_index': 0}):
            exact, binned = (lovasz_softmax(probs, target, **settings, bins=b).item() for b in (None, bins))
            assert -1e-6 <= exact - binned <= 1 / (2 * bins)


@pytest.mark.parametrize('bins', [4, 64, 1024])
@pytest.mark.parametrize('high', ['foreground', 'background', 'one', 'half'])
@pytest.mark.parametrize('share', [0, 1 / 100, 1 / 2, 1])
def test_binned_is_within_half_a_bin_where_errors_lie_at_both_edges_of_a_cell(bins, high, share):
    rng = np.random.default_rng(0)
    target = rng.permutation(100) < 100 * share
    is_high = {
        'foreground': target,
        'background': ~target,
        'one': np.arange(100) == 50,
        'half': np.arange(100) % 2 == 0,
    }[high]
    below = []
    for place in (1, bins, 3 * bins // 2, 3 * bins):
        low_edge, high_edge = (
            np.sin(np.arcsin((np.array([place - 1, place]) / 1.5 / bins - 1) / 2**0.5) + np.pi / 4) ** 2
        )
        errors = np.where(is_high, high_edge - 1e-10, low_edge + 1e-10)
        assert (ProbabilityBins(bins).of(torch.tensor(errors)) == place).all()
        probs = torch.tensor(np.where(target, 1 - errors, errors)).view(1, 1, -1)
        exact, binned = (
            lovasz_softmax(probs, torch.tensor(target)[None].long(), 'all', bins=b).item() for b in (None, bins)
        )
        below.append(exact - binned)
    assert min(below) >= -1e-12
    assert max(below) <= 1 / (2 * bins)
    if (share, high) == (0, 'one'):
        assert max(below) > 0.45 / bins  # no narrower statement is true


@pytest.mark.parametrize('bins', [1, 7, 1024])
def test_nothing_is_lost_where_errors_lie_on_a_grid_of_bins(bins):
    generator = torch.Generator().manual_seed(0)
    errors = (torch.randint(bins, (2, 1, 500), generator=generator).double() + 0.5) / bins
    target = torch.randint(2, (2, 500), generator=generator)
    probs = torch.where(target.unsqueeze(1) == 1, 1 - errors, errors)
    exact = lovasz_softmax(probs, target).item()
    assert lovasz_softmax(probs, target, bins=bins).item() == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize('family', ['random', 'confident', 'collapsed'])
@pytest.mark.parametrize(('n_classes', 'size'), [(2, 96), (19, 64), (150, 64)])
def test_the_binned_gradient_is_within_two_thousandths(family, n_classes, size):
    target = blocks(n_classes, size)
    x = torch.randn(1, n_classes, size, size, generator=torch.Generator().manual_seed(1))
    logits = LOGITS[family](x, one_hot(target, n_classes)).requires_grad_()
    probs = logits.softmax(1)
    exact, binned = (
        torch.autograd.grad(lovasz_softmax(probs, target, bins=bins), logits, retain_graph=True)[0]
        for bins in (None, 1024)
    )
    assert (binned - exact).norm() <= 2e-3 * exact.norm()


@pytest.mark.parametrize('per_image', [False, True])
@pytest.mark.parametrize('bins', [None, 4, 1024])
def test_a_soft_label_counts_in_proportion_as_a_pixel_of_each_class(per_image, bins):
    rng = np.random.default_rng(0)
    probs = torch.tensor(rng.dirichlet(np.ones(3), (2, 30))).movedim(2, 1)
    shares = torch.tensor(rng.dirichlet(np.full(3, 0.5), (2, 30))).movedim(2, 1)
    shares[1, 2] = 0  # present in one image only
    shares[1] /= shares[1].sum(0)
    found = lovasz_softmax(probs, shares, per_image=per_image, bins=bins).item()
    copies, labels = probs.repeat(1, 1, 3), torch.arange(3).repeat_interleave(30).expand(2, -1)
    expected = float(reference.lovasz_softmax(copies, labels, per_image=per_image, mass=shares.flatten(1)))
    assert -1e-12 <= expected - found <= (1 / (2 * bins) if bins else 1e-12)


def test_slopes_of_many_soft_pixels_do_not_cancel():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(1, 400_000, generator=generator) < 0.1).long()
    shares = one_hot(target, 2) * 0.9 + 0.05
    probs = torch.rand(1, 2, 400_000, generator=generator)
    single, double = (
        torch.autograd.grad(lovasz_softmax(p, shares.to(p)), p)[0].double()
        for p in (probs.clone().requires_grad_(), probs.double().requires_grad_())
    )
    assert (single - double).abs().max() < 1e-6 * double.abs().max()


@exact_and_binned
@pytest.mark.parametrize('rounding', [6e-8, 1e-6])
def test_probabilities_may_be_outside_of_their_range_by_a_rounding_and_a_zero_may_be_negative(bins, rounding):
    target = (torch.arange(100) < 3).long()[None]
    for probs in (1 + rounding, -rounding):
        probs = torch.full((1, 1, 100), probs, dtype=torch.float64)
        found = lovasz_softmax(probs, target, bins=bins).item()
        assert found == pytest.approx(lovasz_softmax(probs.clamp(0, 1), target).item(), abs=1e-5)
    probs, target = torch.tensor([[[0.0, 0.5, 0.25]]]), torch.tensor([[0, 1, 1]])
    signed = probs.copysign(torch.tensor([-1.0, 1, 1]))
    assert lovasz_softmax(signed, target, bins=bins) == lovasz_softmax(probs, target, bins=bins)


def test_eight_million_pixels():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(1, 2, 2048, 4096, generator=generator)
    torch.sub(1, probs[:, 0], out=probs[:, 1])
    target = (torch.rand(1, 2048, 4096, generator=generator) * 0.8 + 0.1 > probs[:, 0]).long()
    found = lovasz_softmax(probs, target, bins=1024).item()

    foreground = target.flatten().numpy()
    errors = np.abs(foreground - probs[:, 1].flatten().numpy().astype(np.float64))  # those of both classes
    order = np.sort(errors.view(np.int64) & -2 | foreground)[::-1]  # the last bit of a number is its class
    errors, foreground = order.view(np.float64), order & 1 == 1
    losses = []
    for is_class in (foreground, ~foreground):
        hits, misses = np.cumsum(is_class), np.cumsum(~is_class)
        jaccard = 1 - (hits[-1] - hits) / (hits[-1] + misses)
        losses.append(errors @ np.diff(jaccard, prepend=0))
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


MARGINS = {
    'random': lambda rng, shape: rng.normal(size=shape),
    'large': lambda rng, shape: 100 * rng.normal(size=shape),
    'tied': lambda rng, shape: rng.integers(-2, 3, shape) / 2,
    'equal': lambda rng, shape: np.full(shape, 0.3),
}
LABELS = {
    'some': lambda rng, shape: rng.random(shape) < 0.4,
    'none': lambda rng, shape: np.zeros(shape, bool),
    'all': lambda rng, shape: np.ones(shape, bool),
}
each_margins = pytest.mark.parametrize('family', MARGINS)
each_labels = pytest.mark.parametrize('labels', LABELS)


def hinge_scene(family='random', labels='some', shape=(3, 40), seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(MARGINS[family](rng, shape)), torch.tensor(LABELS[labels](rng, shape)).long()


@each_margins
@each_labels
@pytest.mark.parametrize('ignore_index', [None, 255, -1])
def test_the_hinge_is_that_of_the_definition(family, labels, ignore_index):
    logits, target = hinge_scene(family, labels)
    if labels == 'none' and ignore_index is None:  # a mask of 0 and 255 alone is in doubt
        ignore_index = 255
    ignored = 255 if ignore_index is None else ignore_index
    target[:, ::4], kept = ignored, torch.arange(40) % 4 > 0
    of_images = [float(reference.lovasz_hinge(x, y)) for x, y in zip(logits[:, kept], target[:, kept], strict=True)]
    of_all = float(reference.lovasz_hinge(logits[:, kept].flatten(), target[:, kept].flatten()))
    for args in ((logits, target), (logits.flatten(), target.flatten())):
        assert lovasz_hinge(*args, ignore_index=ignore_index).item() == pytest.approx(of_all, rel=1e-12)
    found = lovasz_hinge(logits, target, True, ignore_index).item()
    assert found == pytest.approx(np.mean(of_images), rel=1e-12)
    target[1] = ignored  # an image with nothing valid is not averaged
    found = lovasz_hinge(logits, target, True, ignore_index).item()
    assert found == pytest.approx(np.mean(of_images[::2]), rel=1e-12)


@pytest.mark.parametrize('label', [0, 1])
@pytest.mark.parametrize('logit', [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
def test_one_pixel_has_the_ordinary_hinge_loss(label, logit):
    x = torch.tensor([[logit]], requires_grad=True)
    loss = lovasz_hinge(x, torch.tensor([[label]]))
    y = 2 * label - 1
    assert loss.item() == max(1 - y * logit, 0)
    if y * logit != 1:
        loss.backward()
        assert x.grad.item() == (-y if y * logit < 1 else 0)


@each_labels
@pytest.mark.parametrize('shape', [(30,), (2, 30), (2, 5, 6), (2, 1, 5, 6)], ids=str)
@pytest.mark.parametrize('per_image', [False, True])
def test_the_hinge_is_one_at_logits_of_zero_and_zero_where_all_margins_are_at_least_one(labels, shape, per_image):
    logits, target = hinge_scene(labels=labels, shape=shape)
    assert lovasz_hinge(torch.zeros(shape), target, per_image).item() == pytest.approx(1, rel=1e-6)
    logits = ((1 + logits.abs()) * (2 * target - 1)).requires_grad_()
    loss = lovasz_hinge(logits, target, per_image)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.eq(0).all()
    assert lovasz_hinge(logits * 0.9 / logits.abs().min(), target, per_image) > 0


@each_margins
@each_labels
def test_the_hinge_is_convex_in_the_logits_and_never_below_the_jaccard_loss_of_the_decisions(family, labels):
    for seed in range(10):
        x, target = hinge_scene(family, labels, (40,), seed)
        wrong = (x > 0) != (target == 1)
        assert lovasz_hinge(x, target).item() >= float(reference.jaccard_loss(wrong, target == 1)) - 1e-12
        y = hinge_scene('large', labels, (40,), seed + 100)[0]
        t = np.random.default_rng(seed).random()
        ends = t * lovasz_hinge(x, target) + (1 - t) * lovasz_hinge(y, target)
        assert lovasz_hinge(t * x + (1 - t) * y, target) <= ends * (1 + 1e-12)


@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.int32, torch.float32], ids=str)
def test_labels_of_a_hinge_may_be_of_any_dtype(dtype):
    logits, target = hinge_scene()
    assert lovasz_hinge(logits, target.to(dtype)) == lovasz_hinge(logits, target)


L, T = torch.zeros(2, 5), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ('logits', 'target', 'error', 'message'),
    [
        (L.long(), T, TypeError, '`logits`.*int64'),
        (L, T[0], ValueError, r'`target`.*\(2,\).*\(2, 5\).*\(5,\)'),
        (L[0, 0], T[0, 0], ValueError, '`logits`'),
        (L, T + 0.5, ValueError, '`target` should be 0 or 1. Found 0.5'),
    ],
)
def test_arguments_that_do_not_fit_are_named(logits, target, error, message):
    with pytest.raises(error, match=message):
        lovasz_hinge(logits, target)
    with pytest.raises(ValueError, match=r'`bins`.*0'):
        lovasz_softmax(torch.full((2, 3, 5), 1 / 3), T, bins=0)
