"""Oracle of offsets of logits: decisions and counts pixel by pixel, and a search over all offsets of a grid."""

import numpy as np


def decide(logits, offsets):
    """Return the first class with the highest logit plus offset for logits [N, C, P]; 0 or 1 for a single channel."""
    scores = np.asarray(logits, np.float64) + np.asarray(offsets, np.float64)[:, None]
    if len(offsets) == 1:
        return (scores[:, 0] > 0).astype(int)
    return scores.argmax(1)


def count(decided, labels, n_classes, ignored=255):
    """Return the numbers of hits, of decided and of true pixels of each class."""
    hits, n_decided, true = np.zeros((3, n_classes), int)
    for d, y in zip(np.ravel(decided), np.ravel(labels), strict=True):
        if y != ignored:
            n_decided[d] += 1
            true[y] += 1
            hits[y] += d == y
    return hits, n_decided, true


def measure_of(name, hits, decided, true):
    """Return the mean of a measure over the classes for which it is defined."""
    values = []
    for h, d, t in zip(hits, decided, true, strict=True):
        numerator = 2 * h if name == 'dice' else h
        denominator = {'iou': d + t - h, 'dice': d + t, 'recall': t}[name]
        if denominator > 0:
            values.append(numerator / denominator)
    return sum(values) / len(values)


def measured(logits, labels, offsets, name='iou'):
    """Return the measure of the decisions with some offsets; of a single channel, that of label 1."""
    counts = count(decide(logits, offsets), labels, max(2, len(offsets)))
    return measure_of(name, *((c[1:] for c in counts) if len(offsets) == 1 else counts))


def best_of_grid(logits, labels, reach, step, name='iou'):
    """Return the highest measure over a grid of offsets of classes 1 and 2 of three, without ignored pixels."""
    logits, labels = np.asarray(logits, np.float64), np.asarray(labels)
    true = np.bincount(labels.ravel(), minlength=3)
    grid = np.arange(-reach, reach + step / 2, step)
    best = 0.0
    for first in grid:
        for second in grid:
            decided = (logits + np.array([0, first, second])[:, None]).argmax(1)
            hits = np.bincount(labels[decided == labels], minlength=3)
            best = max(best, measure_of(name, hits, np.bincount(decided.ravel(), minlength=3), true))
    return best
