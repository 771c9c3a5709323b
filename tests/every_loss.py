"""Every registered loss with constructor arguments. An entry in CASES adds a loss to all tests of the contract."""

import math

import pytest
import torch

import mmseg_nondecomp

SOFTMAX, SIGMOID = 'softmax', 'sigmoid'
CASES = {
    'LossMaxPooling': [
        (SOFTMAX, dict()),
        (SOFTMAX, dict(p=1, scope='batch', loss_weight=0.5)),
        (SOFTMAX, dict(p=math.inf, class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
        (SIGMOID, dict(pixel_loss='bce', scope='world')),
        (SIGMOID, dict(pixel_loss='focal', ratio=0.5)),
    ],
    'LovaszSoftmaxLoss': [
        (SOFTMAX, dict()),
        (SOFTMAX, dict(bins=None, scope='image', loss_weight=0.5)),
        (SOFTMAX, dict(classes='all', class_weight=[1.0, 2.0, 3.0, 4.0, 5.0], scope='world')),
        (SIGMOID, dict(use_sigmoid=True, scope='image')),
        (SIGMOID, dict(use_sigmoid=True, bins=None, classes=[0, 2])),
        (SOFTMAX, dict(scope='class')),
    ],
    'LovaszHingeLoss': [
        (SIGMOID, dict()),
        (SIGMOID, dict(bins=None, scope='image')),
        (SIGMOID, dict(classes='present', scope='world', class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
    ],
    'DirectAPLoss': [
        (SIGMOID, dict()),
        (SIGMOID, dict(update='negative', epsilon=1.0, per_class=False)),
        (SIGMOID, dict(update='hinge', scope='image', class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
        (SIGMOID, dict(update='perceptron', scope='world', loss_weight=0.5)),
    ],
    'DirectZeroOneLoss': [
        (SIGMOID, dict(epsilon=4.0)),
        (SIGMOID, dict(update='negative', epsilon=4.0, per_class=False)),
        (SIGMOID, dict(update='hinge', scope='image', class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
    ],
    'SMeasureLoss': [
        (SIGMOID, dict()),
        (SIGMOID, dict(measure='precision_at_recall', target=0.8, surrogate='hinge', loss_weight=0.5)),
        (SIGMOID, dict(measure='recall_at_precision', target=0.4, proxy=False, scope='world')),
        (SIGMOID, dict(measure='auc_roc', anchors=3, class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
    ],
    'SmoothTopKLoss': [
        (SOFTMAX, dict(k=2)),
        (SOFTMAX, dict(k=1, tau=0.1, loss_weight=0.5)),
        (SOFTMAX, dict(k=4, margin=0.0)),
    ],
    'HardTopKLoss': [(SOFTMAX, dict(k=2)), (SOFTMAX, dict(k=4, margin=2.0, loss_weight=0.5))],
    'SoftIoULoss': [
        (SOFTMAX, dict()),
        (SOFTMAX, dict(classes='all', scope='image', class_weight=[1.0, 2.0, 3.0, 4.0, 5.0])),
        (SIGMOID, dict(use_sigmoid=True, scope='world')),
        (SOFTMAX, dict(alpha=0.3, beta=0.7)),
        (SOFTMAX, dict(alpha=0.5, beta=0.5, scope='class')),
    ],
}
EVERY = [pytest.param(name, args, id=f'{name} {args}') for name, cases in CASES.items() for _, args in cases]
WITH_SOFTMAX = [
    pytest.param(name, args, id=f'{name} {args}')
    for name, cases in CASES.items()
    for activation, args in cases
    if activation == SOFTMAX
]
N_CLASSES = 5
WRAPPERS = {'MaskLoss', 'MetricLoss', 'SumOfLosses'}
"""Registered modules that call other losses."""
every_loss = pytest.mark.parametrize(('name', 'args'), EVERY)


def every_loss_but(*names):
    return pytest.mark.parametrize(('name', 'args'), [case for case in EVERY if case.values[0] not in names])


def build(name, args):
    return getattr(mmseg_nondecomp, name)(**args)


def in_box_heads(name, args):
    """Return the arguments of a loss in the box heads of MMDetection."""
    return args | dict(use_sigmoid=True) if name.startswith('Direct') else args


def pixels(dtype=torch.float32, requires_grad=True):
    """Return logits and labels of a batch of two images."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, N_CLASSES, 6, 8, generator=generator, dtype=torch.float64).mul(3).to(dtype)
    labels = torch.randint(0, N_CLASSES, (2, 6, 8), generator=generator)
    return logits.requires_grad_(requires_grad), labels


def items():
    logits, labels = pixels(requires_grad=False)
    return logits.movedim(1, -1).reshape(-1, N_CLASSES).requires_grad_(), labels.flatten()
