"""The pages of docs/ say what happens: their code is executed, what they name exists, and the site is whole."""

import importlib
import re
import subprocess
import sys

import pytest
from code_blocks import PAGES, ROOT, is_program, run
from documents import DOCUMENTS, check_config, commands, configs_of, dead_links, named_files, options_of
from sphinx.util.inventory import InventoryFile

PROGRAMS = [page for page in PAGES if is_program(page)]
CONFIGS = configs_of(PAGES, ('mmseg', 'mmdet'))
VALUES = re.compile(r'^\|.*\| *value *\|\n\|[-|]+\|\n((?:\|.*\|\n)+)', re.MULTILINE)
PUBLIC = [
    f'mmseg_nondecomp{name}'
    for name in (
        '',
        '.functional',
        '.functional.decisions',
        '.metrics',
        '.metrics.functional',
        '.transforms',
        '.datasets',
        '.heads',
    )
]


def each(paths):
    return pytest.mark.parametrize('page', paths, ids=[path.relative_to(ROOT).as_posix() for path in paths])


@each(PROGRAMS)
def test_printed_output_and_tables_of_values_are_right(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run(page)
    for found, expected in printed:
        if expected is not None:
            assert found == expected
    for row in ''.join(VALUES.findall(page.read_text())).splitlines():
        *cells, value = (cell.strip() for cell in row.strip('|').split('|'))
        expressions = re.findall(r'`([^`]+)`', '|'.join(cells))
        assert expressions, row
        for expression in expressions:
            assert f'{float(eval(expression, names)):.{len(value.partition(".")[2])}f}' == value, expression


@pytest.mark.parametrize('block', CONFIGS.values(), ids=CONFIGS.keys())
def test_config_lines_apply_to_the_stock_config(block, tmp_path):
    check_config(block, tmp_path)


@each(DOCUMENTS)
def test_links_lead_somewhere(page):
    assert not dead_links(page)


@each(PAGES)
def test_named_files_and_scripts_configs_and_options_of_commands_exist(page):
    for name in named_files(page):
        assert (ROOT / name).exists(), name
    for command in commands(page):
        scripts = [word for word in command if re.fullmatch(r'tools/\w+\.(?:py|sh)', word)]
        for word in command:
            if word.startswith(('tools/', 'configs/')):
                assert list(ROOT.glob(re.sub(r'\{[^}]*\}', '*', word))), word
            if scripts and word.startswith('-'):
                assert word in options_of(scripts[0].removeprefix('tools/')), (scripts[0], word)
        if command[0] == 'make':
            done = subprocess.run(['make', '--dry-run', *command[1:]], cwd=ROOT, capture_output=True, check=False)
            assert done.returncode == 0, command


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp('site')
    options = ['--quiet', '--fresh-env', '--write-all', '--fail-on-warning', '--keep-going', '--conf-dir', 'docs']
    command = [sys.executable, '-m', 'sphinx', *options, '.', str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def links_of(html):
    """Return the pages that a page of the site links to."""
    targets = re.findall(r'<a\b[^>]*\bhref="([^"#:]+\.html)', html.read_text())
    return {(html.parent / target).resolve() for target in targets}


def test_every_page_is_reached_from_the_first_and_the_site_needs_no_network_and_shows_formulas(site):
    found, todo = set(), [site / 'docs/index.html']
    while todo:
        page = todo.pop()
        if page not in found:
            found.add(page)
            todo += links_of(page)
    expected = {(site / page.relative_to(ROOT)).with_suffix('.html') for page in PAGES}
    assert expected <= found, expected - found
    pages = {page: page.read_text() for page in site.rglob('*.html')}
    for page, text in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]*)', text)
        assert not loaded, page
    assert '<math' in pages[site / 'docs/api/functional.html']


@pytest.mark.parametrize('module', PUBLIC)
def test_every_public_name_is_in_the_reference(site, module):
    with (site / 'objects.inv').open('rb') as file:
        inventory = InventoryFile.load(file, '', lambda base, uri: uri)
    documented = {name for kind, names in inventory.items() if kind.startswith('py:') for name in names}
    public = set(importlib.import_module(module).__all__) - {'__version__', 'functional', 'decisions'}
    if module.endswith('heads'):
        public.add('TopKClsHead')  # needs MMPretrain, which is not in this environment
    exported = {name for other in PUBLIC for name in documented if name.startswith(f'{other}.')}
    missing = {name for name in public if not any(f'{where}.{name}' in exported for where in (module, *PUBLIC))}
    assert not missing
