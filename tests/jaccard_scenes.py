"""Images and inputs on which the Jaccard losses and loss max-pooling are tested."""

import numpy as np
import torch
import torch.nn.functional as F

from mmseg_nondecomp.functional._inputs import Inputs

LOGITS = {
    'random': lambda x, labels: x,
    'confident': lambda x, labels: 3 * x + 8 * labels,
    'collapsed': lambda x, labels: x + 4 * torch.eye(x.shape[1], dtype=x.dtype)[0].view(1, -1, *[1] * (x.dim() - 2)),
    'wrong': lambda x, labels: x - 40 * labels,
    'tied': lambda x, labels: x.round(),
    'flat': lambda x, labels: 0 * x,
}


def scene(n_classes, family='random', shape=(3, 50), seed=0, dtype=torch.float64):
    """Return logits and labels; the last class is in one pixel of the first image."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(max(1, n_classes - 1), shape, generator=generator)
    target[0].view(-1)[0] = n_classes - 1
    x = torch.randn(shape[0], n_classes, *shape[1:], generator=generator, dtype=torch.float64)
    return LOGITS[family](x, one_hot(target, n_classes)).to(dtype), target


def one_hot(target, n_classes):
    return F.one_hot(target, n_classes).movedim(-1, 1)


def soft_labels(n_classes, n_pixels=50, seed=1):
    """Return soft labels of three images; where there are several, they add up to 1."""
    shares = np.random.default_rng(seed).dirichlet(np.full(max(n_classes, 2), 0.3), (3, n_pixels))
    return torch.tensor(shares).movedim(2, 1)[:, :n_classes]


def batch(n_channels=5):
    """Return logits and labels of three images.

    A part of the first image and all of the last are ignored. With three channels or more, the last class is absent.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, n_channels, 6, 8, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(0, max(n_channels - 1, 2), (3, 6, 8), generator=generator)
    labels[0, :2] = labels[-1] = 255
    return logits.requires_grad_(), labels


def several_labels(n_channels):
    """Return a target of 0 and 1 for each channel of the batch."""
    return torch.rand(3, n_channels, 6, 8, generator=torch.Generator().manual_seed(1)).round().double()


def inputs_of(scores, target, mass):
    """Return the inputs of scores [N, C, P]; masses are whole numbers of 0 and 1, or weights."""
    scores, target, mass = (torch.as_tensor(part) for part in (scores, target, mass))
    valid = mass > 0
    none = valid.unsqueeze(1) if target.is_floating_point() else valid
    target = target.masked_fill(~none, 0 if target.is_floating_point() else scores.shape[1])
    return Inputs(scores, target, valid, mass if mass.is_floating_point() else None, valid.shape)


def assert_same_loss(found, expected, logits, **tolerance):
    """Compare two losses of the same logits, and their gradients."""
    torch.testing.assert_close(found, expected, **tolerance)
    gradients = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (found, expected))
    torch.testing.assert_close(*gradients, **tolerance)
