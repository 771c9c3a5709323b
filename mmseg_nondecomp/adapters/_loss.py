"""The argument ``loss`` of the adapters, and predictions that are probabilities."""

from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp import losses
from mmseg_nondecomp.functional._inputs import (
    PROBABILITY_TOLERANCE,
    SHARE_TOLERANCE,
    at_least_float32,
    check_floating_point,
    check_tensor,
    is_due,
    refuse,
)
from mmseg_nondecomp.losses._base import SetLoss
from mmseg_nondecomp.losses._recommended import CrossEntropy
from mmseg_nondecomp.losses.metric_loss import metric_loss
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss


def as_loss(loss: nn.Module | type[nn.Module] | str, **settings: Any) -> nn.Module:
    """Return a loss as it is, or build it with settings from its class or from the name of a measure."""
    if isinstance(loss, str) and loss in losses.__all__:
        raise ValueError(
            f"Parameter `loss` should be a loss, its class, or the name of a measure such as 'miou'. Found {loss!r}: "
            f'pass `mmseg_nondecomp.{loss}` instead of its name.'
        )
    if isinstance(loss, str):
        return metric_loss(loss, **settings)
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        return loss(**settings)
    if not isinstance(loss, nn.Module):
        raise TypeError(
            "Parameter `loss` should be a loss such as `LovaszSoftmaxLoss()` or the name of a measure such as 'miou'. "
            f'Found {loss!r}.'
        )
    return loss


def as_loss_with(loss: nn.Module | type[nn.Module] | str, **settings: Any) -> nn.Module:
    """Return `as_loss`; raise ValueError if a loss that is passed as it is has other settings."""
    built = as_loss(loss, **settings)
    for part in parts_of(built) if built is loss else []:
        for name, value in settings.items():
            found = getattr(part, name, None)
            if found is None and name == 'ignore_index':  # that of a sum
                found = getattr(built, name, None)
            found = found.tolist() if isinstance(found, Tensor) else found
            is_free = value is None or (name == 'scope' and isinstance(part, CrossEntropy))
            if not is_free and value != found:
                raise ValueError(
                    f'Parameter `loss` should have `{name}={value!r}`, as the other arguments state. Found '
                    f'{type(part).__name__} with `{name}={found!r}`; pass the class, or set it in the constructor.'
                )
    return built


def refuse_multipliers(loss: nn.Module, framework: str) -> None:
    """Raise TypeError if a loss has multipliers, where a framework has no place to update and store them."""
    if any(isinstance(part, SMeasureLoss) for part in loss.modules()):
        raise TypeError(
            f'Parameter `loss` should be a loss without multipliers, such as LovaszSoftmaxLoss: {framework} neither '
            f'updates nor stores those of SMeasureLoss. Found {loss}.'
        )


def parts_of(loss: nn.Module) -> list[SetLoss]:
    """Return the losses of sets that a loss consists of: several for a sum, otherwise the loss itself."""
    return [part for part in loss.modules() if isinstance(part, SetLoss)]


def logits_of(probs: Tensor, mode: str, name: str, hint: str, checked: dict[Any, int]) -> Tensor:
    """Return logits whose softmax, or in modes other than ``'multiclass'`` whose sigmoid, are the probabilities."""
    check_tensor(name, probs)
    check_floating_point(name, probs)
    if is_due(probs, name, probs.dim(), checked=checked):
        outside = (probs < -PROBABILITY_TOLERANCE) | (probs > 1 + PROBABILITY_TOLERANCE)
        refuse(outside, f'Parameter `{name}` should hold probabilities in [0, 1].', probs, f' Instead: {hint}')
        total = probs.sum(1) if mode == 'multiclass' and probs.dim() > 1 else probs.new_ones(1)
        message = f"Parameter `{name}` should add up to 1 over the classes with `mode='multiclass'`."
        hint = " Use a softmax, or `mode='multilabel'` for several labels."
        refuse((total - 1).abs() > SHARE_TOLERANCE, message, total, hint)
    probs = at_least_float32(probs)
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps).log() if mode == 'multiclass' else probs.clamp(eps, 1 - eps).logit()
