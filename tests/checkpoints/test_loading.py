"""Checkpoints of MMEngine load on torch >= 2.6, and nothing in them runs."""

import http.server
import os
import pickle
import re
import sys
import threading
import uuid
from functools import partial
from importlib import metadata
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from torch import nn, serialization

pytest.importorskip('mmengine')

from checkpoints.pickled import Call, load, save
from mmengine.config import ConfigDict
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.runner import CheckpointLoader, Runner, checkpoint
from mmengine.utils import get_installed_path

from mmseg_nondecomp.checkpoints import adapt_mmengine
from mmseg_nondecomp.checkpoints._loading import FOLDER

pytestmark = pytest.mark.skipif(
    torch.__version__ < '2.6', reason='older versions do not restrict `torch.load` by default'
)
RECONSTRUCT = np.array([0]).__reduce__()[0]


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return {'loss': self.linear(torch.stack(inputs)).square().mean()}


METAINFO = {
    'classes': ('sky', 'road'),
    'palette': np.arange(6, dtype='u1').reshape(2, 3).T,
    'frequency': np.float32(0.25),
    'source': ConfigDict(a=[ConfigDict(b=1), {'c': (2, {'d': 3})}], e=ConfigDict(f=None)),
}


class Data(torch.utils.data.Dataset):
    metainfo = METAINFO

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {'inputs': torch.full((2,), float(index))}


def make_runner(work_dir, iterations, ema=True, **settings):
    return Runner(
        Model(),
        str(work_dir),
        train_dataloader={'dataset': Data(), 'batch_size': 2, 'sampler': {'type': 'DefaultSampler', 'shuffle': False}},
        train_cfg={'by_epoch': False, 'max_iters': iterations},
        optim_wrapper={'optimizer': {'type': 'Adam', 'lr': 0.1}},
        param_scheduler=[
            {'type': 'OneCycleLR', 'eta_max': 0.1, 'total_steps': 9, 'by_epoch': False},
            {'type': 'MultiStepLR', 'milestones': [3], 'by_epoch': False},
        ],
        default_hooks={'checkpoint': {'type': 'CheckpointHook', 'interval': 2, 'by_epoch': False}},
        custom_hooks=[{'type': 'EMAHook'}] if ema else [],
        experiment_name=uuid.uuid4().hex,
        log_level='ERROR',
        **settings,
    )


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A runner after two iterations, and the path of what it saved."""
    work_dir = tmp_path_factory.mktemp('trained')
    runner = make_runner(work_dir, 2)
    runner.train()
    return runner, str(work_dir / 'iter_2.pth')


class Subclass(HistoryBuffer):
    pass


def nested(depth):
    """A list that holds a number ten to the power of `depth` times, in `depth` small lists."""
    held = [1.0] * 10
    for _ in range(depth - 1):
        held = [held] * 10
    return held


def test_resume(trained, tmp_path):
    runner = make_runner(tmp_path, 4, resume=True, load_from=trained[1])
    runner.train()
    assert runner.iter == 4
    losses, _ = runner.message_hub.get_scalar('train/loss').data
    assert len(losses) == 4
    assert np.array_equal(losses[:2], trained[0].message_hub.get_scalar('train/loss').data[0])


def test_load_from(trained, tmp_path):
    runner = make_runner(tmp_path, 2, ema=False, load_from=trained[1])
    runner.load_or_resume()
    assert runner.iter == 0
    trusted = torch.load(trained[1], weights_only=False)
    assert torch.equal(runner.model.linear.weight, trusted['state_dict']['linear.weight'])


def test_everything_is_restored(trained):
    loaded = load(trained[1])
    meta = loaded['meta']['dataset_meta']
    assert meta['classes'] == ('sky', 'road')
    assert np.array_equal(meta['palette'], METAINFO['palette'])
    assert meta['palette'].dtype == np.uint8
    assert type(meta['frequency']) is np.float32
    assert type(meta['source']) is ConfigDict
    assert meta['source'] == METAINFO['source']
    assert meta['source'].a[1].c[1].d == 3
    assert loaded['param_schedulers'][0]['anneal_func'](0.0, 1.0, 1.0) == 1.0
    assert 'ema_state_dict' in loaded
    for buffer in loaded['message_hub']['log_scalars'].values():
        assert type(buffer) is HistoryBuffer
        assert [type(values) for values in buffer.data] == [np.ndarray, np.ndarray]
        assert buffer.current() == buffer.statistics('current')


def test_saved_again_it_needs_no_plug_in(trained, tmp_path):
    again = str(tmp_path / 'again.pth')
    torch.save(load(trained[1]), again)
    needed = serialization.get_unsafe_globals_in_checkpoint
    assert set(needed(again)) == set(needed(trained[1]))


@pytest.mark.parametrize('dtype', ['?', 'i2', '>i4', 'u8', 'f2', '<f8', '>f8', 'c8', 'U3', 'S2'])
@pytest.mark.parametrize('shape', [(), (0,), (2, 3)])
def test_numpy_data_survive(tmp_path, dtype, shape):
    array = np.ones(shape, dtype)
    content = [array, array.T, array[()]]
    loaded = load(save(tmp_path / 'a.pth', content))['extra']
    for expected, found in zip(pickle.loads(pickle.dumps(content, 2)), loaded, strict=True):
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize(('old', 'new'), [(b'numpy._core.', b'numpy.core.'), (b'', b'')])
def test_either_numpy_may_have_written_the_file(tmp_path, old, new):
    path = tmp_path / 'a.pth'
    content = [np.arange(3.0), np.float64(2)]
    torch.save(content, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(old, new))
    array, scalar = load(str(path))
    assert array.tolist() == [0.0, 1.0, 2.0]
    assert scalar == 2


def test_nothing_stays_allowed(trained):
    before = set(serialization.get_safe_globals())
    load(trained[1])
    assert set(serialization.get_safe_globals()) == before
    with pytest.raises(UnpicklingError):
        torch.load(trained[1], weights_only=True)


@pytest.mark.parametrize(
    ('content', 'named'),
    [
        (Call(getattr, HistoryBuffer, '__init__'), '__init__'),
        (Call(getattr, HistoryBuffer, '__setstate__'), '__setstate__'),
        (Call(getattr, Call(getattr, HistoryBuffer, 'min'), '__globals__'), '__globals__'),
        (Call(getattr, np.ndarray, 'tofile'), 'tofile'),
        (Call(HistoryBuffer.register_statistics, len), 'register_statistics'),
        (Call(os.system, 'true'), 'system'),
        (Call(eval, '1'), '`eval`'),
        (Call(__import__, 'os'), '__import__'),
        (Subclass([1.0], [1]), 'Subclass'),
        (np.array([1, 'a'], dtype=object), "'O8?'"),
        (np.zeros(1, dtype=[('a', 'O')]), "'V8'"),
        (Call(np.dtype, [('a', 'O')], False, True), 'neither numbers nor text'),
        (Call(np.dtype, ('f8', [('a', 'O')]), False, True), 'neither numbers nor text'),
        *(
            (
                Call(HistoryBuffer, state=dict(_log_history=row, _count_history=row, max_length=10)),
                'two arrays of numbers',
            )
            for row in (nested(12), np.ones((2, 2)), np.array(['a']), 'ab', None)
        ),
    ],
)
def test_code_is_refused(tmp_path, content, named):
    with pytest.raises(UnpicklingError, match=f'is refused: .*({named}).*add_safe_globals'):
        load(save(tmp_path / 'a.pth', content))


@pytest.mark.parametrize(
    'content',
    [
        Call(np.ndarray, (1,), 'O', b'12345678'),
        Call(np.ndarray, (1 << 40,)),
        *(Call(bytes, size) for size in (1, 1 << 40, [1])),
        Call(
            np.array([0]).__reduce__()[0], np.ndarray, (0,), b'b', state=(1, (9,), np.dtype('f8'), False, b'8 bytes.')
        ),
    ],
    ids=['pointers from bytes', 'unset memory', *['bytes of a size'] * 3, 'too few bytes'],
)
def test_memory_is_out_of_reach(tmp_path, content):
    with pytest.raises(UnpicklingError, match=r'a\.pth cannot be loaded: (Type|Value)Error'):
        load(save(tmp_path / 'a.pth', content))


def test_a_config_does_not_copy_nested_lists(tmp_path):
    config = load(save(tmp_path / 'a.pth', Call(ConfigDict, {'a': nested(12)})))['extra']
    assert type(config) is ConfigDict
    assert config['a'][0] is config['a'][9]


@pytest.mark.parametrize('forged', [
    (3, '<', None, None, None, -8, 4, 8),
    (3, '<', None, ('a',), {'a': ('forged', 0)}, 8, 8, 0),
])  # fmt: skip
def test_a_forged_dtype_is_taken_for_what_it_says(tmp_path, forged):
    dtype = Call(np.dtype, 'U2', False, True, state=forged)
    _, args, (version, shape, _, *rest) = np.array(['ab', 'c']).__reduce__()
    array = Call(RECONSTRUCT, *args, state=(version, shape, dtype, *rest))
    found = load(save(tmp_path / 'a.pth', array))['extra']
    assert found.tolist() == ['ab', 'c']
    assert found.dtype == 'U2'
    assert found.dtype.fields is None


def test_statistics_cannot_be_replaced(tmp_path):
    before = dict(HistoryBuffer._statistics_methods)
    state = HistoryBuffer([1.0, 3.0], [1, 1]).__getstate__()
    forged = {**state, 'statistics_methods': {'mean': HistoryBuffer.max}, 'statistics': set}
    path = save(tmp_path / 'a.pth', Call(HistoryBuffer, state=forged))
    buffer = load(path)['extra']
    assert buffer.statistics('mean') == 2.0
    assert HistoryBuffer._statistics_methods == before


def test_what_users_allow_is_kept_but_widens_nothing(tmp_path):
    path = save(tmp_path / 'a.pth', [Subclass([1.0, 2.0], [1, 1]), np.ones(2), np.float32(1)])
    names = [Subclass, getattr, HistoryBuffer, np.ndarray, np.dtype, *(type(np.dtype(t)) for t in 'fdl')]
    with serialization.safe_globals(names):
        buffer, ones, _ = load(path)['extra']
        assert buffer.mean() == 1.5
        assert ones.tolist() == [1, 1]
        with pytest.raises(UnpicklingError, match='__init__'):
            load(save(tmp_path / 'b.pth', Call(getattr, HistoryBuffer, '__init__')))
        assert set(names) <= set(serialization.get_safe_globals())


def test_the_switch_of_torch_still_works(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    with pytest.warns(UserWarning, match='forcing weights_only=False'):
        assert load(save(tmp_path / 'a.pth', Call(eval, '1 + 1')))['extra'] == 2


def test_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save(tmp_path / 'a.pth', None)
    assert 'state_dict' in load('~/a.pth')


@pytest.mark.parametrize('content', [b'', b'PK', b'PK\x03\x04 and no more', b'no checkpoint', b'\x80\x02.'])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / 'a.pth'
    path.write_bytes(content)
    with pytest.raises(UnpicklingError, match=r'a\.pth (cannot be loaded|is refused)'):
        load(str(path))


def test_a_changed_number_is_not_loaded(tmp_path):
    path = tmp_path / 'a.pth'
    torch.save({'a': torch.arange(4.0)}, path)
    content = bytearray(path.read_bytes())
    content[content.index(torch.arange(4.0).numpy().tobytes()) + 5] ^= 16
    path.write_bytes(content)
    assert torch.load(path)['a'][1] != 1, 'torch does not look'
    with pytest.raises(UnpicklingError, match=r"a\.pth cannot be loaded: .*'a/data/0' in it has a wrong checksum"):
        load(str(path))


def test_a_record_is_no_folder(tmp_path):
    path = tmp_path / 'a.pth'
    torch.save({'a': torch.arange(4.0)}, path)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b'PK\1\2', 0, content.rindex(b'a/data/0'))
    content[entry + 38] |= FOLDER
    path.write_bytes(content)
    with pytest.raises(UnpicklingError, match=r"a\.pth cannot be loaded: .*'a/data/0' in it"):
        load(str(path))


def test_files_without_checksums_can_be_loaded(tmp_path):
    serialization.set_crc32_options(False)
    try:
        path = save(tmp_path / 'a.pth', torch.ones(3))
        assert load(path)['extra'].tolist() == [1, 1, 1]
    finally:
        serialization.set_crc32_options(True)
    with pytest.raises(UnpicklingError, match='set_crc32_options'):
        load(path)


def test_a_file_that_may_not_be_read_is_not_damaged(tmp_path, monkeypatch):
    def forbidden(*args, **kwargs):
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(torch, 'load', forbidden)  # Root may read all files.
    with pytest.raises(PermissionError):
        load(save(tmp_path / 'a.pth', None))


def test_a_sparse_tensor_is_checked(server, tmp_path):
    """Its indices lead to memory; torch checks them only on request."""
    outside = torch.sparse_coo_tensor([[0, 1 << 40]], [1.0, 1.0], (1 << 41,), check_invariants=True)
    path = save(tmp_path / 'a.pth', torch.sparse_coo_tensor([[0, 1]], [1.0, 1.0], (2,)))
    assert load(path)['extra'].to_dense().tolist() == [1, 1]
    content = torch.sparse_coo_tensor(outside._indices(), outside._values(), (2,), check_invariants=False)
    path = save(tmp_path / 'a.pth', content)
    for source in (path, f'{server}/a.pth'):
        with pytest.raises((UnpicklingError, RuntimeError), match='size is inconsistent with indices'):
            load(source)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'none\.pth'):
        load(str(tmp_path / 'none.pth'))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves `tmp_path` on the loopback interface and yields its address."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'hub'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f'http://127.0.0.1:{httpd.server_address[1]}'
        httpd.shutdown()
        thread.join()


@pytest.mark.parametrize('scheme', ['', 'openmmlab://', 'torchvision://', 'mmcls://'])
@pytest.mark.parametrize('environment', ['0', '1'])
def test_downloads_are_weights_only(server, tmp_path, monkeypatch, scheme, environment):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', environment)
    trace = tmp_path / 'trace'
    save(tmp_path / 'clean.pth', None)
    save(tmp_path / 'evil.pth', Call(eval, f'open({str(trace)!r}, "w")'))
    urls = {name: f'{server}/{name}.pth' for name in ('clean', 'evil')}
    for source in ('get_external_models', 'get_torchvision_models', 'get_mmcls_models'):
        monkeypatch.setattr(checkpoint, source, lambda: urls)
    addresses = {name: scheme + name for name in urls} if scheme else urls

    assert 'state_dict' in load(addresses['clean'])
    with pytest.raises(UnpicklingError, match=r'evil\.pth is refused: .*`eval`.* give its path'):
        load(addresses['evil'])
    assert not trace.exists()


def test_a_file_of_the_model_zoo_is_weights_only(tmp_path, monkeypatch):
    """Its name stands for a file in MMEngine's folder. OneDL loads what is refused a second time, unrestricted."""
    monkeypatch.setenv('MMENGINE_HOME', str(tmp_path))
    monkeypatch.setattr(checkpoint, 'get_external_models', lambda: {'clean': 'clean.pth', 'evil': 'evil.pth'})
    trace = tmp_path / 'trace'
    save(tmp_path / 'clean.pth', None)
    save(tmp_path / 'evil.pth', Call(eval, f'open({str(trace)!r}, "w")'))
    assert 'state_dict' in load('openmmlab://clean')
    with pytest.raises(UnpicklingError, match='eval'):
        load('openmmlab://evil')
    assert not trace.exists()


def test_downloads_are_not_given_the_stand_ins(server, tmp_path):
    path = save(tmp_path / 'state.pth', HistoryBuffer([1.0], [1]))
    with pytest.raises(UnpicklingError, match='HistoryBuffer'):
        load(f'{server}/state.pth')
    assert type(load(path)['extra']) is HistoryBuffer


def test_renamed_distributions_are_found(monkeypatch):
    providers = {'mmseg': ['onedl-mmsegmentation'], 'mmpretrain': ['other', 'mmpretrain']}
    monkeypatch.setattr(metadata, 'packages_distributions', lambda: providers)
    for module, package in {'mmseg': 'mmsegmentation', 'mmpretrain': 'mmpretrain', 'mmdet': 'mmdet'}.items():
        monkeypatch.setitem(MODULE2PACKAGE, module, package)
    adapt_mmengine()
    assert MODULE2PACKAGE['mmseg'] == 'onedl-mmsegmentation'
    assert MODULE2PACKAGE['mmpretrain'] == 'mmpretrain'
    assert MODULE2PACKAGE['mmdet'] == 'mmdet'


def test_apply_twice():
    def state():
        return dict(CheckpointLoader._schemes), checkpoint.load_url, dict(MODULE2PACKAGE)

    once = state()
    adapt_mmengine()
    assert state() == once


def test_missing_pkg_resources_is_announced_where_mmengine_needs_it(monkeypatch, recwarn):
    monkeypatch.setitem(sys.modules, 'pkg_resources', None)
    try:
        get_installed_path('torch')
        expected = []
    except ImportError:  # The stock MMEngine; OneDL has `importlib.metadata` tell.
        expected = ['setuptools<82']
    adapt_mmengine()
    assert [re.search('setuptools<82', str(warning.message))[0] for warning in recwarn] == expected
