"""Scores of items that are partly masked, and of their labels."""

from typing import Any

from torch import Tensor
from torch.autograd import Function


def label_scores(scores: Tensor, label: Tensor, masked: Tensor, fill: float) -> tuple[Tensor, Tensor]:
    """Mask scores, and gather those of the labels, which are not masked.

    Args:
        scores: Of shape [N, C, P].
        label: A class of each item, int64 of shape [N, 1, P].
        masked: Which scores are replaced, bool, broadcastable to the scores.
        fill: What replaces them.

    Returns:
        The masked scores, of shape [N, C, P], and the scores of the labels, of shape [N, 1, P].
    """
    return _LabelScores.apply(scores, label, masked, fill)


class _LabelScores(Function):
    """Adds the gradient of the labels in place, where autograd would add two tensors of the size of the scores."""

    @staticmethod
    def forward(scores: Tensor, label: Tensor, masked: Tensor, fill: float) -> tuple[Tensor, Tensor]:
        return scores.masked_fill(masked, fill), scores.gather(1, label)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_labels: Tensor) -> tuple[Tensor, None, None, None]:
        label, masked = ctx.saved_tensors
        return of_scores.masked_fill(masked, 0).scatter_add_(1, label, of_labels), None, None, None
