"""Probability of each label to be in the top-k set."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import can_be_read, check_floating_point, check_k
from mmseg_nondecomp.functional.topk._symmetric_sums import BLOCK, log_elementary_symmetric


def topk_marginals(scores: Tensor, k: int, normalize: bool = True) -> Tensor:
    r"""Compute the probability of each label to be in the top-k set.

    The set A of k labels is drawn with weight :math:`e^{\sum_{j \in A} s_j}`:

    .. math:: p_i = \frac{e^{s_i} \sigma_{k-1}(e^{s_{\setminus i}})}{\sigma_k(e^s)}
       = \frac{\partial \log \sigma_k(e^s)}{\partial s_i}

    It has the shape of the scores and can be differentiated. With k = 1 it is the softmax. Average these probabilities
    over the crops of an image for a model trained with `smooth_topk_loss` (they are in appendix C of its paper), with
    its scores divided by ``k * tau``.

    Args:
        scores: The scores, of shape [..., C]; -inf for labels that do not exist.
        k: The size of the set, from 1 to C - 1.
        normalize: Whether to divide by k, for a sum of 1 instead of k.

    Raises:
        ValueError: If ``k`` is not from 1 to C - 1.

    Example:
        >>> topk_marginals(torch.tensor([2.0, 1.0, 0.0]), k=2, normalize=False)
        tensor([0.9100, 0.7553, 0.3348])
    """
    check_k(k, scores.shape[-1])
    check_floating_point('scores', scores)
    rows = scores.reshape(-1, scores.shape[-1])
    blocks = rows.split(max(1, BLOCK // scores.shape[-1])) if can_be_read(scores) else [rows]
    marginals = torch.cat([_marginals(block, k) for block in blocks]).view_as(scores)
    return marginals / k if normalize else marginals


def _marginals(scores: Tensor, k: int) -> Tensor:
    """Compute the gradient of the logarithm of the sum over all sets."""
    differentiable = torch.is_grad_enabled() and scores.requires_grad
    with torch.inference_mode(False), torch.enable_grad():
        x = scores if differentiable else scores.detach().clone().requires_grad_()
        total = log_elementary_symmetric(x, k)[..., k].sum()
        (marginals,) = torch.autograd.grad(total, x, create_graph=differentiable)
    return marginals
