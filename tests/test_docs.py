"""The pages of docs/ say what happens: their code is executed, and what it prints stands below it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / 'docs').glob('*.md'))
BLOCK = re.compile(r'^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?', re.DOTALL | re.MULTILINE)
ROW = re.compile(r'^\|(.*)\| *(-?\d+\.\d+) *\|$', re.MULTILINE)

every_page = pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)


def run(page):
    """What the page's names stand for at its end, and of each block what it prints and what it should."""
    names, printed = {}, []
    for block in BLOCK.finditer(page.read_text()):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block[1], page.name, 'exec'), names)
        printed.append((output.getvalue(), block[2]))
    return names, printed


def test_there_are_pages():
    assert PAGES


@every_page
def test_what_is_printed_is_what_stands_there(page):
    _, printed = run(page)
    assert printed
    for found, expected in printed:
        if expected is not None:
            assert found == expected


@every_page
def test_values_in_tables_are_those_of_the_expressions_beside_them(page):
    names, _ = run(page)
    for cells, value in ROW.findall(page.read_text()):
        expressions = re.findall(r'`([^`]+)`', cells)
        assert expressions, cells
        digits = len(value.partition('.')[2])
        for expression in expressions:
            assert f'{float(eval(expression, names)):.{digits}f}' == value, expression
