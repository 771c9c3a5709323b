"""The table of docs/layouts.md is up to date, and each of its cells is right for each loss."""

import pytest
from layout_table import PAGE, ROWS, calls, filled
from layouts import LOSSES, disagreement
from reference.reading import MODES


def test_the_page_has_the_table():
    text = PAGE.read_text()
    assert text == filled(text), 'python tests/layout_table.py --write writes it'
    assert text.count('\n| `[') == len(ROWS)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('loss', LOSSES)
def test_each_cell_is_the_reading_of_each_loss(loss, mode):
    name, args = LOSSES[loss]
    args = args if mode is None else args | dict(mode=mode)
    found = [disagreement(name, args, call) for _, call in calls()]
    assert not any(found), '\n'.join(filter(None, found))
