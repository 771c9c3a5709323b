"""What MMEngine would do at the word of a checkpoint that it resumes."""

import os
from typing import Any


def without_orders(checkpoint: Any, source: str) -> Any:
    """Takes from a checkpoint what MMEngine does not take for data.

    Resuming runs ``meta['config']`` as Python, to see how many GPUs there were. And it tells the hook that saves
    checkpoints which ones it is to delete: the best one when a better one comes, and those that are too many. The text
    is taken away, and names of files are kept only where MMEngine itself would have put the files: beside the
    checkpoint, so that a resumed training deletes nothing else.

    Args:
        checkpoint: What was loaded; it is changed.
        source: The path or address that it was loaded from.

    Returns:
        The same checkpoint.
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
    if 'keep_ckpt_ids' in info and not _are_numbers(info['keep_ckpt_ids']):
        del info['keep_ckpt_ids']
    return checkpoint


def _part(whole: Any, name: str) -> dict:
    """A dict in a dict; an empty one where there is none, which MMEngine fails on or does without."""
    part = whole[name] if isinstance(whole, dict) and name in whole else None
    return part if isinstance(part, dict) else {}


def _is_best_checkpoint(path: Any, folder: str | None) -> bool:
    """Whether it is a path that MMEngine gives to the best checkpoint of a training in this folder."""
    if not isinstance(path, str) or '\0' in path:
        return False
    name = os.path.basename(path)
    return name.startswith('best_') and os.path.realpath(os.path.dirname(path)) == folder


def _are_numbers(steps: Any) -> bool:
    return isinstance(steps, list) and all(isinstance(step, int) for step in steps)
