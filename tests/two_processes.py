"""Run a part of a test in two processes that are joined by gloo."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

ROOT = Path(__file__).parents[1]


def found_by_two_processes(test_file: str, folder: Path) -> list[Any]:
    """What the processes with rank 0 and 1 found, each of which runs a test file that calls `find_as_a_process`."""
    paths = [str(ROOT), str(ROOT / 'tests'), os.environ.get('PYTHONPATH', '')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, paths)), 'OMP_NUM_THREADS': '1'}
    processes = [
        subprocess.Popen([sys.executable, test_file, str(rank), folder], env=environment, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], errors
    return [torch.load(folder / f'{rank}.pt') for rank in range(2)]


def find_as_a_process(find: Callable[[int], Any]) -> None:
    """Be one of the two processes: join the other, and leave what is found for a rank in the folder."""
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    store = distributed.FileStore(str(folder / 'store'), 2)
    distributed.init_process_group('gloo', store=store, rank=rank, world_size=2)
    torch.save(find(rank), folder / f'{rank}.pt')
    distributed.destroy_process_group()
