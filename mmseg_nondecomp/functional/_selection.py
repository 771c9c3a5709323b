"""Selection of an order statistic without a sort, by counting digits of floating-point numbers.

The bit pattern of a non-negative float, read as an integer, grows with its value. One histogram of the leading bits
therefore finds the bin of the k-th largest number, and one more histogram of the next bits inside that bin narrows it
further, down to the exact number. Histograms are sums: several processes select from the union of their numbers by
adding up theirs, whatever the number of elements.
"""

import math

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Reduce

DIGIT_BITS = 12


def upper_bin_edge(values: Tensor, k: Tensor, precision: float, reduce: Reduce) -> Tensor:
    r"""Return an upper bound of the k-th largest value of each row, tight to a relative ``precision``.

    Values are floats without a sign, [R, P], among which a NaN may be; k, [R, 1], is real and at least 1. The result,
    [R, 1] in the dtype of the values, is the largest float :math:`e` of the bin that holds the
    :math:`\lceil k\rceil`-th largest value :math:`v`, so that :math:`v \le e \le (1 + \text{precision})\,v` and
    :math:`\#\{\text{values} > e\} < k`. With ``precision=0`` it is :math:`v` itself.
    """
    is_double = values.dtype == torch.float64
    integer, total_bits, exponent_bits = (torch.int64, 64, 11) if is_double else (torch.int32, 32, 8)
    # The sign takes one bit more. A bin that fixes j bits of the mantissa is 2^-j wide.
    bits_needed = total_bits if precision == 0 else 1 + exponent_bits + math.ceil(-math.log2(precision))
    pattern = values.view(integer)
    prefix = torch.zeros_like(k, dtype=integer)
    missing = k
    one = torch.ones((), dtype=torch.int32, device=values.device)
    low = total_bits
    while low > max(total_bits - bits_needed, 0):
        high, low = low, max(low - DIGIT_BITS, 0)
        n_bins = 1 << (high - low)
        digit = (pattern >> low).long()
        if high < total_bits:  # values outside the bin of the earlier digits go to an extra, unused bin
            digit = digit - (prefix << (high - low))
            digit = torch.where((digit >= 0) & (digit < n_bins), digit, n_bins)
        counts = torch.zeros((len(values), n_bins + 1), dtype=torch.int32, device=values.device)
        counts.scatter_add_(1, digit, one.expand_as(digit))
        from_top = reduce(counts.long())[:, :n_bins].flip(1).cumsum(1)
        place = (from_top < missing).sum(1, keepdim=True).clamp(max=n_bins - 1)
        above = torch.where(place > 0, from_top.gather(1, (place - 1).clamp(min=0)), 0)
        missing = missing - above
        prefix = (prefix << (high - low)) | (n_bins - 1 - place).to(integer)
    return (((prefix + 1) << low) - 1).view(values.dtype)
