import itertools

import pytest

from mmseg_nondecomp._utils import progress_line as module
from mmseg_nondecomp._utils.progress_line import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by ten seconds at each call."""
    ticks = itertools.count(0, 10)
    monkeypatch.setattr(module.time, 'monotonic', lambda: next(ticks))


def test_items_pass_through(capsys):
    assert list(progress('abc', 3, 'letters')) == ['a', 'b', 'c']
    assert capsys.readouterr().err == 'letters: 3/3, 0 s, 0 s left\n'


def test_a_file_gets_a_line_every_half_minute(capsys, clock):
    list(progress(range(7), 7, 'things'))
    assert capsys.readouterr().err.splitlines() == [
        'things: 3/7, 30 s, 40 s left',
        'things: 6/7, 60 s, 10 s left',
        'things: 7/7, 70 s, 0 s left',
    ]


def test_a_terminal_gets_one_line_that_changes(capsys, clock, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, 'isatty', lambda: True)
    list(progress(range(3), 3, 'things'))
    said = capsys.readouterr().err
    assert said.count('\n') == 1
    assert [line.strip() for line in said.split('\r')[1:]] == [
        'things: 1/3, 10 s, 20 s left',
        'things: 2/3, 20 s, 10 s left',
        'things: 3/3, 30 s, 0 s left',
    ]


def test_nothing_to_do_prints_nothing(capsys):
    assert list(progress([], 0, 'things')) == []
    assert capsys.readouterr().err == ''
