"""The Lovász extension of the Jaccard loss: exact, by histograms, and its proximal operator."""

from mmseg_nondecomp.functional.lovasz.extension import lovasz_extension
from mmseg_nondecomp.functional.lovasz.functions import lovasz_hinge, lovasz_softmax
from mmseg_nondecomp.functional.lovasz.prox import prox_lovasz_hinge

__all__ = ['lovasz_extension', 'lovasz_hinge', 'lovasz_softmax', 'prox_lovasz_hinge']
