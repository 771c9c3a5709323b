"""The tables of the documentation are those of the results, and tools/fill_tables.py writes them."""

import json
import sys
from pathlib import Path

import benchmark
import fill_tables
import pytest

ROOT = Path(__file__).parents[1]
ROWS = [dict(loss='a', ms=1.2345, n=3), dict(loss='b|c', ms=1234.5, also='x')]
TABLE = """\
| loss | ms | n | also |
|---|---|---|---|
| a | 1.23 | 3 |  |
| b\\|c | 1234 |  | x |"""


@pytest.fixture
def root(tmp_path):
    for folder in ('benchmarks/reproduce', 'docs/more', 'configs/one'):
        (tmp_path / folder).mkdir(parents=True)
    for name in ('some.json', 'reproduce/other.json'):
        (tmp_path / 'benchmarks' / name).write_text(json.dumps({'metadata': {}, 'table': ROWS}))
    (tmp_path / 'benchmarks/old.json').write_text(json.dumps({'results': ROWS}))
    return tmp_path


def document(arguments, body=''):
    return f'Before.\n\n<!-- table: {arguments} -->\n{body}<!-- end of table -->\n\nAfter.\n'


def table_in(text):
    return text.partition('-->\n')[2].partition('<!-- end')[0].strip()


def test_the_documents_of_this_repository_are_up_to_date_and_show_every_benchmark():
    old = fill_tables.outdated(ROOT)
    assert not old, f'python tools/fill_tables.py writes {", ".join(str(path.relative_to(ROOT)) for path in old)}'
    page = (ROOT / 'docs' / 'benchmarks.md').read_text()
    tables = {numbers.stem for numbers in (ROOT / 'benchmarks').glob('*.json')} - {'stock'}  # docs/stock-models.md
    assert tables == {*benchmark.BENCHMARKS, *benchmark.COUNTS, *benchmark.IN_PROCESSES}
    for name in tables:
        assert f'<!-- table: benchmarks/{name}.json' in page
    for name in benchmark.BENCHMARKS:
        assert f'](../benchmarks/{name}.png)' in page
        assert (ROOT / 'benchmarks' / f'{name}.png').exists()


@pytest.mark.parametrize('name', ['benchmarks/some.json', 'benchmarks/reproduce/other.json'])
def test_a_table_has_all_columns_and_three_digits(root, name):
    text = fill_tables.filled(document(name), root)
    assert table_in(text) == TABLE
    assert text.startswith('Before.\n')
    assert text.endswith('\nAfter.\n')


def test_an_old_table_is_replaced_and_columns_and_rows_are_chosen(root):
    once = fill_tables.filled(document('benchmarks/some.json', '\n| of | old |\n\n'), root)
    assert once == fill_tables.filled(document('benchmarks/some.json'), root)
    assert fill_tables.filled(once, root) == once
    text = fill_tables.filled(document('benchmarks/some.json columns="n, loss" where="loss=a; n=3"'), root)
    assert table_in(text) == '| n | loss |\n|---|---|\n| 3 | a |'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ('benchmarks/none.json', 'line 3: there is no benchmarks/none.json'),
        ('benchmarks/old.json', 'has no rows under "table"'),
        ('benchmarks/some.json columns=speed', 'has no column speed, but loss, ms, n, also'),
        ('benchmarks/some.json where="loss=z"', 'has no rows where loss is "z"'),
        ('benchmarks/some.json rows=a', 'Found rows'),
        ('benchmarks/some.json columns="loss', 'line 3: No closing quotation'),
    ],
)
def test_an_invalid_table_is_named(root, arguments, message):
    with pytest.raises(ValueError, match=message):
        fill_tables.filled(document(arguments), root)


def test_a_table_without_an_end_does_not_swallow_the_document_and_code_is_text(root):
    with pytest.raises(ValueError, match='line 3: a table should end with "<!-- end of table -->"'):
        fill_tables.filled(document('benchmarks/some.json').replace('<!-- end of table -->', ''), root)
    twice = document('benchmarks/some.json').replace('<!-- end of table -->', '') + document('benchmarks/some.json')
    with pytest.raises(ValueError, match='line 3: a table should end'):
        fill_tables.filled(twice, root)
    text = f'```markdown\n{document("benchmarks/none.json")}```\n\n~~~\n```\n<!-- table: x -->\n~~~\n'
    assert fill_tables.filled(text, root) == text


def test_check_fails_where_a_table_is_out_of_date_and_writes_nothing(root, monkeypatch, capsys):
    monkeypatch.setattr(fill_tables, 'ROOT', root)
    documents = [root / name for name in ('README.md', 'docs/more/page.md', 'configs/one/README.md')]
    for path in documents:
        path.write_text(document('benchmarks/some.json'))
    monkeypatch.setattr(sys, 'argv', ['fill_tables.py', '--check'])
    with pytest.raises(SystemExit, match=r'Run `python tools/fill_tables\.py`'):
        fill_tables.main()
    assert all(TABLE not in path.read_text() for path in documents)
    monkeypatch.setattr(sys, 'argv', ['fill_tables.py'])
    fill_tables.main()
    assert all(TABLE in path.read_text() for path in documents)
    assert 'docs/more/page.md is written' in capsys.readouterr().out
    monkeypatch.setattr(sys, 'argv', ['fill_tables.py', '--check'])
    fill_tables.main()
    assert capsys.readouterr().out == ''


def test_an_error_names_the_document(root, monkeypatch):
    monkeypatch.setattr(fill_tables, 'ROOT', root)
    monkeypatch.setattr(sys, 'argv', ['fill_tables.py'])
    (root / 'README.md').write_text(document('benchmarks/none.json'))
    with pytest.raises(SystemExit, match=r'README\.md, line 3: there is no'):
        fill_tables.main()
