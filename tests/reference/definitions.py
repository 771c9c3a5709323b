"""Definitions of all registered losses, item by item: in NumPy, in extended precision, without a histogram.

A call of any toolbox is first read as a `Call`: scores, the share of each class in each item, and how much the item
counts. `DEFINITIONS` has the value of each loss for such a call and its arguments, and
`allowed` how far from it a loss may be.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reference import direct_loss, lovasz, max_pooling, smooth_topk

Array = npt.NDArray[Any]


class Call(NamedTuple):
    """Arguments of a call in one form. Items without a position form one image."""

    scores: Array
    """Of shape [N, C, P]."""
    shares: Array
    """How much of each class an item is, of shape [N, C, P]; nothing of any for background."""
    mass: Array
    """How much an item counts, of shape [N, P]; 0 for those that are not in the set."""
    labels: Array | None
    """The label of each item, int64 of shape [N, P]; None for shares."""
    are_maps: bool
    dtype: torch.dtype
    """Of the scores."""
    zero_is_class: bool = False
    """Whether label 0 is the object of a single channel, as in the box heads of MMDetection."""


def read(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    zero_is_class: bool = False,
) -> Call:
    """Return the arguments of a call, with scores [N, C, *], in one form."""
    scores = pred.detach().double().numpy().astype(np.longdouble)
    are_maps = scores.ndim > 2
    scores = scores.reshape(*scores.shape[:2], math.prod(scores.shape[2:])) if are_maps else scores.T[None]
    n_images, n_classes, n_items = scores.shape
    shape = (n_images, n_items)
    mass = np.ones(shape, np.longdouble)
    if weight is not None:
        mass = weight.double().numpy().astype(np.longdouble).reshape(shape)
    values = target.double().numpy()
    if target.is_floating_point():
        shares = values.reshape(n_images, n_classes, n_items) if are_maps else values.T[None]
        return Call(scores, shares.astype(np.longdouble), mass, None, are_maps, pred.dtype, zero_is_class)
    labels = values.astype(np.int64).reshape(shape)
    mass = np.where(labels == (255 if ignore_index is None else ignore_index), 0, mass)
    shares = (labels[:, None] == np.arange(n_classes)[:, None]).astype(np.longdouble)
    return Call(scores, shares, mass, labels, are_maps, pred.dtype, zero_is_class)


def loss_max_pooling(call: Call, **args: Any) -> np.longdouble:
    """Evaluate equation (10) of the paper for the losses of the items of each set, averaged over sets."""
    weight = np.asarray(args.get('class_weight', np.ones(call.scores.shape[1])), np.longdouble)
    kind = args.get('pixel_loss', 'cross_entropy')
    if kind == 'cross_entropy' and call.scores.shape[1] > 1:
        terms = -_log_softmax(call.scores)
    else:
        call = _binary(call)
        hit, miss = -_log_sigmoid(call.scores), -_log_sigmoid(-call.scores)
        each = _times(call.shares, hit) + _times(1 - call.shares, miss)
        if kind == 'focal':
            p, y = _sigmoid(call.scores), call.shares
            each = (0.75 - 0.5 * y) * (p * (1 - y) + (1 - p) * y) ** 2 * each
        losses = (each * weight[:, None]).mean(1) * call.mass
        return _pooled(losses, call, args)
    return _pooled((_times(call.shares, terms) * weight[:, None]).sum(1) * call.mass, call, args)


def _pooled(losses: Array, call: Call, args: dict[str, Any]) -> np.longdouble:
    values = []
    for images in _sets(call, args.get('scope', 'image')):
        inside = losses[images][call.mass[images] > 0]
        if inside.size:
            m = max(1.0, args.get('ratio', 0.25) * inside.size)
            values.append(max_pooling.sorted_weights(inside, args.get('p', 1.3), m)[1])
    return _mean(values)


def lovasz_softmax(call: Call, **args: Any) -> np.longdouble:
    """Evaluate equation (11), class by class. An item with shares is one of the class and one of the others."""
    call, probs = _probabilities(call, bool(args.get('use_sigmoid')))
    return _class_average(_extension(1), probs, call, {'classes': 'present', 'scope': 'batch'} | args)


def lovasz_hinge(call: Call, **args: Any) -> np.longdouble:
    """Evaluate equation (10), class by class. Two channels are one decision."""
    call = _binary(_one_of_two(call))
    return _class_average(_extension(2), 1 + call.scores, call, {'classes': 'all', 'scope': 'batch'} | args)


def soft_iou(call: Call, **args: Any) -> np.longdouble:
    """Return one minus the soft Tversky index: with weights of 1, the soft intersection over the soft union."""
    call, probs = _probabilities(call, bool(args.get('use_sigmoid')))
    of_class = functools.partial(lovasz.soft_iou_of_class, alpha=args.get('alpha', 1), beta=args.get('beta', 1))
    return _class_average(of_class, probs, call, {'classes': 'present', 'scope': 'batch'} | args)


def direct_ap(call: Call, **args: Any) -> np.longdouble:
    """Return one minus the average precision of each class with both kinds of items, or the value of a bound."""
    mode = args.get('update', 'positive')

    def of_query(scores: Array, positive: Array) -> Any:
        scores = np.where(scores == -np.inf, min(scores[scores > -np.inf], default=0) - 1e6, scores).astype(float)
        if positive.all() or not positive.any():
            return None
        if mode in ('positive', 'negative'):
            return 1 - float(direct_loss.average_precision_of_scores(scores.tolist(), positive.tolist()))
        return direct_loss.surrogate(scores[positive].tolist(), scores[~positive].tolist(), 1, mode)

    return _over_queries(of_query, call, args)


def direct_zero_one(call: Call, **args: Any) -> np.longdouble:
    """Return the share of wrong decisions, or the value of a bound."""
    mode = args.get('update', 'positive')

    def of_query(scores: Array, positive: Array) -> Any:
        margins = np.where(positive, scores, -scores)
        if mode in ('positive', 'negative'):
            return ((scores > 0) != positive).mean()
        return np.maximum((mode == 'hinge') - 2 * margins, 0).mean()

    return _over_queries(of_query, call, args)


def s_measure(call: Call, **args: Any) -> np.longdouble:
    """Return the Lagrangian of the first batch. Margins are 1, and multipliers give both sides equal weights."""
    measure, surrogate = args.get('measure', 'f_beta'), args.get('surrogate') or 'logistic'
    call = _binary(_one_of_two(call))
    anchors = args.get('anchors', 10)
    of_area = measure in ('auc_roc', 'auc_pr') and args.get('target') is None
    targets = [(k + 0.5) / anchors for k in range(anchors)] if of_area else [args.get('target')]

    def of_query(z: Array, y: Array, w: Array) -> np.longdouble:
        n_pos, n_neg = (w * y).sum(), (w * (1 - y)).sum()
        a = 1 - (w * _times(y, _penalty(-z, surrogate))).sum() / n_pos if n_pos else np.longdouble(0)
        b = (w * _times(1 - y, _penalty(z, surrogate))).sum() / n_neg if n_neg else np.longdouble(0)
        r = n_neg / max(n_pos, np.longdouble(1e-6))
        return sum(_lagrangian(measure, args.get('beta', 1.0), t, a, b, r) for t in targets) / len(targets)

    return _class_average(of_query, call.scores, call, {'classes': 'present', 'scope': 'batch'} | args)


def _lagrangian(measure: str, beta: float, target: Any, a: Any, b: Any, r: np.longdouble) -> np.longdouble:
    """Return cost plus weighted constraint of the bounds A and B, over the weight of a true positive if above 1."""
    cost = {'f_beta': lambda a, b, r: beta**2 + r * b, 'precision_at_recall': lambda a, b, r: b}.get(
        measure, lambda a, b, r: 1 - a
    )
    limit = {
        'f_beta': lambda a, b, r: 1 - a,
        'precision_at_recall': lambda a, b, r: target - a,
        'auc_roc': lambda a, b, r: b - target,
    }.get(measure, lambda a, b, r: (target - 1) * a + target * r * b)
    ratio = r if r > 0 else np.longdouble(1)
    more, less = (side(1, 1, ratio) - side(0, 0, ratio) for side in (cost, limit))
    with np.errstate(divide='ignore', invalid='ignore'):
        mu = np.clip(np.nan_to_num(np.longdouble(more) / np.longdouble(-less)), 0, 1e4)
    paid = cost(0, 0, r) - cost(1, 0, r) + mu * (limit(0, 0, r) - limit(1, 0, r))
    return (cost(a, b, r) + mu * limit(a, b, r)) / max(paid, np.longdouble(1))


def smooth_top_k(call: Call, **args: Any) -> np.longdouble:
    """Evaluate equation (9), item by item."""
    return _of_items(
        lambda s, y: smooth_topk.smooth_topk_loss(s, y, args['k'], args.get('tau', 1.0), args.get('margin', 1.0)).value,
        call,
    )


def hard_top_k(call: Call, **args: Any) -> np.longdouble:
    """Evaluate equation (8), item by item."""
    return _of_items(lambda s, y: smooth_topk.hard_topk_loss_of_ranks(s, y, args['k'], args.get('margin', 1.0)), call)


def _class_average(
    of_class: Callable[[Array, Array, Array], Any], scores: Array, call: Call, args: dict[str, Any]
) -> np.longdouble:
    """Return the weighted mean over the counted classes of a set, and the mean over the sets with any.

    With the scope 'class', return the mean over the images that count a class, and the weighted mean over classes.
    """
    n_classes = scores.shape[1]
    weight = np.asarray(args.get('class_weight') or [1.0] * n_classes, np.longdouble)
    classes, values = args['classes'], []
    if args['scope'] == 'class':
        of_classes = {c: [] for c in range(n_classes)}
        for images in _sets(call, 'image'):
            inside = call.mass[images] > 0
            for c in range(n_classes) if isinstance(classes, str) else classes:
                p, y, w = scores[images, c][inside], call.shares[images, c][inside], call.mass[images][inside]
                if inside.any() and weight[c] > 0 and (classes != 'present' or (w * y).sum() > 0):
                    of_classes[c].append(of_class(p, y, w))
        counted = [c for c, found in of_classes.items() if found]
        total = sum((weight[c] * _mean(of_classes[c]) for c in counted), np.longdouble(0))
        return total / sum(weight[c] for c in counted) if counted else total
    for images in _sets(call, args['scope']):
        inside = call.mass[images] > 0
        if not inside.any():
            continue
        total, factors = np.longdouble(0), np.longdouble(0)
        for c in range(n_classes) if isinstance(classes, str) else classes:
            p, y, w = scores[images, c][inside], call.shares[images, c][inside], call.mass[images][inside]
            if weight[c] > 0 and (classes != 'present' or (w * y).sum() > 0):
                total, factors = total + weight[c] * of_class(p, y, w), factors + weight[c]
        if factors > 0:
            values.append(total / factors)
    return _mean(values)


def _over_queries(of_query: Callable[[Array, Array], Any], call: Call, args: dict[str, Any]) -> np.longdouble:
    """Return the weighted mean over the classes of a set, or over one query of all, that have a loss."""
    call = _binary(call)
    n_classes = call.scores.shape[1]
    weight = np.asarray(args.get('class_weight') or [1.0] * n_classes, np.longdouble)
    groups = [[c] for c in range(n_classes)] if args.get('per_class', True) else [list(range(n_classes))]
    values = []
    for images in _sets(call, args.get('scope', 'batch')):
        inside = call.mass[images] > 0
        if not inside.any():
            continue
        found = []
        for group in groups:
            scores, positive = (
                np.concatenate([part[images, c][inside] for c in group]) for part in (call.scores, call.shares > 0.5)
            )
            loss = of_query(scores, positive)
            if loss is not None and weight[group[0]] > 0:
                found.append((weight[group[0]], loss))
        if found:
            values.append(sum(w * loss for w, loss in found) / sum(w for w, _ in found))
    return _mean(values)


def _of_items(of_item: Callable[[Array, int], Any], call: Call) -> np.longdouble:
    """Return the mean of the weighted losses of the items. Shares average over labels."""
    values = []
    for n, i in zip(*np.nonzero(call.mass > 0), strict=True):
        s, shares = np.minimum(call.scores[n, :, i], 1e35), call.shares[n, :, i]  # in place of infinity
        loss = sum((share * of_item(s, y) for y, share in enumerate(shares) if share > 0), np.longdouble(0))
        values.append(call.mass[n, i] * loss)
    return _mean(values)


def _sets(call: Call, scope: str) -> Iterator[list[int]]:
    """Return the images of each set. Items without a position form one, whatever the scope."""
    images = list(range(len(call.scores)))
    return iter([[n] for n in images] if scope == 'image' and call.are_maps else [images])


def _binary(call: Call) -> Call:
    """Set the class of a single channel: label 1, or 0 for box heads, which count classes from 0."""
    if call.scores.shape[1] > 1 or call.labels is None:
        return call
    return call._replace(shares=(call.labels == (0 if call.zero_is_class else 1))[:, None].astype(np.longdouble))


def _one_of_two(call: Call) -> Call:
    """Return two channels as one decision, whose class is label 1."""
    if call.scores.shape[1] != 2 or call.labels is None:
        return call
    shares = (call.labels == 1)[:, None].astype(np.longdouble)
    difference = call.scores[:, 1:] - call.scores[:, :1]
    return call._replace(scores=difference, shares=shares)


def _probabilities(call: Call, use_sigmoid: bool) -> tuple[Call, Array]:
    """Return the probabilities of classes by softmax or sigmoid, rounded to double precision."""
    decides = use_sigmoid or call.scores.shape[1] == 1
    probs = _sigmoid(call.scores) if decides else np.exp(_log_softmax(call.scores))
    return _binary(call), probs.astype(np.float64).astype(np.longdouble)


def _extension(top: float) -> Callable[[Array, Array, Array], np.longdouble]:
    """Return the Lovász extension of a class. An item that is partly of the class is two items."""

    def of_class(p: Array, y: Array, w: Array) -> np.longdouble:
        errors = np.maximum(np.concatenate([p, top - p]), 0)
        foreground = np.repeat([False, True], len(p))
        mass = np.concatenate([w * (1 - y), w * y])
        return lovasz.lovasz_extension_by_levels(errors[mass > 0], foreground[mass > 0], mass[mass > 0])

    return of_class


def _penalty(z: Array, surrogate: str) -> Array:
    """Return the upper bound on a step at 0, with a margin of 1."""
    return np.maximum(1 + z, 0) if surrogate == 'hinge' else -_log_sigmoid(-z) / np.log(np.longdouble(2))


def _times(factor: Array, values: Array) -> Array:
    """Return a product in which 0 times infinity is 0."""
    with np.errstate(invalid='ignore'):
        return np.where(factor == 0, 0, factor * values)


def _sigmoid(x: Array) -> Array:
    return np.exp(_log_sigmoid(x))


def _log_sigmoid(x: Array) -> Array:
    return np.where(x >= 0, -np.log1p(np.exp(-np.abs(x))), x - np.log1p(np.exp(-np.abs(x))))


def _log_softmax(x: Array) -> Array:
    top = x.max(1, keepdims=True)
    with np.errstate(divide='ignore', invalid='ignore'):
        return x - top - np.log(np.exp(x - top).sum(1, keepdims=True))


def _mean(values: list[Any]) -> np.longdouble:
    return sum(values, np.longdouble(0)) / max(1, len(values))


DEFINITIONS: dict[str, Callable[..., np.longdouble]] = {
    'LossMaxPooling': loss_max_pooling,
    'LovaszSoftmaxLoss': lovasz_softmax,
    'LovaszHingeLoss': lovasz_hinge,
    'SoftIoULoss': soft_iou,
    'DirectAPLoss': direct_ap,
    'DirectZeroOneLoss': direct_zero_one,
    'SMeasureLoss': s_measure,
    'SmoothTopKLoss': smooth_top_k,
    'HardTopKLoss': hard_top_k,
}


def value(name: str, args: dict[str, Any], call: Call) -> float:
    """Return the loss of a call, with its factor."""
    args = dict(args)
    factor = args.pop('loss_weight', 1.0)
    return float(factor * DEFINITIONS[name](call, **args))


def allowed(name: str, args: dict[str, Any], call: Call, expected: float) -> float:
    """Return the tolerance of a value: rounding, and the width of histogram bins."""
    scores = np.abs(call.scores[np.isfinite(call.scores)]).astype(float)
    largest = scores.max() if scores.size else 0.0
    eps = torch.finfo(torch.promote_types(call.dtype, torch.float32)).eps
    widths = 0.0
    if args.get('bins', 0) is not None:  # half of the widest bin that is in use; all errors beyond a million share one
        of_hinge = (2 * largest + 1) / 1000 if largest < 5e5 else largest
        widths = {'LovaszSoftmaxLoss': 1 / 2048, 'LovaszHingeLoss': of_hinge}.get(name, 0.0)
    return 64 * eps * (abs(expected) + largest + 1) + args.get('loss_weight', 1.0) * widths
