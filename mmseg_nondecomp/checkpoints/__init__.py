"""Checkpoints of MMEngine, loaded without running code from them. Importing it needs MMEngine."""

from mmseg_nondecomp.checkpoints._loading import adapt_mmengine, load_from_local, load_from_url

__all__ = ['adapt_mmengine', 'load_from_local', 'load_from_url']
