"""Decisions that maximise the expected IoU or Dice of an image."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    MODES,
    at_least_float32,
    check_bins,
    check_floating_point,
    check_number,
    check_option,
    check_probabilities,
    check_tensor,
)
from mmseg_nondecomp.functional.decisions._coordinate_ascent import decide_classes
from mmseg_nondecomp.functional.decisions._expectations import EXPECTATIONS, MEASURES, Goal
from mmseg_nondecomp.functional.decisions._one_class import decide_one_class
from mmseg_nondecomp.functional.decisions._single_pixels import decide_pixel_by_pixel

FEW = 64  # number of pixels up to which they are decided one by one


def decide_overlap(
    probs: Tensor,
    measure: str = 'iou',
    bins: int | None = 1024,
    mode: str | None = None,
    expectation: str = 'exact',
    zero_division: float = 0.0,
    min_probability: float = 0.0,
) -> Tensor:
    r"""Decide each image for the highest expected IoU or Dice.

    The pixels of an image are independent, with the given probabilities. For one class the result is

    .. math:: \arg\max_{D}\; \mathbb{E}\,\frac{|D \cap Y|}{|D \cup Y|}
       \qquad\text{or}\qquad \arg\max_{D}\; \mathbb{E}\,\frac{2 |D \cap Y|}{|D| + |Y|},

    where Y is the random set of the pixels of the class. It holds the pixels whose probability is above a threshold, at
    most 1/2, that depends on the image. For several classes without overlap the sum of their expectations is maximised
    by coordinate ascent, up to a local optimum.

    Args:
        probs: The probabilities, of shape [N, C, *]; items without a position, [N, C], are one image. They have to be
            calibrated: see :class:`mmseg_nondecomp.functional.decisions.Temperature`.
        measure: ``'iou'`` or ``'dice'``.
        bins: The resolution of the histogram of the probabilities of a class; pixels in the same bin, of a width of at
            most 1 / (2 bins), are decided alike. With ``None`` probabilities are sorted, and several classes are
            decided pixel by pixel, which is slow.
        mode: ``'multiclass'`` for classes without overlap, ``'multilabel'`` for channels that are decided separately,
            ``'binary'`` for a single channel. By default a single channel is binary, several are multiclass.
        expectation: ``'exact'``, or one of the approximations of Nowozin: ``'first_order'``, the ratio of the
            expectations of numerator and denominator, or ``'second_order'``, with their variance and covariance.
        zero_division: The measure of a class that is neither true nor decided, in [0, 1]. With 0 every class is decided
            somewhere if that adds anything.
        min_probability: A class whose highest probability in an image is lower is not decided there; of classes without
            overlap, unless all are lower. It keeps absent classes from being decided on a few pixels, which costs
            little in expectation.

    Returns:
        The decided classes, int64 of shape [N, *]; of a single channel 0 or 1. With ``'multilabel'``, bool of shape
        [N, C, *]. A pixel with a NaN goes to the class of its first NaN; of a single channel it is 0.

    Raises:
        TypeError: If ``probs`` is not a floating-point tensor.
        ValueError: If a shape or an argument is out of range.

    Example:
        >>> probs = torch.tensor([[[0.9, 0.45, 0.45, 0.1, 0.1]]])
        >>> decide_overlap(probs)
        tensor([[1, 1, 1, 0, 0]])

        As one of two classes, where the IoU of the other one counts as much:

        >>> decide_overlap(torch.cat([1 - probs, probs], 1))
        tensor([[1, 0, 0, 0, 0]])

    Reference:
        S. Nowozin: Optimal Decisions from Probabilistic Models: The Intersection-over-Union Case. CVPR 2014.
        B. Dai, C. Li: RankSEG: A Consistent Ranking-based Framework for Segmentation. JMLR 24, 2023.
    """
    mode = _check(probs, bins, mode)
    goal = goal_of(measure, expectation, zero_division, min_probability)
    return decide_with_limits(probs, goal, [min_probability], mode, bins)[0]


def goal_of(measure: str, expectation: str, zero_division: float, min_probability: float) -> Goal:
    """Check settings of `decide_overlap` and return what is maximised."""
    check_option('measure', measure, MEASURES)
    check_option('expectation', expectation, EXPECTATIONS)
    check_number('zero_division', zero_division, '[0, 1]')
    check_number('min_probability', min_probability, '[0, 1]')
    return Goal(measure, expectation, float(zero_division))


@torch.no_grad()
def decide_with_limits(
    probs: Tensor, goal: Goal, limits: Sequence[float], mode: str, bins: int | None = 1024
) -> Tensor:
    """Return the decisions [L, N, *] or [L, N, C, *] with each limit as ``min_probability``."""
    flat, shape = at_least_float32(probs), probs.shape
    flat = flat.t().unsqueeze(0) if flat.dim() == 2 else flat.flatten(2)
    n_limits, n_images = len(limits), len(flat)
    lowest = flat.new_tensor(limits).repeat_interleave(n_images).unsqueeze(1)
    if flat.numel() == 0:
        empty = torch.zeros(n_limits, *shape, dtype=torch.bool, device=flat.device)
        return empty if mode == 'multilabel' else torch.zeros_like(empty[:, :, 0], dtype=torch.int64)
    if mode == 'multiclass':
        one_by_one = bins is None or flat.shape[2] <= FEW
        decide = decide_pixel_by_pixel if one_by_one else decide_classes
        return decide(flat.repeat(n_limits, 1, 1) if n_limits > 1 else flat, goal, lowest).view(
            -1, len(probs), *shape[2:]
        )
    decided = decide_one_class(flat.flatten(0, 1), goal, bins).view_as(flat)
    is_likely = (flat.nan_to_num(0).amax(2) >= lowest.view(n_limits, n_images, 1)).unsqueeze(3)
    decided = decided & is_likely
    decided = decided[:, 0].transpose(1, 2) if len(shape) == 2 else decided.view(n_limits, *shape)
    return decided if mode == 'multilabel' else decided.squeeze(2).long()


def _check(probs: Tensor, bins: int | None, mode: str | None) -> str:
    """Check the probabilities and return the mode."""
    check_tensor('probs', probs)
    check_floating_point('probs', probs)
    if probs.dim() < 2 or probs.shape[1] == 0:
        raise ValueError(f'Parameter `probs` should be of shape [N, C, *]. Found {tuple(probs.shape)}.')
    check_probabilities('probs', probs)
    check_bins(bins)
    if mode is None:
        return 'binary' if probs.shape[1] == 1 else 'multiclass'
    check_option('mode', mode, MODES)
    if (mode == 'binary') != (probs.shape[1] == 1) and mode != 'multilabel':
        raise ValueError(
            f'Parameter `probs` should have {"one channel" if mode == "binary" else "a channel for each class"} with '
            f'`mode={mode!r}`. Found {tuple(probs.shape)}.'
        )
    return mode
