"""Load files in processes of their own, any of which may die of it: ``python load_or_die.py FILE...``.

Prints a line of JSON for each file: what came of it.
"""

import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from pickle import UnpicklingError

ROOT = Path(__file__).parents[2]
MEMORY, SECONDS = 2 << 30, 30
"""Limits of a process: bytes beyond those at the start, seconds for a file."""
ORDERS = ('os.', 'subprocess.', 'socket.', 'shutil.', 'ctypes.', 'exec', 'pickle.', 'urllib.', 'import')
"""Events of Python that no data should bring about."""
QUIET = ('os.stat', 'os.listdir')
OWN = ('encodings.', 'torch.', 'numpy.')
"""Packages whose modules are imported when they are needed: for the name of an encoding, for an error."""


def outcomes(files, alone=False):
    """Return for each file the `status` of loading it, and its `error` or the `digest` of the content.

    Args:
        files: The files.
        alone: Whether each has a process of its own, which tells what `seconds` and `memory` (MB) it took.
    """
    paths = [str(ROOT), str(ROOT / 'tests')]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(paths), 'OMP_NUM_THREADS': '1'}
    command = [sys.executable, __file__, 'alone' if alone else 'together']
    names = '\n'.join(map(str, files))
    done = subprocess.run(command, input=names, env=environment, capture_output=True, text=True, check=True)
    found = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith('# ')]
    assert len(found) == len(files), done.stderr
    return dict(zip([Path(file).name for file in files], found, strict=True))


def digest(thing, hashed):
    import torch

    hashed.update(type(thing).__name__.encode())
    if isinstance(thing, dict):
        for key in thing:
            digest(key, hashed)
            digest(thing[key], hashed)
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            digest(item, hashed)
    elif isinstance(thing, torch.Tensor):
        hashed.update(repr((thing.dtype, tuple(thing.shape))).encode())
        hashed.update(
            thing.to_dense().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if thing.numel() else b''
        )
    elif hasattr(thing, 'tobytes'):
        hashed.update(thing.tobytes())
    elif hasattr(thing, '__dict__') and not callable(thing):
        digest(dict(sorted(vars(thing).items())), hashed)
    else:
        hashed.update(repr(thing).encode())


def load(file):
    from mmengine.runner import CheckpointLoader

    from mmseg_nondecomp.class_index import ClassIndex

    if file.endswith('.npz'):
        return vars(ClassIndex.load(Path(file)))
    return CheckpointLoader.load_checkpoint(file, map_location='cpu', logger='silent')


def watched(file, is_small):
    given = []
    watchers.append(given)
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(SECONDS)
    try:
        loaded = load(file)
    except Exception as error:
        found = {'status': type(error).__name__, 'error': str(error)}
    else:
        found = {'status': 'loaded'}
    signal.alarm(0)
    watchers.remove(given)
    if given:
        found['orders'] = given[:5]
    if found['status'] == 'loaded' and is_small:
        hashed = hashlib.blake2b(digest_size=8)
        digest(loaded, hashed)
        found['digest'] = hashed.hexdigest()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {'seconds': time.monotonic() - start, 'memory': (after - before) / 1024}


def import_what_loading_needs():
    """Load a checkpoint with a bit of everything, and what is none, so that later no module is imported."""
    import numpy as np
    import torch
    from mmengine.config import ConfigDict
    from mmengine.logging import HistoryBuffer

    content = {'a': HistoryBuffer([1.0], [1]), 'b': ConfigDict(a=np.ones((2, 2))), 'c': torch.eye(2).to_sparse()}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in (('a', {}), ('b', {'_use_new_zipfile_serialization': False})):
            torch.save(content, f'{folder}/{name}', **settings)
            load(f'{folder}/{name}')
        Path(folder, 'c').write_text('no checkpoint')
        with contextlib.suppress(UnpicklingError):
            load(f'{folder}/c')


watchers = []


def note(event, args):
    """Take down what Python says it does, while something is loaded."""
    if not watchers:
        return
    writes = event == 'open' and isinstance(args[1], str) and set(args[1]) & set('wax+')
    is_own = event == 'import' and args[0].startswith(OWN)
    if (writes or event.startswith(ORDERS)) and not (is_own or event in QUIET or is_importing()):
        watchers[-1].append(f'{event} {args[0]!r}'[:80])


def is_importing():
    """Return whether an import is running, which is noted itself."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get('__name__') == 'importlib._bootstrap':
            return True
        frame = frame.f_back
    return False


def main():
    """Work through the files, with one process after the other."""
    import mmseg_nondecomp  # noqa: F401

    files = sys.stdin.read().split('\n')
    import_what_loading_needs()
    sys.addaudithook(note)
    size = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    done = 0
    while done < len(files):
        end, start = os.pipe()
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
            alone = sys.argv[1] == 'alone'
            with open(start, 'w') as pipe:
                for file in files[done : done + 1] if alone else files[done:]:
                    pipe.write(f'# {json.dumps(watched(file, not alone))}\n')
                    pipe.flush()
            os._exit(0)
        os.close(start)
        with open(end) as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(pid, 0)
        print('\n'.join(lines))
        done += len(lines)
        if status:
            print(f'# {json.dumps({"status": "died", "error": f"signal {os.WTERMSIG(status)}"})}')
            done += 1


if __name__ == '__main__':
    main()
