"""What a killed training left, made fit to go on from."""

import os
import re
import sys
import zipfile
from pathlib import Path

from whole_file import whole_file

SAVED = re.compile(r'(iter|epoch)_\d+\.pth')


def name_a_whole_checkpoint(work_dir: str | Path) -> None:
    """Have ``last_checkpoint``, by which MMEngine resumes, name a checkpoint that is whole.

    MMEngine writes a checkpoint under its final name, and then the name into ``last_checkpoint``. A training that is
    killed meanwhile, or whose disk is full, leaves half a checkpoint, or a ``last_checkpoint`` that is empty or names a
    file that was removed to make room. Then the latest of the others takes its place.

    Raises:
        FileNotFoundError: If checkpoints were saved, and none of them is whole.
    """
    record = Path(work_dir) / 'last_checkpoint'
    if not record.exists():  # The training begins anew.
        return
    named = record.read_text().strip()
    if '://' in named or os.path.isdir(named) or is_whole(Path(named)):  # DeepSpeed saves folders.
        return
    folders = {Path(work_dir), Path(named).parent if named else Path(work_dir)}
    saved = [path.absolute() for folder in folders for path in folder.glob('*.pth') if SAVED.fullmatch(path.name)]
    whole = [path for path in saved if is_whole(path)]
    if not whole:
        raise FileNotFoundError(
            f'{record} names {named!r}, which is not there or not whole, and there is no other whole checkpoint. Train '
            'without resuming to begin anew. With `max_keep_ckpts=1` a training has no checkpoint while it writes the '
            'next; with 2 it always has one.'
        )
    latest = max(whole, key=lambda path: path.stat().st_mtime_ns)
    print(f'{record} names {named!r}, which is not there or not whole: going on from {latest}.', file=sys.stderr)
    with whole_file(record) as path:
        path.write_text(str(latest))


def is_whole(path: Path) -> bool:
    """Whether a checkpoint was written to its end, which is where a zip file has its directory."""
    return path.is_file() and zipfile.is_zipfile(path)
