"""Top-k losses, the probabilities of labels in the top-k set, and the symmetric polynomials behind both."""

from mmseg_nondecomp.functional.topk._symmetric_sums import log_elementary_symmetric
from mmseg_nondecomp.functional.topk.hard import hard_topk_loss
from mmseg_nondecomp.functional.topk.marginals import topk_marginals
from mmseg_nondecomp.functional.topk.smooth import smooth_topk_loss

__all__ = ['hard_topk_loss', 'log_elementary_symmetric', 'smooth_topk_loss', 'topk_marginals']
