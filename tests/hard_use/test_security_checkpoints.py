"""No checkpoint can run code, write a file or crash the interpreter."""

import io
import random
import tarfile
import zipfile

import numpy as np
import pytest
import torch

pytest.importorskip('mmengine')

from hard_use.forged_checkpoints import FORGED, HARMLESS, SHELL, running, write
from hard_use.load_or_die import outcomes
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer

from mmseg_nondecomp import SMeasureLoss

pytestmark = pytest.mark.skipif(
    torch.__version__ < '2.6', reason='older versions do not restrict `torch.load` by default'
)
N_ZIP, N_LEGACY = 3000, 2000
LEGACY = dict(_use_new_zipfile_serialization=False)


def assert_refused(found, path):
    assert found['status'] == 'UnpicklingError'
    assert str(path) in found['error']
    assert 'orders' not in found


def loaded(folder, pickles, **how):
    """Return for each checkpoint by its name the outcome of loading it, and its path."""
    paths = {name: folder / f'{number}.pth' for number, name in enumerate(pickles)}
    for name, path in paths.items():
        write(path, pickles[name])
    found = outcomes(paths.values(), **how)
    assert {path.name for path in folder.iterdir()} == set(found), 'nothing is written'
    return {name: (found[path.name], path) for name, path in paths.items()}


@pytest.fixture(scope='module')
def forged(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp('forged'), FORGED | HARMLESS, alone=True)


@pytest.mark.parametrize('name', FORGED)
def test_forged_checkpoints_are_refused(forged, name):
    found, path = forged[name]
    assert_refused(found, path)
    assert found['memory'] < 100
    assert found['seconds'] < 10


@pytest.mark.parametrize('name', HARMLESS)
def test_harmless_checkpoints_take_bounded_memory(forged, name):
    found, _ = forged[name]
    assert found['status'] == 'loaded'
    assert found['memory'] < 100


@pytest.fixture(scope='module')
def evil(tmp_path_factory):
    """The outcome of loading each pickle that would run something, and its path."""
    folder = tmp_path_factory.mktemp('evil')
    return loaded(folder, {name: running(*name.split(), folder / 'canary') for name in SHELL})


@pytest.mark.parametrize('name', SHELL)
def test_the_function_that_would_run_is_named(evil, name):
    found, path = evil[name]
    assert_refused(found, path)
    module, called = name.split()
    assert f'refers to `{"" if "builtin" in module else f"{module}."}{called}`' in found['error']


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


def script():
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), stream)
    return stream.getvalue()


def legacy_tar(canary):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode='w') as archive:
        for name in ('storages', 'tensors', 'pickle', '../escaped'):
            content = io.BytesIO()
            torch.save(Runs(canary), content, **LEGACY)
            info = tarfile.TarInfo(name)
            info.size = content.tell()
            content.seek(0)
            archive.addfile(info, content)
    return stream.getvalue()


def legacy_zip(canary):
    content, stream = io.BytesIO(), io.BytesIO()
    torch.save(Runs(canary), content, **LEGACY)
    with zipfile.ZipFile(stream, 'w') as archive:
        archive.writestr('../../escaped.pth', content.getvalue())
    return stream.getvalue()


def with_other_sizes(canary):
    """Return an archive whose directory states sizes beyond its content."""
    stream = io.BytesIO()
    torch.save({'a': torch.ones(100)}, stream)
    content = bytearray(stream.getvalue())
    for entry in range(content.index(b'PK\1\2'), len(content) - 46):
        if content[entry : entry + 4] == b'PK\1\2':
            content[entry + 20 : entry + 28] = b'\xf0\xff\xff\x7f' * 2
    return bytes(content)


def saved(canary, **settings):
    stream = io.BytesIO()
    torch.save({'state_dict': {}, 'meta': {'epoch': Runs(canary)}}, stream, **settings)
    return stream.getvalue()


ARCHIVES = {
    'zip': saved,
    'legacy': lambda canary: saved(canary, **LEGACY),
    'tar': legacy_tar,
    'zip of legacy': legacy_zip,
    'sizes': with_other_sizes,
    'pickle alone': lambda canary: b"cos\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR.",
    'TorchScript': lambda canary: script(),
    'NumPy': lambda canary: b'\x93NUMPY\x01\x00',
    'nothing': lambda canary: b'',
}


@pytest.fixture(scope='module')
def archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp('archives')
    for name, content in ARCHIVES.items():
        (folder / name).write_bytes(content(folder / 'canary'))
    found = outcomes([folder / name for name in ARCHIVES])
    assert {path.name for path in folder.iterdir()} == set(ARCHIVES), 'nothing is written'
    assert not any((folder.parents[up] / 'escaped').exists() for up in range(2))
    return found, folder


@pytest.mark.filterwarnings('ignore:`torch.jit:DeprecationWarning')
@pytest.mark.parametrize('name', ARCHIVES)
def test_no_kind_of_archive_runs(archives, name):
    found, folder = archives
    events = {event.split()[0] for event in found[name].pop('orders', [])}
    assert events <= ({'os.mkdir', 'os.rmdir', 'os.scandir', 'shutil.rmtree', 'os.remove'} if name == 'tar' else set())
    assert_refused(found[name], folder / name)


def whole_checkpoint():
    loss = SMeasureLoss()
    loss(torch.randn(2, 3, 4, 4).requires_grad_(), torch.randint(0, 3, (2, 4, 4)))
    model = torch.nn.ModuleDict({'conv': torch.nn.Conv2d(1, 2, 3), 'loss': loss})
    hub = {'log_scalars': {'loss': HistoryBuffer([1.0, 2.0], [1, 1])}, 'resumed_keys': {'loss': True}}
    return {
        'state_dict': model.state_dict(),
        'message_hub': hub | {'runtime_info': {'iter': 3, 'best': np.float64(3)}},
        'meta': {'palette': np.arange(6).reshape(2, 3), 'config': ConfigDict(a=[1, {'b': 2}]), 'names': ('a', 'b')},
        'param_schedulers': [{'function': HistoryBuffer.min}],
        'mask': torch.eye(3).to_sparse(),
    }


def damaged(content, rng):
    """Return a copy with one to sixteen places changed, sometimes truncated."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        place, kind = rng.randrange(len(content)), rng.randrange(4)
        if kind == 0:
            content[place] = rng.randrange(256)
        elif kind == 1:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del content[place : place + rng.choice([1, 2, 8, 64])]
        else:
            content[place:place] = rng.randbytes(rng.choice([1, 2, 8]))
    return bytes(content[: rng.randrange(len(content))] if rng.random() < 0.05 else content)


def fuzzed(folder, content, number, suffix='pth'):
    """Return the outcomes of loading a file and damaged copies of it."""
    rng = random.Random(0)
    (folder / f'whole.{suffix}').write_bytes(content)
    for copy in range(number):
        (folder / f'{copy}.{suffix}').write_bytes(damaged(content, rng))
    found = outcomes([folder / f'whole.{suffix}', *(folder / f'{copy}.{suffix}' for copy in range(number))])
    assert len(list(folder.iterdir())) == number + 1, 'nothing is written'
    whole = found.pop(f'whole.{suffix}')
    assert whole['status'] == 'loaded'
    return whole, found


@pytest.mark.parametrize(('settings', 'number'), [(dict(), N_ZIP), (LEGACY, N_LEGACY)], ids=['zip', 'legacy'])
def test_no_damage_runs_code_or_kills_the_interpreter(tmp_path, settings, number):
    stream = io.BytesIO()
    torch.save(whole_checkpoint(), stream, **settings)
    whole, found = fuzzed(tmp_path, stream.getvalue(), number)
    assert {one['status'] for one in found.values()} == {'loaded', 'UnpicklingError'}
    assert not [one for one in found.values() if 'orders' in one]
    if not settings:  # A legacy file has no checksums.
        assert {one['digest'] for one in found.values() if one['status'] == 'loaded'} == {whole['digest']}
