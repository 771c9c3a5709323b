"""The oracles of the Jaccard losses agree, take known values and have the properties that define them."""

import itertools

import numpy as np
import pytest

from reference import lovasz as reference

FAMILIES = {
    'uniform': lambda rng, n: rng.random(n),
    'tied': lambda rng, n: rng.integers(0, 3, n) / 4,
    'all equal': lambda rng, n: np.full(n, 0.7),
    'half zeros': lambda rng, n: rng.random(n) * (rng.permutation(n) % 2),
    'twenty decades': lambda rng, n: 10 ** rng.uniform(-10, 10, n),
    'hard': lambda rng, n: rng.integers(0, 2, n).astype(float),
    'all zero': lambda rng, n: np.zeros(n),
}
FOREGROUNDS = {
    'none': lambda rng, n: np.zeros(n, bool),
    'some': lambda rng, n: rng.permutation(n) < (n + 1) // 2,
    'all': lambda rng, n: np.ones(n, bool),
}
MASSES = {
    'ones': lambda rng, n: None,
    'positive': lambda rng, n: rng.exponential(size=n),
    'some zero': lambda rng, n: rng.integers(0, 3, n),
}

each_family = pytest.mark.parametrize('family', FAMILIES)
each_foreground = pytest.mark.parametrize('foreground', FOREGROUNDS)
each_mass = pytest.mark.parametrize('mass', MASSES)
each_lam = pytest.mark.parametrize('lam', [0.1, 1, 10, 1000])


def subsets(n):
    return (np.array(s) for s in itertools.product([False, True], repeat=n))


def scene(rng):
    """Return probabilities [3, 4, 7] and labels [3, 7]."""
    return rng.dirichlet(np.ones(4), size=(3, 7)).swapaxes(1, 2), rng.integers(0, 4, (3, 7))


def one_hot(labels, num_classes):
    return np.eye(num_classes)[labels].swapaxes(1, 2)


@pytest.mark.parametrize(
    ('mispredicted', 'foreground', 'mass', 'expected'),
    [
        pytest.param([0, 0, 0], [1, 1, 0], None, 0, id='nothing wrong'),
        pytest.param([1, 0, 0], [1, 1, 0], None, 1 / 2, id='false negative'),
        pytest.param([0, 0, 1], [1, 1, 0], None, 1 / 3, id='false positive'),
        pytest.param([1, 0, 1], [1, 1, 0], None, 2 / 3, id='both'),
        pytest.param([0, 0, 1], [0, 0, 0], None, 1, id='no foreground'),
        pytest.param([0, 0, 0], [0, 0, 0], None, 0, id='0/0'),
        pytest.param([], [], None, 0, id='no pixel'),
        pytest.param([1, 0, 1], [1, 1, 0], [2, 1, 5], 7 / 8, id='masses'),
        pytest.param([0, 0, 1], [0, 0, 0], [1, 1, 0], 0, id='only what has no mass'),
    ],
)
def test_known_jaccard_loss(mispredicted, foreground, mass, expected):
    np.testing.assert_allclose(reference.jaccard_loss(mispredicted, foreground, mass), expected, rtol=1e-15)


@each_foreground
@each_mass
def test_jaccard_loss_is_monotone_and_submodular(foreground, mass):
    rng = np.random.default_rng(0)
    for _ in range(100):
        P = rng.integers(1, 12)
        delta, w = FOREGROUNDS[foreground](rng, P), MASSES[mass](rng, P)
        A, B = rng.integers(0, 2, (2, P)).astype(bool)
        loss = [reference.jaccard_loss(M, delta, w) for M in (A & B, A, B, A | B)]
        assert loss[0] <= loss[1] <= loss[3]
        assert loss[1] + loss[2] >= loss[3] + loss[0] - 1e-17


@pytest.mark.parametrize(
    ('errors', 'foreground', 'mass', 'expected', 'gradient'),
    [
        pytest.param([0.9, 0.2, 0.4], [1, 1, 0], None, 7 / 12, [1 / 2, 1 / 3, 1 / 6], id='fg, bg, fg'),
        pytest.param([0.9, 0.2, 0.4], [1, 1, 0], [2, 1, 1], 41 / 60, [2 / 3, 1 / 4, 1 / 12], id='masses'),
        pytest.param([0.3, 0.8], [0, 0], None, 0.8, [0, 1], id='no foreground: the largest error'),
        pytest.param([0.3, 0.8], [1, 1], None, 0.55, [1 / 2, 1 / 2], id='no background: the mean error'),
        pytest.param([0.3, 0.8], [1, 0], None, 0.55, [1 / 2, 1 / 2], id='background first'),
        pytest.param([0.8, 0.3], [1, 0], None, 0.8, [1, 0], id='foreground first'),
        pytest.param([0.3, 0.3], [1, 1], None, 0.3, [1 / 2, 1 / 2], id='a tie without an edge'),
        pytest.param([0.3, 0.3], [1, 0], None, 0.3, None, id='a tie on an edge'),
        pytest.param([7.0], [0], None, 7, [1], id='one pixel'),
        pytest.param([], [], None, 0, [], id='no pixel'),
    ],
)
def test_known_extension(errors, foreground, mass, expected, gradient):
    value, found = reference.lovasz_extension_by_orderings(errors, foreground, mass)
    np.testing.assert_allclose(value, expected, rtol=1e-15)
    np.testing.assert_allclose(reference.lovasz_extension_by_levels(errors, foreground, mass), expected, rtol=1e-15)
    if gradient is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, gradient, rtol=0, atol=1e-15)


@each_family
@each_foreground
@each_mass
def test_orderings_and_levels_agree(family, foreground, mass):
    rng = np.random.default_rng(0)
    for P in (1, 2, 3, 6, 7):
        errors, delta, w = (
            make[name](rng, P) for make, name in ((FAMILIES, family), (FOREGROUNDS, foreground), (MASSES, mass))
        )
        value, gradient = reference.lovasz_extension_by_orderings(errors, delta, w)
        np.testing.assert_allclose(reference.lovasz_extension_by_levels(errors, delta, w), value, rtol=1e-16)
        if gradient is not None:
            np.testing.assert_allclose(gradient @ errors, value, rtol=1e-16)
            assert (gradient >= 0).all()


def test_gradient_is_the_derivative_of_the_value():
    rng, step = np.random.default_rng(0), 1e-6
    for _ in range(10):
        errors, delta, mass = rng.permutation(6) + 1.0, rng.random(6) < 0.5, rng.random(6)
        _, gradient = reference.lovasz_extension_by_orderings(errors, delta, mass)
        for i, direction in enumerate(step * np.eye(6)):
            after, before = (
                reference.lovasz_extension_by_levels(errors + d, delta, mass) for d in (direction, -direction)
            )
            assert (after - before) / (2 * step) == pytest.approx(float(gradient[i]), abs=1e-9)


@each_foreground
@each_mass
def test_extension_equals_the_set_function_on_sets(foreground, mass):
    rng = np.random.default_rng(0)
    delta, w = FOREGROUNDS[foreground](rng, 5), MASSES[mass](rng, 5)
    for M in subsets(5):
        expected = reference.jaccard_loss(M, delta, w)
        assert reference.lovasz_extension_by_levels(M, delta, w) == expected
        assert reference.lovasz_extension_by_orderings(M, delta, w)[0] == pytest.approx(expected, abs=1e-17)


@each_family
@each_mass
def test_extension_is_convex_monotone_and_homogeneous(family, mass):
    rng = np.random.default_rng(0)
    for P in (2, 5, 40):
        delta, w = rng.random(P) < 0.4, MASSES[mass](rng, P)

        def extension(errors, delta=delta, w=w):
            return reference.lovasz_extension_by_levels(errors, delta, w)

        start, end = FAMILIES[family](rng, P), rng.random(P)
        largest = max(start.max(), 1)
        for t in np.linspace(0, 1, 9)[1:-1]:
            chord = (1 - t) * extension(start) + t * extension(end)
            assert extension((1 - t) * start + t * end) <= chord + 1e-15 * largest
        assert extension(start) <= extension(start + end) + 1e-18 * largest
        np.testing.assert_allclose(extension(8 * start), 8 * extension(start), rtol=1e-17)
        assert extension(start) <= start.max()


@pytest.mark.parametrize('errors', [[0.5, -0.1], [0.5, np.nan]], ids=str)
def test_errors_that_are_not_errors_are_refused(errors):
    for extension in (reference.lovasz_extension_by_levels, reference.lovasz_extension_by_orderings):
        with pytest.raises(ValueError, match='non-negative'):
            extension(errors, [True, False])


@pytest.mark.parametrize(
    ('logits', 'target', 'expected'),
    [
        pytest.param([0.5, -1, -2, 0.5], [1, 1, 0, 0], 17 / 12, id='two classes'),
        pytest.param([0.25], [1], 0.75, id='one pixel: the hinge loss'),
        pytest.param([0.25], [0], 1.25, id='one pixel of the background'),
        pytest.param([1, 3, -1, -5], [1, 1, 0, 0], 0, id='all margins met'),
        pytest.param([0.5, -0.5, -3], [0, 0, 0], 1.5, id='no foreground'),
    ],
)
def test_known_hinge(logits, target, expected):
    np.testing.assert_allclose(reference.lovasz_hinge(logits, target), expected, rtol=1e-15)
    with pytest.raises(ValueError, match='0 or 1'):
        reference.lovasz_hinge(logits, [-1] * len(logits))


# The errors of class 0 are those of 'fg, bg, fg' above; those of class 1 are 0.9 and 0 in the background and 0.4 in the
# foreground; class 2 is absent, and wrong by 0.2 at most.
PROBS = np.array([[[0.1, 0.8, 0.4], [0.9, 0.0, 0.6], [0.0, 0.2, 0.0]]])
TARGET = np.array([[0, 0, 1]])
LOVASZ = [7 / 12, 0.5 * 0.9 + 0.5 * 0.4, 0.2]
SOFT_IOU = [1 - 0.9 / 2.4, 1 - 0.6 / 1.9, 1]
LOSSES = {reference.lovasz_softmax: LOVASZ, reference.soft_iou: SOFT_IOU}

each_loss = pytest.mark.parametrize('loss', LOSSES)
each_known_loss = pytest.mark.parametrize(('loss', 'of_class'), LOSSES.items())


@each_known_loss
def test_known_losses_of_classes_and_their_weighted_means(loss, of_class):
    for c in range(3):
        np.testing.assert_allclose(loss(PROBS, TARGET, classes=[c]), of_class[c], rtol=1e-15)
    np.testing.assert_allclose(loss(PROBS, TARGET), np.mean(of_class[:2]), rtol=1e-15)
    np.testing.assert_allclose(loss(PROBS, TARGET, classes='all'), np.mean(of_class), rtol=1e-15)
    np.testing.assert_allclose(loss(PROBS, TARGET, classes=[2, 0]), (of_class[2] + of_class[0]) / 2, rtol=1e-15)
    weight = [3, 1, 4]
    expected = (3 * of_class[0] + of_class[1]) / 4
    np.testing.assert_allclose(loss(PROBS, TARGET, class_weight=weight), expected, rtol=1e-15)
    expected = (3 * of_class[0] + of_class[1] + 4 * of_class[2]) / 8
    np.testing.assert_allclose(loss(PROBS, TARGET, 'all', class_weight=weight), expected, rtol=1e-15)
    assert loss(PROBS, TARGET, class_weight=[0, 0, 1]) == 0


@each_loss
def test_a_set_is_a_batch_or_an_image(loss):
    probs, target = scene(np.random.default_rng(0))
    target[0] = 1  # a class that is alone in its image
    for classes in ('present', 'all', [3, 1]):
        alone = [loss(p[None], t[None], classes) for p, t in zip(probs, target, strict=True)]
        np.testing.assert_allclose(loss(probs, target, classes, per_image=True), np.mean(alone), rtol=1e-15)
        joined = loss(probs.transpose(1, 0, 2).reshape(1, 4, -1), target.reshape(1, -1), classes)
        assert loss(probs, target, classes) == joined
        assert abs(joined - np.mean(alone)) > 1e-3


@each_loss
@pytest.mark.parametrize('per_image', [False, True])
@pytest.mark.parametrize('classes', ['present', 'all', [3, 1]], ids=str)
def test_ignored_pixels_and_pixels_without_mass_do_not_exist(loss, per_image, classes):
    probs, target = scene(np.random.default_rng(0))
    expected = loss(probs[:2, :, 2:], target[:2, 2:], classes, per_image)

    probs[2] = probs[:, :, :2] = np.nan  # a third image and two pixels of the others, where anything may be
    ignored, mass = np.copy(target), np.ones(target.shape)
    ignored[2] = ignored[:, :2] = 255
    mass[2] = mass[:, :2] = 0
    assert loss(probs, ignored, classes, per_image, ignore_index=255) == expected
    assert loss(probs, ignored, classes, per_image, mass=mass) == expected


@each_loss
def test_an_ignored_class_has_no_foreground(loss):
    np.testing.assert_allclose(
        loss(PROBS, TARGET, 'all', ignore_index=0),
        # One pixel is left: class 0 is absent and has the error 0.4, and so has class 1, to which the pixel belongs.
        np.mean([0.4, 0.4, 0]) if loss is reference.lovasz_softmax else np.mean([1, 0.4, 0]),
        rtol=1e-15,
    )


@each_loss
@pytest.mark.parametrize('per_image', [False, True])
def test_mass_counts_pixels_several_times(loss, per_image):
    rng = np.random.default_rng(0)
    probs, target = scene(rng)
    times = rng.integers(0, 3, target.shape)
    columns = [np.repeat(np.arange(7), row) for row in times]
    longest = max(map(len, columns))
    padded = [(p[:, i], t[i], longest - len(i)) for p, t, i in zip(probs, target, columns, strict=True)]
    repeated = loss(
        np.stack([np.pad(p, ((0, 0), (0, rest))) for p, _, rest in padded]),
        np.stack([np.pad(t, (0, rest), constant_values=-1) for _, t, rest in padded]),
        per_image=per_image,
        ignore_index=-1,
    )
    np.testing.assert_allclose(loss(probs, target, per_image=per_image, mass=times), repeated, rtol=1e-15)
    assert abs(loss(probs, target, per_image=per_image) - repeated) > 1e-3


@each_known_loss
def test_images_in_which_nothing_is_counted_have_no_loss(loss, of_class):
    probs, target = np.repeat(PROBS, 3, axis=0), np.repeat(TARGET, 3, axis=0)
    target[1] = 255
    target[2] = 2  # has no weight
    found = loss(probs, target, per_image=True, ignore_index=255, class_weight=[1, 1, 0])
    np.testing.assert_allclose(found, np.mean(of_class[:2]), rtol=1e-15)
    for per_image in (False, True):
        assert loss(probs, np.full_like(target, 255), 'all', per_image, ignore_index=255) == 0


@each_loss
def test_hard_predictions_lose_one_minus_the_iou_and_invalid_labels_are_refused(loss):
    rng = np.random.default_rng(0)
    pred, target = rng.integers(0, 4, (2, 3, 20))
    target[rng.random(target.shape) < 0.2] = 255
    probs = one_hot(pred, 4)
    found = loss(probs, target, 'all', ignore_index=255)
    np.testing.assert_allclose(1 - found, reference.dataset_miou(pred, target, 4, 255), rtol=1e-15)
    found = loss(probs, target, 'all', per_image=True, ignore_index=255)
    np.testing.assert_allclose(1 - found, reference.image_miou(pred, target, 4, 255), rtol=1e-15)
    with pytest.raises(ValueError, match=r'labels must be in \[0, 3\)'):
        loss(PROBS, np.array([[0, 255, 1]]))
    with pytest.raises(ValueError, match="'absent'"):
        loss(PROBS, TARGET, classes='absent')


def test_soft_iou_of_soft_labels():
    probs = np.array([[[0.8, 0.3], [0.2, 0.7], [0, 0]]])
    labels = np.array([[[0.5, 0.6], [0.5, 0.4], [0, 0]]])
    of_class = [1 - 0.8 / 1.4, 1 - 0.6 / 1.2, 0]
    np.testing.assert_allclose(reference.soft_iou(probs, labels), np.mean(of_class[:2]), rtol=1e-15)
    np.testing.assert_allclose(reference.soft_iou(probs, labels, 'all'), np.mean(of_class), rtol=1e-15)
    assert reference.soft_iou(labels, labels, 'all') == 0
    weighted = reference.soft_iou(probs, labels, [0], mass=[[1, 2]])
    np.testing.assert_allclose(weighted, 1 - 1.1 / 2.0, rtol=1e-15)

    rng = np.random.default_rng(0)
    probs, target = scene(rng)
    assert reference.soft_iou(probs, one_hot(target, 4)) == reference.soft_iou(probs, target)


def proximal_problems(n, seed=0):
    """Yield margins of three kinds, with every kind of foreground."""
    rng = np.random.default_rng(seed)
    for make_foreground in FOREGROUNDS.values():
        for margins in (2 * rng.standard_normal(n), rng.integers(-1, 3, n) * 0.5, 1 + rng.random(n)):
            yield margins, make_foreground(rng, n)


@pytest.mark.parametrize(
    ('margins', 'foreground', 'lam', 'expected'),
    [
        pytest.param([3], [1], 0.5, [1], id='one pixel: minus 1/lam'),
        pytest.param([1.5], [1], 0.5, [0], id='one pixel: to zero'),
        pytest.param([-1.5], [1], 0.5, [-1.5], id='one pixel: stays'),
        pytest.param([3, 1], [1, 1], 0.5, [2, 0], id='no background: separable'),
        pytest.param([2, 0.5], [0, 0], 1, [1, 0.5], id='no foreground: the largest alone'),
        pytest.param([1, 1], [0, 0], 1, [0.5, 0.5], id='no foreground: a tie'),
        pytest.param([3, 3], [1, 0], 1, [2.5, 2.5], id='foreground and background stay tied'),
        pytest.param([1.5, 0.2], [1, 0], 1, [0.5, 0.2], id='foreground first'),
        pytest.param([2, -1, 1, 0.4], [1, 0, 0, 1], 1, [3 / 2, -1, 5 / 6, 1 / 15], id='fg, bg, fg'),
    ],
)
def test_known_proximal_points(margins, foreground, lam, expected):
    u = reference.prox_by_quadratic_program(margins, foreground, lam)
    np.testing.assert_allclose(u, expected, rtol=0, atol=1e-12)
    assert reference.prox_optimality_gap(expected, margins, foreground, lam) <= 1e-15


@pytest.mark.parametrize(
    ('u', 'margins', 'foreground', 'expected'),
    [
        pytest.param([0], [4], [1], 9 / 2, id='g is scaled to 1: the excess itself'),
        pytest.param([2], [1], [1], 5 / 2, id='g is clipped to 0: the objective itself'),
        pytest.param([0.5], [1], [1], 1 / 4, id='g is feasible as it is'),
        pytest.param([1, 1], [2, 2], [0, 0], 1 / 4, id='g is scaled to 1/2, 1/2'),
        pytest.param([1, 1], [2, 1.5], [1, 0], 5 / 72, id='g is scaled to 2/3, 1/3'),
    ],
)
def test_known_gaps(u, margins, foreground, expected):
    np.testing.assert_allclose(reference.prox_optimality_gap(u, margins, foreground, 1), expected, rtol=1e-15)


@each_lam
@pytest.mark.parametrize('n', [1, 2, 4, 6])
def test_quadratic_program_is_certified_and_its_neighbours_are_not(n, lam):
    rng = np.random.default_rng(1)
    for margins, foreground in proximal_problems(n):
        u = reference.prox_by_quadratic_program(margins, foreground, lam)
        assert reference.prox_optimality_gap(u, margins, foreground, lam) <= 1e-13
        for size in (1e-4, 1e-2, 1):
            distance = rng.standard_normal(n)
            distance *= size / np.linalg.norm(distance)
            gap = reference.prox_optimality_gap(u + distance, margins, foreground, lam)
            assert gap >= lam / 2 * size**2 * (1 - 1e-6)


@each_lam
def test_gap_bounds_the_excess_and_the_distance(lam):
    rng = np.random.default_rng(1)
    for margins, foreground in proximal_problems(5):
        best = reference.prox_by_quadratic_program(margins, foreground, lam)
        least = reference.hinge_objective(best, margins, foreground, lam)
        for u in (margins, np.zeros(5), best + 0.1 * rng.standard_normal(5), rng.standard_normal(5), best * 0.9):
            gap = reference.prox_optimality_gap(u, margins, foreground, lam)
            excess = reference.hinge_objective(u, margins, foreground, lam) - least
            assert -1e-14 <= excess <= gap + 1e-14
            assert ((u - best) ** 2).sum() <= 2 * gap / lam + 1e-14


def test_limits_of_lam_and_the_largest_feasible_scale():
    for margins, foreground in proximal_problems(6):
        u = reference.prox_by_quadratic_program(margins, foreground, 1e6)
        np.testing.assert_allclose(u, margins, rtol=0, atol=1.000001e-6)  # no gain exceeds 1
        assert reference.prox_optimality_gap(margins, margins, foreground, 1e6) > 1e-9
        u = reference.prox_by_quadratic_program(margins, foreground, 1e-3)
        np.testing.assert_allclose(u, np.minimum(margins, 0), rtol=0, atol=1e-10)
        nonpositive = np.minimum(margins, 0)
        assert reference.prox_optimality_gap(nonpositive, nonpositive, foreground, 1.0) == 0
    rng = np.random.default_rng(0)
    for P in (1, 2, 5, 7):
        for make_foreground in FOREGROUNDS.values():
            foreground, g = make_foreground(rng, P), rng.random(P) * rng.choice([0.01, 1])
            ratios = [reference.jaccard_loss(A, foreground) / g[A].sum() for A in subsets(P) if A.any()]
            np.testing.assert_allclose(reference.polymatroid_scale(g, foreground), min(1, *ratios), rtol=1e-15)


def test_gap_of_many_pixels():
    """Without an oracle: a proximal point of `x` is made by choosing the point `u` and a subgradient `g` there."""
    rng = np.random.default_rng(0)
    P, lam = 300, 5.0
    foreground, u = rng.random(P) < 0.3, rng.standard_normal(P)
    order = np.argsort(-u)
    losses = [reference.jaccard_loss(np.isin(np.arange(P), order[:k]), foreground) for k in range(P + 1)]
    g = np.zeros(P, np.longdouble)
    g[order] = np.where(u[order] > 0, np.diff(losses), 0)
    margins = u + g / lam
    assert reference.prox_optimality_gap(u, margins, foreground, lam) <= 1e-16
    assert reference.prox_optimality_gap(u, margins + 1e-3, foreground, lam) >= lam / 2 * 1e-6
    assert reference.prox_optimality_gap(margins, margins, foreground, lam) > 1e-2


PRED = np.array([[0, 1, 1, 1], [0, 0, 2, 1], [3, 3, 3, 3]])
TRUE = np.array([[0, 0, 1, 1], [0, 0, 0, 255], [255, 255, 255, 255]])


@pytest.mark.parametrize('ignored', [255, -100])
def test_known_metrics(ignored):
    true = np.where(TRUE == 255, ignored, TRUE)
    np.testing.assert_allclose(reference.mious_by_image(PRED, true, 4, ignored), [7 / 12, 1 / 3], rtol=1e-15)
    np.testing.assert_allclose(reference.image_miou(PRED, true, 4, ignored), 11 / 24, rtol=1e-15)
    np.testing.assert_allclose(reference.class_miou(PRED, true, 4, ignored), 5 / 12, rtol=1e-15)
    np.testing.assert_allclose(reference.dataset_miou(PRED, true, 4, ignored), 19 / 45, rtol=1e-15)
    np.testing.assert_allclose(reference.worst_images_miou(PRED, true, 4, 0.5, ignored), 1 / 3, rtol=1e-15)
    np.testing.assert_allclose(reference.worst_images_miou(PRED, true, 4, 0.51, ignored), 11 / 24, rtol=1e-15)


def test_worst_images_are_counted_in_decimals_and_metrics_of_nothing_are_nan():
    pred, target = np.zeros((2, 25, 4), int)
    pred[:7, :2] = 1  # mean IoU 1/4 in seven images and 1 in the others
    assert reference.worst_images_miou(pred, target, 2, 0.28) == 1 / 4  # 0.28 * 25 > 7
    np.testing.assert_allclose(reference.worst_images_miou(pred, target, 2, 0.3), (7 / 4 + 1) / 8, rtol=1e-15)
    nothing = np.full((2, 3), 255)
    for metric in (reference.image_miou, reference.class_miou, reference.dataset_miou):
        assert np.isnan(metric(np.zeros_like(nothing), nothing, 3, 255))
        with pytest.raises(ValueError, match='labels must be in'):
            metric(PRED, TRUE, 4)
    assert np.isnan(reference.worst_images_miou(np.zeros_like(nothing), nothing, 3, 0.1, 255))
