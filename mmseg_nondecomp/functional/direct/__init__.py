"""Direct loss minimisation: losses that are steps, with a gradient from two labellings."""

from mmseg_nondecomp.functional.direct._rankings import loss_augmented_ranking
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_loss
from mmseg_nondecomp.functional.direct.general import direct_loss
from mmseg_nondecomp.functional.direct.zero_one import direct_zero_one_loss

__all__ = ['direct_ap_loss', 'direct_loss', 'direct_zero_one_loss', 'loss_augmented_ranking']
