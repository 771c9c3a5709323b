"""Images and inputs on which the Jaccard losses and loss max-pooling are tested."""

import torch

from mmseg_nondecomp.functional._inputs import Inputs


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
