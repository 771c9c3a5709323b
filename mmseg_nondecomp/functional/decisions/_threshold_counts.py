"""Numbers of probabilities at or above each threshold of a fixed grid, added over batches.

The grid is evenly spaced in the log-odds from -30 to 17, together with 0 and 1. Its thresholds are numbers of float32:
whether a probability reaches one of them is the same comparison here and at prediction.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Inputs, Reading, Reduce, at_least_float32, read_inputs, refuse

LOWEST, HIGHEST = -30.0, 17.0  # log-odds; float32 has no other probability between that of the highest and 1
ONE = 30  # a recall of 1 is 2 to this power, others are rounded down: sums of integers do not depend on their order


class ThresholdCounts:
    """Counts for each of K classes at each of B thresholds.

    Attributes:
        thresholds: Ascending thresholds of shape [B], float32; the first is 0.
        above: Numbers of negatives and of positives that reach a threshold, int64 of shape [K, 2, B].
        reached: Sum over images of the recall in the image, in units of ``2**-ONE``, int64 of shape [K, B].
        n_images: Number of images with positives, int64 of shape [K].
    """

    def __init__(self, classes: Sequence[int], bins: int, device: torch.device) -> None:
        self.classes = torch.tensor(list(classes), device=device)
        self.thresholds = threshold_grid(bins).to(device)
        n_classes, n_thresholds = len(classes), len(self.thresholds)
        self.above = torch.zeros(n_classes, 2, n_thresholds, dtype=torch.long, device=device)
        self.reached = torch.zeros(n_classes, n_thresholds, dtype=torch.long, device=device)
        self.n_images = torch.zeros(n_classes, dtype=torch.long, device=device)

    def add(self, inputs: Inputs, mode: str | None) -> None:
        """Add the items of a batch of logits.

        Raises:
            ValueError: If a probability is NaN.
        """
        probs = probabilities(inputs.scores.detach(), mode)
        message = 'Parameter `batches` should hold logits without NaN and without positive infinity.'
        refuse((probs.isnan() & inputs.valid.unsqueeze(1)).any(), message)
        one_hot = inputs.one_hot()
        for image, positive, valid in zip(probs, one_hot, inputs.valid, strict=True):
            self._add_image(image[self.classes], positive[self.classes] > 0.5, valid)

    def _add_image(self, probs: Tensor, positive: Tensor, valid: Tensor) -> None:
        """Add the items of an image: probabilities, and masks of positives [K, P] and of items that count [P]."""
        shape = self.above.shape
        place = torch.bucketize(probs, self.thresholds.to(probs.dtype), right=True) - 1
        row = torch.arange(shape[0], device=probs.device).unsqueeze(1) * 2 + positive
        index = torch.where(valid, row * shape[2] + place, self.above.numel())
        counts = torch.bincount(index.flatten(), minlength=self.above.numel() + 1)[:-1].view(shape)
        above = counts.flip(2).cumsum(2).flip(2)
        hits = above[:, 1]
        self.above += above
        self.reached += (hits << ONE) // hits[:, :1].clamp(min=1)
        self.n_images += hits[:, 0] > 0

    def sum_over_processes(self, reduce: Reduce) -> None:
        """Replace the counts by their sums over processes, on the CPU. A collective."""
        parts = (self.above, self.reached, self.n_images)
        sums = reduce(torch.cat([part.flatten() for part in parts])).cpu().split([part.numel() for part in parts])
        self.above, self.reached, self.n_images = (
            total.view(part.shape) for total, part in zip(sums, parts, strict=True)
        )
        self.thresholds = self.thresholds.cpu()


def threshold_grid(bins: int) -> Tensor:
    """Return the thresholds, float32; where they are closer than numbers of float32, there are fewer than ``bins``."""
    inner = torch.linspace(LOWEST, HIGHEST, max(1, bins - 2), dtype=torch.float64).sigmoid().float()
    return torch.cat([torch.zeros(1), inner, torch.ones(1)]).unique()


def read_logits(
    logits: Tensor, target: Tensor, ignore_index: int | None, mode: str | None, checked: dict[Any, int]
) -> Inputs:
    """Return logits and targets in the common layout. Several labels of an item need ``mode='multilabel'``."""
    several = mode == 'multilabel'
    reading = Reading(mode, overlaps=several, has_background=several, is_stated=mode is not None, is_crisp=True)
    return read_inputs(logits, target, None, ignore_index, reading, 'logits', checked)


def probabilities(logits: Tensor, mode: str | None) -> Tensor:
    """Return the probability of each class, from logits [N, C, *]: of a sigmoid, or of a softmax over the classes."""
    logits = at_least_float32(logits)
    return logits.sigmoid() if logits.shape[1] == 1 or mode == 'multilabel' else logits.softmax(1)
