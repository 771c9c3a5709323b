"""Oracles of the losses and metrics that are made of the Jaccard index.

A class has `P` pixels with the masses `w >= 0` (1 unless said otherwise) and the foreground `δ`. What is lost when the
pixels `M` are mispredicted is the set function

    Δ(M) = w(M) / w(δ ∪ M),    0/0 = 0,

which is normalised, monotone and submodular. Arguments are the errors `e >= 0`, the foreground as bools and the masses,
1 if omitted, each [P]. Its Lovász extension is computed twice, from two definitions that share
no step, and neither of them follows the errors from the largest to the smallest:

* `lovasz_extension_by_orderings`: the extension of a submodular function is the support function of the base polytope,
  whose vertices are the gains of the `P!` orderings of the pixels, so it is the largest of `P!` scalar products;
* `lovasz_extension_by_levels`: it is the integral of `Δ({i: e_i >= t})` over the levels `t >= 0` (layer cake).

The losses `lovasz_softmax` and `lovasz_hinge` are loops around the second; `soft_iou` needs neither. The proximal
operator of the hinge,

    argmin_u  Φ(u) = f(u) + lam/2 ||u - x||²,    f(u) = Δ̄(max(u, 0)),    lam > 0,

is solved by `prox_by_quadratic_program` from the vertices of the subdifferential of `f` at 0, and whoever's solution is
judged by `prox_optimality_gap` from the inequalities that describe the same polytope. The metrics at the end count
pixels image by image.

Numbers are `numpy.longdouble` unless said otherwise.

Reference: Berman, Rannen Triki, Blaschko, "The Lovász-Softmax loss: A tractable surrogate for the optimization of the
intersection-over-union measure in neural networks", CVPR 2018. Its equation numbers are used here.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Array = npt.NDArray[np.longdouble]
ClassLoss = Callable[[Array, Array, Array], np.longdouble]


def jaccard_loss(
    mispredicted: npt.ArrayLike, foreground: npt.ArrayLike, mass: npt.ArrayLike | None = None
) -> np.longdouble:
    """Evaluate the set function `Δ(M) = w(M) / w(δ ∪ M)` of equation (6) for the set `M` as bools, with `0/0 = 0`."""
    mispredicted, foreground = np.asarray(mispredicted, bool), np.asarray(foreground, bool)
    w = _masses(mass, foreground.shape)
    union: np.longdouble = w[foreground | mispredicted].sum()
    return w[mispredicted].sum() / union if union > 0 else np.longdouble(0)


def lovasz_extension_by_orderings(
    errors: npt.ArrayLike, foreground: npt.ArrayLike, mass: npt.ArrayLike | None = None
) -> tuple[np.longdouble, Array | None]:
    """Return `max over π of Σ_i e_π(i) (Δ({π_1..π_i}) - Δ({π_1..π_i-1}))` over all `P!` orderings `π`, for `P <= 8`.

    Returns:
        The value, and the gradient [P] with respect to the errors, or None where the extension is not differentiable:
        where orderings of the same value have different gains.
    """
    errors = _non_negative(errors)
    orders, gains = _orderings(np.asarray(foreground, bool), mass)
    vertices = np.empty_like(gains)
    np.put_along_axis(vertices, orders, gains, axis=1)
    values = vertices @ errors
    value = values.max()
    best = vertices[values >= value * (1 - 1e-14)]
    unique = (best.max(axis=0) - best.min(axis=0) <= 1e-14).all()
    return value, best[0] if unique else None


def _orderings(foreground: npt.NDArray[np.bool_], mass: npt.ArrayLike | None) -> tuple[npt.NDArray[np.int64], Array]:
    """Return all orderings `π` [P!, P] and the gain of the loss at each step [P!, P]."""
    P = foreground.size
    subsets = (np.arange(2**P)[:, None] >> np.arange(P) & 1).astype(bool)
    delta = np.array([jaccard_loss(subset, foreground, mass) for subset in subsets], np.longdouble)
    orders = np.array(list(itertools.permutations(range(P))), np.int64)
    steps = 1 << orders  # sets of pixels are the bits of a number
    after = np.cumsum(steps, axis=1)
    return orders, delta[after] - delta[after - steps]


def lovasz_extension_by_levels(
    errors: npt.ArrayLike, foreground: npt.ArrayLike, mass: npt.ArrayLike | None = None
) -> np.longdouble:
    """Return the integral of `Δ({i: e_i >= t})` over `t >= 0`.

    The integrand is constant between two neighbouring errors, so that the integral is a sum over the distinct errors.
    The time is `O(P²)`.

    Raises:
        ValueError: If an error is negative or NaN: the integral would miss it.
    """
    errors = _non_negative(errors)
    integral = below = np.longdouble(0)
    for level in np.unique(errors):
        integral += (level - below) * jaccard_loss(errors >= level, foreground, mass)
        below = level
    return integral


def lovasz_hinge(logits: npt.ArrayLike, target: npt.ArrayLike) -> np.longdouble:
    """Return the Lovász hinge of equation (10), `Δ̄(max(1 - F_i y_i, 0))`.

    Args:
        logits: Scores `F` of the foreground [P].
        target: Labels [P]: 1 is the foreground, `y = 1`, and 0 the background, `y = -1`.

    Raises:
        ValueError: If a label is neither 0 nor 1.
    """
    logits, target = np.asarray(logits, np.longdouble), np.asarray(target)
    if not np.isin(target, (0, 1)).all():
        raise ValueError(f'labels must be 0 or 1, found {np.unique(target)}')
    foreground = target == 1
    return lovasz_extension_by_levels(np.maximum(1 - np.where(foreground, logits, -logits), 0), foreground)


def _class_average(
    class_loss: ClassLoss,
    probs: npt.ArrayLike,
    target: npt.ArrayLike,
    classes: str | Sequence[int] = 'present',
    per_image: bool = False,
    ignore_index: int | None = None,
    class_weight: npt.ArrayLike | None = None,
    mass: npt.ArrayLike | None = None,
) -> np.longdouble:
    """Return the mean of a loss over the classes of a set.

    A pixel exists if it has a mass and its label is not ignored. All pixels that exist form one set, or those of each
    image do. The loss of a set is the weighted mean of its classes, `Σ w_c L_c / Σ w_c`, and the loss of several sets
    is the mean over those that have a pixel and a positive sum of weights; it is 0 if there is none.

    Args:
        class_loss: The loss `L_c` of the probabilities, the label probabilities and the masses of a class [P].
        probs: Probabilities [N, C, P].
        target: Labels [N, P], or label probabilities [N, C, P], of which none is ignored.
        classes: 'present' counts the classes whose foreground has mass in the set, 'all' counts every class of every
            set, and so does a list with those that it names.
        per_image: Whether each image is a set.
        ignore_index: Label of the pixels that do not exist. It may be any number.
        class_weight: Weights `w_c >= 0` [C]; 1 if omitted.
        mass: Masses of the pixels [N, P]; 1 if omitted.

    Raises:
        ValueError: If the label of a pixel that exists is not one of the `C` classes.
    """
    probs, target = np.asarray(probs, np.longdouble), np.asarray(target)
    N, C, P = probs.shape
    mass, labels = _masses(mass, (N, P)), np.asarray(target, np.longdouble)
    if target.ndim == 2:
        mass = mass if ignore_index is None else np.where(target == ignore_index, 0, mass)
        _check_labels(target[mass > 0], C)
        labels = (target[:, None, :] == np.arange(C)[:, None]).astype(np.longdouble)
    if isinstance(classes, str) and classes not in ('present', 'all'):
        raise ValueError(f"classes must be 'present', 'all' or a list of classes, found {classes!r}")
    candidates = range(C) if isinstance(classes, str) else classes
    weight = _masses(class_weight, (C,))
    if not per_image:
        probs, labels = (x.swapaxes(0, 1).reshape(1, C, N * P) for x in (probs, labels))
        mass = mass.reshape(1, N * P)

    losses = []
    for p, y, w in zip(probs, labels, mass, strict=True):
        exists = w > 0
        if not exists.any():
            continue
        counted = [c for c in candidates if classes != 'present' or (w * y[c])[exists].sum() > 0]
        total = sum((weight[c] for c in counted), np.longdouble(0))
        if total > 0:
            of_class = [weight[c] * class_loss(p[c, exists], y[c, exists], w[exists]) for c in counted]
            losses.append(sum(of_class) / total)
    return sum(losses, np.longdouble(0)) / max(1, len(losses))


def _extension_of_class(p: Array, y: Array, w: Array) -> np.longdouble:
    return lovasz_extension_by_levels(np.abs(y - p), y == 1, w)


def soft_iou_of_class(p: Array, y: Array, w: Array, alpha: float = 1, beta: float = 1) -> np.longdouble:
    """Return `(α FP + β FN) / (TP + α FP + β FN)`, and 0 where that is 0 / 0.

    `TP = Σ w min(p, y)`, `FP = Σ w max(p - y, 0)` and `FN = Σ w max(y - p, 0)`. With weights of 1 it is `1 - I/U`.
    """
    errors = alpha * (w * np.maximum(p - y, 0)).sum() + beta * (w * np.maximum(y - p, 0)).sum()
    total: np.longdouble = (w * np.minimum(p, y)).sum() + errors
    return np.longdouble(0) if total == 0 else errors / total


lovasz_softmax = functools.partial(_class_average, _extension_of_class)
"""The Lovász-Softmax loss of equations (11) to (13), class by class. It takes labels, no label probabilities."""
soft_iou = functools.partial(_class_average, soft_iou_of_class)
"""The soft IoU. For labels of 0 and 1, `I = Σ w p y` and `U = Σ w (p + y - p y)`."""


def hinge_objective(u: npt.ArrayLike, margins: npt.ArrayLike, foreground: npt.ArrayLike, lam: float) -> np.longdouble:
    """Return `Φ(u) = Δ̄(max(u, 0)) + lam/2 ||u - margins||²`, what the proximal operator minimises."""
    u, x = np.asarray(u, np.longdouble), np.asarray(margins, np.longdouble)
    distance: np.longdouble = ((u - x) ** 2).sum()
    return lovasz_extension_by_levels(np.maximum(u, 0), foreground) + lam / 2 * distance


def prox_by_quadratic_program(margins: npt.ArrayLike, foreground: npt.ArrayLike, lam: float) -> Array:
    """Solve `min { t + lam/2 ||u - x||² : t >= v . u for all v in V }`, the proximal operator at `x`, for `P <= 6`.

    `V` has, for every ordering `π` and every `k <= P`, the gains of the first `k` steps, and 0 for the other pixels.
    The gains are non-negative. Hence `v . u <= Δ̄(max(u, 0))`, with equality for an ordering of decreasing `u` and the
    number `k` of its positive entries, and the best `t` is `f(u)`.

    The conditions of optimality name non-negative multipliers `α` of sum 1 with `g = Σ α_v v` and `u = x - g / lam`,
    where only those `v` have a multiplier for which `v . u` is largest. So `g` is the point of the convex hull of `V`
    nearest to `lam x`, and `α` minimises `||Σ α_v (v - lam x)||`. The sum of 1 needs no constraint: for `α = s β` with
    `Σ β = 1`, the penalised `||Σ α_v (v - lam x)||² + c² (Σ α - 1)²` depends on `β` only through the norm, times `s²`,
    and is thus minimised by the same `β`. This is a non-negative least squares problem, solved by active sets.

    Raises:
        RuntimeError: If the optimality condition `g . u = max over v of v . u` is missed.
    """
    x = np.asarray(margins, np.longdouble)
    orders, gains = _orderings(np.asarray(foreground, bool), None)
    chains = np.zeros((x.size + 1, *gains.shape), np.longdouble)
    for k, of_length_k in enumerate(chains):
        np.put_along_axis(of_length_k, orders, np.where(np.arange(x.size) < k, gains, 0), axis=1)
    chains = chains.reshape(-1, x.size)
    _, first = np.unique(chains.astype(np.float64).round(12), axis=0, return_index=True)
    V = chains[first]

    points = np.asarray(V - lam * x, np.float64)
    c = np.abs(points).max()
    alpha = nnls(np.vstack([points.T, np.full(len(V), c)]), np.append(np.zeros(x.size), c))[0].astype(np.longdouble)
    g = alpha @ V / alpha.sum()
    u: Array = x - g / lam
    gap = (V @ u).max() - g @ u
    if not gap <= 1e-11 * max(1, np.abs(x).max()):
        raise RuntimeError(f'the quadratic program is solved to a gap of {gap} only')
    return u


def prox_optimality_gap(
    u: npt.ArrayLike, margins: npt.ArrayLike, foreground: npt.ArrayLike, lam: float
) -> np.longdouble:
    """Return a bound of `Φ(u) - min Φ`, the excess of any `u` over the proximal operator at `x = margins`.

    `Δ` is normalised, monotone and submodular, so that its extension at a non-negative point is a maximum over the
    polymatroid `G`, and a maximiser vanishes wherever `u` is negative, because `G` is closed under decrease:

        f(u) = max { g . u : g in G },    G = { g >= 0 : g(A) <= Δ(A) for all A }.

    Every single `g in G` thus bounds the least value of `Φ` from below, by

        D(g) = min over u of  g . u + lam/2 ||u - x||²  =  g . x - ||g||² / (2 lam),

    the minimum being at `u = x - g / lam`. The gap is written as a sum of two terms that cannot be negative,

        Φ(u) - D(g) = (f(u) - g . u) + ||g - lam (x - u)||² / (2 lam),

    which is seen by expanding the square. It vanishes only if `u` is optimal, as `Φ(u) = D(g) <= min Φ`. At the optimum
    it does vanish for `g = lam (x - u)`, which is then a subgradient of `f` and hence in `G`. Elsewhere, that `g` is
    clipped to be non-negative and scaled down until it is in `G` (`polymatroid_scale`). `Φ` is strongly convex with
    modulus `lam`, so the optimum `u*` is not far away: `||u - u*||² <= 2 gap / lam`.

    Scaling costs a gap in proportion to `||u - u*||`, not to its square: a `u` that is exact to 1e-14 is certified to
    about 1e-7 only.
    """
    u, x = np.asarray(u, np.longdouble), np.asarray(margins, np.longdouble)
    slope = lam * (x - u)
    g = np.maximum(slope, 0)
    g *= polymatroid_scale(g, foreground)
    gap = lovasz_extension_by_levels(np.maximum(u, 0), foreground) - g @ u + ((g - slope) ** 2).sum() / (2 * lam)
    return max(gap, np.longdouble(0))  # rounding alone makes it negative


def polymatroid_scale(g: npt.ArrayLike, foreground: npt.ArrayLike) -> np.longdouble:
    """Return the largest `s <= 1` for which `s g` is in the polymatroid `{ g >= 0 : g(A) <= Δ(A) for all A }`.

    Of all sets with `a` foreground and `b` background pixels, which have the same `Δ = 1 - (n - a) / (n + b)` for a
    foreground of `n` pixels, the one with the largest entries of `g` binds: `(P + 2)²/4` inequalities at most.
    """
    g, foreground = _non_negative(g), np.asarray(foreground, bool)
    n = np.count_nonzero(foreground)
    largest_a, largest_b = (np.append(0, np.cumsum(np.sort(part)[::-1])) for part in (g[foreground], g[~foreground]))
    scale = np.longdouble(1)
    for b, background_sum in enumerate(largest_b):
        for a, foreground_sum in enumerate(largest_a):
            total = foreground_sum + background_sum
            if total > 0:
                scale = min(scale, np.longdouble(a + b) / (n + b) / total)
    return scale


def dataset_miou(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, ignore_index: int | None = None
) -> np.longdouble:
    """Return the mean, over the classes with a union, of the IoU of the intersections and unions of all images.

    Labels are [N, P]. A predicted label that is not a class is a miss. Pixels with the ignored true label, which may be
    any number, do not exist, whatever is predicted there. A mean over nothing is NaN. All of this holds for the other
    metrics, too.

    Raises:
        ValueError: If the true label of a valid pixel is not one of the classes.
    """
    counts = _intersections_and_unions(pred, target, num_classes, ignore_index)
    return _mean(
        _ratio(sum(i for i, _ in of_class), sum(u for _, u in of_class)) for of_class in zip(*counts, strict=True)
    )


def mious_by_image(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, ignore_index: int | None = None
) -> Array:
    """Return, for each image with a valid pixel, the mean IoU over the classes with a union in this image."""
    counts = _intersections_and_unions(pred, target, num_classes, ignore_index)
    means = np.array([_mean(_ratio(i, u) for i, u in of_image) for of_image in counts], np.longdouble)
    return means[~np.isnan(means)]


def image_miou(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, ignore_index: int | None = None
) -> np.longdouble:
    """Return the mean of `mious_by_image`."""
    return _mean(mious_by_image(pred, target, num_classes, ignore_index))


def class_miou(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, ignore_index: int | None = None
) -> np.longdouble:
    """Return the mean over the classes of their mean IoU over the images in which they have a union."""
    counts = _intersections_and_unions(pred, target, num_classes, ignore_index)
    return _mean(_mean(_ratio(i, u) for i, u in of_class) for of_class in zip(*counts, strict=True))


def worst_images_miou(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, q: float, ignore_index: int | None = None
) -> np.longdouble:
    """Return the mean of the `ceil(q n)` lowest of the `n` values of `mious_by_image`, for `0 < q <= 1`.

    `q` is the decimal number that it is printed as: of 25 images, `q = 0.28` takes 7, though the product of the
    floats is more.
    """
    mious = sorted(mious_by_image(pred, target, num_classes, ignore_index))
    return _mean(mious[: math.ceil(Fraction(str(q)) * len(mious))])


def _intersections_and_unions(
    pred: npt.ArrayLike, target: npt.ArrayLike, num_classes: int, ignore_index: int | None
) -> list[list[tuple[int, int]]]:
    """Return the pixels in the intersection and the union, by image and class."""
    counts = []
    for predicted, true in zip(np.asarray(pred), np.asarray(target), strict=True):
        valid = np.ones(true.shape, bool) if ignore_index is None else true != ignore_index
        _check_labels(true[valid], num_classes)
        masks = [((predicted == c) & valid, (true == c) & valid) for c in range(num_classes)]
        counts.append([(int(np.count_nonzero(a & b)), int(np.count_nonzero(a | b))) for a, b in masks])
    return counts


def _check_labels(labels: npt.NDArray, num_classes: int) -> None:
    if not np.isin(labels, np.arange(num_classes)).all():
        raise ValueError(f'labels must be in [0, {num_classes}), found {np.unique(labels)}')


def _ratio(intersection: int, union: int) -> np.longdouble:
    return np.longdouble(intersection) / union if union else np.longdouble(np.nan)


def _mean(values: Iterable[np.longdouble]) -> np.longdouble:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    defined = [value for value in values if not np.isnan(value)]
    return sum(defined, np.longdouble(0)) / len(defined) if defined else np.longdouble(np.nan)


def _masses(mass: npt.ArrayLike | None, shape: tuple[int, ...]) -> Array:
    if mass is None:
        return np.ones(shape, np.longdouble)
    return np.broadcast_to(_non_negative(mass), shape)


def _non_negative(values: npt.ArrayLike) -> Array:
    values = np.asarray(values, np.longdouble)
    if not (values >= 0).all():
        raise ValueError(f'expected non-negative numbers, found {values.min()}')
    return values
