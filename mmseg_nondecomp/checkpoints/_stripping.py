"""Strip checkpoint fields that MMEngine would act on when resuming."""

import os
from typing import Any


def strip_instructions(checkpoint: Any, source: str) -> Any:
    """Remove the fields of a checkpoint that MMEngine does not treat as data.

    When resuming, MMEngine executes ``meta['config']`` as Python to read the number of GPUs, and the hook that saves
    checkpoints deletes the files that the checkpoint names: the best one when a better one is saved, and the oldest
    ones. The text is removed. File names are kept only if they lie beside the checkpoint, where MMEngine itself puts
    these files, so that a resumed training deletes nothing else.
    """
    # Statements, not methods: a pickle can put a `pop` of its own on an OrderedDict, but not a `__delitem__`.
    meta = _part(checkpoint, 'meta')
    if 'config' in meta:
        del meta['config']
    info = _part(_part(checkpoint, 'message_hub'), 'runtime_info')
    path = os.path.realpath(os.path.expanduser(source))
    folder = os.path.dirname(path) if os.path.isfile(path) else None
    for name in [*info]:
        is_path = isinstance(name, str) and name.startswith('best_ckpt')
        if is_path and not _is_best_checkpoint(info[name], folder):
            del info[name]
    if 'keep_ckpt_ids' in info and not _are_integers(info['keep_ckpt_ids']):
        del info['keep_ckpt_ids']
    return checkpoint


def _part(whole: Any, name: str) -> dict:
    """Return the dict of this name in a dict; an empty one if there is none."""
    part = whole[name] if isinstance(whole, dict) and name in whole else None
    return part if isinstance(part, dict) else {}


def _is_best_checkpoint(path: Any, folder: str | None) -> bool:
    """Return whether MMEngine could have given this path to the best checkpoint of a training in this folder."""
    if not isinstance(path, str) or '\0' in path:
        return False
    return os.path.basename(path).startswith('best_') and os.path.realpath(os.path.dirname(path)) == folder


def _are_integers(steps: Any) -> bool:
    return isinstance(steps, list) and all(isinstance(step, int) for step in steps)
