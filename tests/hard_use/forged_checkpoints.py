"""Checkpoints that no honest program writes, made of the instructions of pickles."""

import struct

import torch

SHELL = """
os system, posix system, nt system, os popen, subprocess Popen, subprocess getoutput, pty spawn, builtins eval,
builtins exec, __builtin__ eval, builtins __import__, builtins compile, builtins open, importlib import_module,
runpy run_path, runpy _run_code, code InteractiveInterpreter, timeit timeit, bdb Bdb, cProfile run, pdb run,
doctest debug_script, types FunctionType, functools partial, operator methodcaller, operator attrgetter,
ctypes CDLL, webbrowser open, asyncio create_subprocess_shell, os remove, os unlink, shutil rmtree,
shutil copyfile, pathlib Path, tempfile mktemp, io FileIO, zipfile ZipFile, tarfile open,
socket create_connection, urllib.request urlopen, logging FileHandler, pickle loads, _pickle loads, marshal loads,
dill loads, joblib load, shelve open, yaml load, numpy load, numpy fromfile, numpy memmap,
numpy.core.multiarray _vec_string, cv2 imwrite, torch load, torch.hub load, torch.jit load,
torch.storage _load_from_bytes, torch.serialization load, torch.utils.collect_env run,
torch.utils.cpp_extension load, torch.ops load_library, torch.classes load_library, mmengine.config Config,
mmengine.config.config Config, mmengine.fileio load, mmengine.registry.utils init_default_scope,
mmengine.utils import_modules_from_strings, mmengine.registry Registry, mmengine.runner Runner,
mmseg_nondecomp.checkpoints load_from_local, mmseg_nondecomp.checkpoints._stand_ins _get_function,
mmseg_nondecomp checkpoints
"""
SHELL = [name.strip() for name in SHELL.split(',')]
"""Functions that run programs or access files, directly or indirectly: the module and the name in it."""


def name(module, name):
    return f'c{module}\n{name}\n'.encode()


def text(value):
    return b'X' + struct.pack('<I', len(value.encode())) + value.encode()


def number(value):
    data = value.to_bytes(value.bit_length() // 8 + 1, 'little', signed=True)
    return b'\x8a' + bytes([len(data)]) + data


def together(*parts):
    return b'(' + b''.join(parts) + b't'


def call(function, *args):
    return function + together(*args) + b'R'


def built(thing, state):
    return thing + state + b'b'


def mapping(**items):
    return b'}(' + b''.join(text(key) + value for key, value in items.items()) + b'u'


NO_HOOKS = name('collections', 'OrderedDict') + b')R'
HISTORY_BUFFER = name('mmengine.logging.history_buffer', 'HistoryBuffer')
GETATTR = name('builtins', 'getattr')
LAUGHS = (
    b']('
    + 10 * b'K\x01'
    + b'eq\x00'
    + b''.join(b'](' + 10 * bytes([104, n]) + b'eq' + bytes([n + 1]) for n in range(11))
)
"""A list of ten lists of ten lists and so on, number 11 in the memo, left below what follows."""


def storage(size, key='0', kind='FloatStorage'):
    """Return the pickle of a storage of that many numbers."""
    return together(text('storage'), name('torch', kind), text(key), text('cpu'), number(size)) + b'Q'


def tensor(held, offset, shape, strides, **of_storage):
    sizes = together(*map(number, shape)), together(*map(number, strides))
    args = storage(held, **of_storage), number(offset), *sizes, b'\x89', NO_HOOKS
    return call(name('torch._utils', '_rebuild_tensor_v2'), *args)


def data_of(letters):
    return call(name('_codecs', 'encode'), text(letters), text('latin1'))


def dtype(code):
    made = call(name('numpy', 'dtype'), text(code), b'\x89', b'\x88')
    return built(made, together(number(3), text('<'), b'NNN', number(-1), number(-1), number(0)))


def array(shape, code, data):
    reconstruct = name('numpy._core.multiarray', '_reconstruct')
    made = call(reconstruct, name('numpy', 'ndarray'), together(number(0)), data_of('b'))
    return built(made, together(number(1), together(*map(number, shape)), dtype(code), b'\x89', data))


def sparse(layout, *parts):
    return call(
        name('torch._utils', '_rebuild_sparse_tensor'),
        call(name('torch.serialization', '_get_layout'), text(f'torch.sparse_{layout}')),
        together(*parts, b'\x88') if layout == 'coo' else together(*parts),
    )


def history(log, counts, most):
    state = mapping(_log_history=log, _count_history=counts, max_length=most)
    return built(HISTORY_BUFFER + b')\x81', state)


VALUES = tensor(2, 0, [2], [1], key='1')
BELOW, BEYOND, ROWS = (
    tensor(2, 0, shape, strides, key=key, kind='LongStorage')
    for key, shape, strides in (('2', [1, 2], [2, 1]), ('3', [1, 2], [2, 1]), ('3', [2], [1]))
)
FORGED = {
    'fewer numbers in the file than said': tensor(10**6, 0, [10**6], [1]),
    'more numbers than there is memory': tensor(10**13, 0, [10**13], [1]),
    'a view larger than its storage': tensor(4, 0, [10**6], [1]),
    'a view that begins before its storage': tensor(4, -(10**4), [4], [1]),
    'a view that ends behind its storage': tensor(4, 2, [4], [1]),
    'a view that goes backwards': tensor(4, 3, [4], [-1]),
    'a negative size': tensor(4, 0, [-4], [1]),
    'sizes whose product overflows': tensor(4, 0, [1 << 32, 1 << 32], [1, 1]),
    'strides whose product overflows': tensor(4, 0, [2, 2], [1 << 62, 1 << 62]),
    'an offset that overflows': tensor(4, 1 << 62, [4], [1]),
    'a storage of another file': tensor(4, 0, [4], [1], key='../../../../etc/passwd'),
    'a tensor set anew beyond its storage': built(
        tensor(4, 0, [4], [1]), together(storage(4), number(2), together(number(9)), together(number(1)))
    ),
    'sparse indices below 0': sparse('coo', BELOW, VALUES, together(number(2))),
    'sparse indices beyond the size': sparse('coo', BEYOND, VALUES, together(number(2))),
    'rows of a sparse matrix beyond its values': sparse(
        'csr', ROWS, ROWS, VALUES, together(number(1), number(9))
    ),
    'an array whose size overflows to 0': array([1 << 32, 1 << 32], 'u1', name('__builtin__', 'bytes') + b')R'),
    'an array of negative size': array([-2, -2], 'u1', data_of('abcd')),
    'an array larger than its data': array([1 << 20], 'f8', data_of('abcdefgh')),
    'an array of objects': array([1], 'O', data_of('abcdefgh')),
    'an array of records': array([1], 'f8,O', data_of('abcdefgh')),
    'an array of arrays': array([1], '(2,)f8', data_of('abcdefgh')),
    'an array of letters without end': array([1], 'U1000000000', data_of('abcdefgh')),
    'a number larger than its data': call(name('numpy._core.multiarray', 'scalar'), dtype('U500000000'), data_of('ab')),
    'bytes of a number': call(name('__builtin__', 'bytes'), number(3 * 10**9)),
    'a history of lists without end': LAUGHS + history(b'h\x0b', b'h\x0b', number(10)),
    'a history without an end': history(b']', b']', number(10)),
    'a history of a function': history(name('builtins', 'set'), b']', b'N'),
    'an attribute of a class': built(HISTORY_BUFFER, mapping(min=b'N')),
    'an item of a tensor': tensor(4, 0, [4], [1]) + b'K\x00K\x01s',
    'an item of an array': array([4], 'u1', data_of('abcd')) + b'K\x00K\x01s',
    'the attributes of a function': call(
        GETATTR,
        call(GETATTR, HISTORY_BUFFER, text('min')),
        text('__globals__'),
    ),
    'the base of a class': call(GETATTR, HISTORY_BUFFER, text('__base__')),
    'another call of a function that was found': call(
        name('torch._tensor', '_rebuild_from_type_v2'),
        call(GETATTR, HISTORY_BUFFER, text('min')),
        name('torch', 'Tensor'),
        together(HISTORY_BUFFER + b')\x81'),
        mapping(a=b'N'),
    ),
    'nothing on the stack': b'R',
    'a place in the memo that is empty': b'h\x07',
    'a number of two gigabytes': b'\x8b\xff\xff\xff\x7f',
    'a text of many exabytes': b'\x8d' + struct.pack('<Q', 1 << 62),
    'a text longer than the file': b'X\xff\xff\xff\x7fab',
    'a name without an end': b'cos',
}  # fmt: skip
"""Pickles each of which has to be refused."""
HARMLESS = {
    'lists nested a hundred thousand times': b']' * 100_000 + b'a' * 99_999,
    'tuples nested a hundred thousand times': b')' + b'\x85' * 100_000,
    'a config of lists without end': LAUGHS + call(name('mmengine.config.config', 'ConfigDict'), mapping(a=b'h\x0b')),
    'a number far in the memo': b'Nr\xff\xff\xff\xff',
    'a view of less than its storage': tensor(4, 1, [2], [2]),
}
"""Pickles that look dangerous and may be loaded."""


def running(module, called, path):
    """Return a pickle that would call this function with a command that writes a file."""
    argument = text(f'touch {path}') if called != 'eval' else text(f'open({str(path)!r}, "w")')
    return call(name(module, called), argument)


def write(path, pickle):
    """Write a checkpoint with this pickle and a few storages."""
    records = {
        'data.pkl': b'\x80\x02' + pickle + b'.',
        'byteorder': b'little',
        'data/0': bytes(16),
        'data/1': bytes(8),
        'data/2': struct.pack('<qq', 10**9, -(10**9)),
        'data/3': struct.pack('<qq', 0, 10**9),
        '../../escaped': b'out of the archive',
    }
    writer = torch._C.PyTorchFileWriter(str(path))
    for key, data in records.items():
        writer.write_record(key, data, len(data))
    writer.write_end_of_file()
