"""What killed processes have left goes, and what others work on stays."""

import os
import time

import pytest

from mmseg_nondecomp.leftovers import WEEK, prefix_of_work, remove_leftovers


@pytest.fixture
def leave(tmp_path):
    """Leaves a file or a folder of some age."""

    def make(name, seconds=0, is_folder=False):
        path = tmp_path / name
        if is_folder:
            (path / 'inside').mkdir(parents=True)
            (path / 'inside' / 'file').touch()
        else:
            path.touch()
        then = time.time() - seconds
        os.utime(path, (then, then))

    return make


@pytest.mark.parametrize('is_folder', [False, True])
def test_what_is_of_this_machine_goes_and_of_others_what_is_old(tmp_path, leave, is_folder):
    leave(prefix_of_work('.work') + 'a', is_folder=is_folder)
    leave('.work-another-host-b', 2 * WEEK, is_folder)
    in_work = {'.work-another-host-c', prefix_of_work('.work') + '2-d'}
    of_others = {'.works-e', 'work-f', '.work'}
    for name in in_work | of_others:
        leave(name, WEEK / 2 if name in in_work else 2 * WEEK, is_folder)
    remove_leftovers(tmp_path, '.work')
    assert {path.name for path in tmp_path.iterdir()} == in_work | of_others


def test_signs_in_a_name_are_no_wildcards(tmp_path, leave):
    leave(prefix_of_work('.a[bc]') + 'x')
    leave(prefix_of_work('.ab') + 'x')
    remove_leftovers(tmp_path, '.a[bc]')
    assert [path.name for path in tmp_path.iterdir()] == [prefix_of_work('.ab') + 'x']
