"""Measures, scores and labels on which the S-measure loss and what it keeps are tested."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmseg_nondecomp.functional.s_measures.rates import SCALE, SURROGATES, unit_penalty

MEASURES = {
    'F_1': dict(measure='f_beta'),
    'F_2': dict(measure='f_beta', beta=2.0),
    'precision at recall': dict(measure='precision_at_recall', target=0.8),
    'recall at precision': dict(measure='recall_at_precision', target=0.6),
    'area under ROC': dict(measure='auc_roc', anchors=3),
    'area under PR': dict(measure='auc_pr', anchors=3),
}
AT_ONE_POINT = {name: args for name, args in MEASURES.items() if 'anchors' not in args}
each_measure = pytest.mark.parametrize('args', MEASURES.values(), ids=MEASURES)
at_one_point = pytest.mark.parametrize('args', AT_ONE_POINT.values(), ids=AT_ONE_POINT)
MODES = [pytest.param(args, False, id=name) for name, args in MEASURES.items()] + [
    pytest.param(args, True, id=f'{name}, per example') for name, args in AT_ONE_POINT.items()
]
each_surrogate = pytest.mark.parametrize('surrogate', SURROGATES)
each_mode = pytest.mark.parametrize(('args', 'per_example'), MODES)


def margin_penalty(score, epsilon, surrogate):
    """Return the bound on ε times the step function: ε φ(z / ε)."""
    return SCALE[surrogate] * epsilon * unit_penalty(score / epsilon, surrogate)


def batch(n=30, n_classes=1, seed=0, share=0.3, dtype=torch.float64):
    """Return scores that are higher for positives, labels and ids."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=generator) < share).long()
    labels[:2] = torch.tensor([0, 1])
    if n_classes > 1:
        labels = torch.arange(n) % n_classes
    scores = 1.5 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    scores += (F.one_hot(labels, n_classes) if n_classes > 1 else labels.unsqueeze(1)).double()
    return scores.to(dtype), labels, torch.arange(n)


def value_and_gradient(loss, scores, *args, ids=None, **kwargs):
    """Value and gradient of a call, which has the ids of its examples where the loss needs them."""
    kwargs |= dict(ids=ids) if loss.per_example else {}
    scores = scores.detach().requires_grad_()
    value = loss(scores, *args, **kwargs)
    return value.item(), torch.autograd.grad(value, scores)[0]


def call(loss, scores, labels, ids=None, **kwargs):
    return loss(scores, labels, ids=ids if loss.per_example else None, **kwargs)


def seen_and_stepped(loss, scores, labels, ids=None, **how):
    """Call a loss, take its gradient, and run the step after it."""
    value_and_gradient(loss, scores, labels, ids=ids)
    loss.step(**how)
    return loss


def with_variables(loss, scores, labels):
    """The loss with the variables of a first call, which is not to count."""
    call(loss, scores, labels, torch.arange(len(scores)))
    loss.state.pending.zero_()
    if loss.examples is not None:
        loss.examples.waiting.clear()
    return loss


def is_finite(loss):
    if loss.examples is not None:
        n = len(loss.examples)
        of_positives = loss.examples.values[:n][loss.examples.positive[:n]]
        if not of_positives.isfinite().all() or loss.examples.values[:n].isinf().any():
            return False
    return loss.state is None or all(part.isfinite().all() for part in loss.state.as_dict().values())


def imbalanced(seed=0, n=4000, share=0.05, n_features=6):
    """Return a rare class of three modes that overlaps the other one."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=generator) < share).long()
    modes = torch.randn(3, n_features, generator=generator)
    modes = 2.4 * modes / modes.norm(dim=1, keepdim=True)
    features = torch.randn(n, n_features, generator=generator)
    return features + labels.unsqueeze(1) * modes[torch.randint(0, 3, (n,), generator=generator)], labels


def network(n_features=6, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, 1))
