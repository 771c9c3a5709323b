"""Repair of the checkpoint record of a killed training run."""

import os
import re
import sys
import zipfile
from pathlib import Path

from whole_file import whole_file

SAVED = re.compile(r'(iter|epoch)_\d+\.pth')


def name_a_whole_checkpoint(work_dir: str | Path) -> None:
    """Make ``last_checkpoint``, from which MMEngine resumes, name a complete checkpoint.

    MMEngine writes a checkpoint under its final name, and then its name to ``last_checkpoint``. A kill or a full disk
    in between leaves an incomplete checkpoint, or a ``last_checkpoint`` that is empty or names a removed file. The name
    is then replaced by that of the latest complete checkpoint.

    Raises:
        FileNotFoundError: If checkpoints were saved, but none of them is complete.
    """
    record = Path(work_dir) / 'last_checkpoint'
    if not record.exists():  # Start from the beginning.
        return
    named = record.read_text().strip()
    if '://' in named or os.path.isdir(named) or is_whole(Path(named)):  # DeepSpeed saves folders
        return
    folders = {Path(work_dir), Path(named).parent if named else Path(work_dir)}
    saved = [path.absolute() for folder in folders for path in folder.glob('*.pth') if SAVED.fullmatch(path.name)]
    whole = [path for path in saved if is_whole(path)]
    if not whole:
        raise FileNotFoundError(
            f'{record} names {named!r}, which is not there or not whole, and there is no other complete checkpoint. '
            'Train without resuming to start again. With `max_keep_ckpts=1` there is no checkpoint while the next is '
            'written; with 2 there always is one.'
        )
    latest = max(whole, key=lambda path: path.stat().st_mtime_ns)
    print(f'{record} names {named!r}, which is not there or not whole: resuming from {latest}.', file=sys.stderr)
    with whole_file(record) as path:
        path.write_text(str(latest))


def is_whole(path: Path) -> bool:
    """Return whether a checkpoint is complete: a zip file has its directory at the end."""
    return path.is_file() and zipfile.is_zipfile(path)
