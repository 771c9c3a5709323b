"""A file that is there is whole."""

import numpy as np
import pytest
from whole_file import whole_file, write_whole


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / 'numbers.json'
    for text in ('before', 'IoU ≥ 0.5'):
        write_whole(path, text)
        assert path.read_text(encoding='utf-8') == text
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_not_seen_before_it_is_whole(tmp_path):
    path = tmp_path / 'array.npz'
    with whole_file(path) as partial:
        np.savez(partial, a=1)
        assert not path.exists()
    assert np.load(path)['a'] == 1


@pytest.mark.parametrize('error', [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_the_old_file(tmp_path, error):
    path = tmp_path / 'numbers.json'
    write_whole(path, 'before')

    def fail():
        with whole_file(path) as partial:
            partial.write_text('half')
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == 'before'
    assert list(tmp_path.iterdir()) == [path]


def test_the_error_names_the_file_and_a_remedy(tmp_path):
    (tmp_path / 'file').touch()
    path = tmp_path / 'file' / 'numbers.json'
    with pytest.raises(OSError, match=rf'Could not write {path}: .*choose another folder'):
        write_whole(path, 'text')
