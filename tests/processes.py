"""Run a part of a test in several processes that are joined by gloo."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

ROOT = Path(__file__).parents[1]


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def started(test_file: str, folder: Path, n_processes: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """Start processes of ranks 0, 1, ..., each of which runs a test file that calls `join_the_others`."""
    paths = [str(ROOT), str(ROOT / 'tests'), str(ROOT / 'tools'), os.environ.get('PYTHONPATH', '')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, paths)), 'OMP_NUM_THREADS': '1'}
    return [
        subprocess.Popen(
            [sys.executable, test_file, str(rank), str(n_processes), str(folder), *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n_processes)
    ]


def found_by_ranks(test_file: str, folder: Path, n_processes: int = 2) -> list[Any]:
    """Return the results of the processes by rank. The test file calls `find_as_a_process`."""
    processes = started(test_file, folder, n_processes)
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * n_processes, errors
    return [torch.load(folder / f'{rank}.pt') for rank in range(n_processes)]


def join_the_others(seconds: float = 120) -> tuple[int, Path, list[str]]:
    """Join the process group. Return the rank, the folder and further arguments; collectives wait that many seconds."""
    rank, n_processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = distributed.FileStore(str(folder / 'store'), n_processes)
    store.set(f'{rank} is there', '')
    store.wait([f'{other} is there' for other in range(n_processes)], timedelta(seconds=120))
    distributed.init_process_group(
        'gloo', store=store, rank=rank, world_size=n_processes, timeout=timedelta(seconds=seconds)
    )
    return rank, folder, sys.argv[4:]


def find_as_a_process(find: Callable[[int], Any]) -> None:
    """Join the process group and save the result of `find` for this rank in the folder."""
    rank, folder, _ = join_the_others()
    torch.save(find(rank), folder / f'{rank}.pt')
    distributed.barrier()  # with torch 2.2 the last one to leave may hang
    distributed.destroy_process_group()
