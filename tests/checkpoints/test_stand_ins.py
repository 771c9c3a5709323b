"""The stand-ins for names in a pickle allocate no more memory than the file has data."""

from pickle import UnpicklingError

import numpy as np
import pytest
import torch

pytest.importorskip('mmengine')

from checkpoints.pickled import Call, load, save
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer

import mmseg_nondecomp  # noqa: F401  adapts MMEngine

pytestmark = pytest.mark.skipif(
    torch.__version__ < '2.6', reason='older versions do not restrict `torch.load` by default'
)


def laughs(depth):
    """A list that holds a number ten to the power of `depth` times, in `depth` small lists."""
    held = [1.0] * 10
    for _ in range(depth - 1):
        held = [held] * 10
    return held


def test_a_list_of_lists_is_not_copied_for_each_of_its_places(tmp_path):
    found = load(save(tmp_path / 'a.pth', Call(ConfigDict, {'a': laughs(12)})))['extra']
    assert type(found) is ConfigDict
    assert found['a'][0] is found['a'][9]


@pytest.mark.parametrize('history', [laughs(12), np.ones((2, 2)), np.array(['a']), 'ab', None])
def test_a_history_is_two_arrays_of_numbers(tmp_path, history):
    state = {'_log_history': history, '_count_history': history, 'max_length': 10}
    with pytest.raises(UnpicklingError, match='two arrays of numbers'):
        load(save(tmp_path / 'a.pth', Call(HistoryBuffer, state=state)))['extra']


@pytest.mark.parametrize('size', [1, 1 << 40, [1]])
def test_bytes_are_those_of_an_empty_array_alone(tmp_path, size):
    with pytest.raises(UnpicklingError, match='cannot be loaded'):
        load(save(tmp_path / 'a.pth', Call(bytes, size)))['extra']


def test_a_config_is_as_it_was(tmp_path):
    given = ConfigDict(a=[ConfigDict(b=1), {'c': (2, {'d': 3})}], e=ConfigDict(f=None))
    found = load(save(tmp_path / 'a.pth', given))['extra']
    assert found == given
    assert found.a[1].c[1].d == 3
    assert found.e.f is None
