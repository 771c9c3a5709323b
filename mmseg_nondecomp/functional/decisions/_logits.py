"""Probabilities of logits at a temperature, and logits of the probability of a single channel."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import activate, at_least_float32, check_floating_point, check_tensor


def class_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return the softmax of logits [N, C, *], or the sigmoid of a single channel, at a temperature."""
    check_tensor('logits', logits)
    check_floating_point('logits', logits)
    if logits.dim() < 2 or logits.shape[1] == 0:
        raise ValueError(f'Parameter `logits` should be of shape [N, C, *]. Found {tuple(logits.shape)}.')
    scores = at_least_float32(logits)
    scores = scores if temperature == 1 else scores / temperature
    return activate(scores, 'softmax' if logits.shape[1] > 1 else 'sigmoid')


def logits_of_probability(probs: Tensor) -> Tensor:
    """Return the logits of probabilities; they are finite where a sigmoid was rounded to 0 or 1."""
    probs = at_least_float32(probs)
    limits = torch.finfo(probs.dtype)
    return probs.clamp(limits.tiny, 1 - limits.eps / 2).logit()
