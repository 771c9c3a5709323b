"""Trainings that are stopped half-way."""

from pathlib import Path


def stop_at(iteration: int, through: Path, stopped: Path) -> None:
    """Write a folder as if the training of another folder had been stopped after a checkpoint."""
    stopped.mkdir()
    checkpoint = stopped / f'iter_{iteration}.pth'
    checkpoint.write_bytes((through / checkpoint.name).read_bytes())
    (stopped / 'last_checkpoint').write_text(str(checkpoint))
