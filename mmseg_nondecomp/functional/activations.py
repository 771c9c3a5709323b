"""Activations of a head, for losses that apply them block by block instead of to all pixels at once."""

import torch
from torch import Tensor

Activation = str | None
"""``'softmax'``, ``'sigmoid'`` or ``'margin'`` (one more than the logit); None for scores that are final."""


def activate(logits: Tensor, activation: Activation) -> Tensor:
    """Return the scores of logits [N, C, *]."""
    if activation == 'softmax':
        return logits.softmax(1)
    if activation == 'sigmoid':
        return logits.sigmoid()
    return logits + 1 if activation == 'margin' else logits


def pull_back(gradient: Tensor, scores: Tensor, activation: Activation) -> Tensor:
    """Return the gradient with respect to the logits, given that with respect to the scores."""
    if activation == 'softmax':
        return torch.ops.aten._softmax_backward_data(gradient, scores, 1, scores.dtype)
    return torch.ops.aten.sigmoid_backward(gradient, scores) if activation == 'sigmoid' else gradient
