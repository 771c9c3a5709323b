"""All packages of the environments are pinned, and so are all imported packages."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / 'requirements').glob('*.txt'))
PIN = re.compile(r'([A-Za-z0-9][\w.-]*)==(\d[\w.!+-]*)')
NAME = re.compile(r'[A-Za-z0-9][\w.-]*')
OWN = {'mmseg_nondecomp', *(path.stem for folder in ('tools', 'tests') for path in (ROOT / folder).rglob('*'))}
PEERS = {'difftopk', 'kornia', 'libauc', 'monai', 'segmentation_models_pytorch'}
"""Of tools/benchmark.py, which does without those that are not installed."""


def lines_of(file):
    lines = (line.partition('#')[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def normal(name):
    return re.sub(r'[-_.]+', '-', name).lower()


def pinned(*names):
    """Return the distributions that are pinned in these files of requirements."""
    lines = (line for name in names for line in lines_of(ROOT / 'requirements' / f'{name}.txt'))
    return {normal(found[1]) for line in lines if (found := PIN.fullmatch(line))}


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_every_requirement_is_one_version(file):
    """Of its own, or that of the lock file."""
    lines = lines_of(file)
    assert lines
    unpinned = [line for line in lines if not PIN.fullmatch(line)]
    assert file.stem in ('core', 'adapters') or not unpinned
    assert {normal(line) for line in unpinned if NAME.fullmatch(line)} <= pinned('lock')
    assert all(NAME.fullmatch(line) for line in unpinned)
    names = [normal(re.split('==', line)[0]) for line in lines]
    assert len(set(names)) == len(names)


def imported(folder):
    """Yield the top-level packages that the sources of a folder import."""
    for path in (ROOT / folder).rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition('.')[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.partition('.')[0]


@pytest.mark.parametrize('folder', ['mmseg_nondecomp', 'tools', 'configs', 'docs', 'tests'])
def test_imported_packages_are_pinned(folder):
    names = set(imported(folder)) - sys.stdlib_module_names - OWN - PEERS
    providers = packages_distributions()
    everywhere = pinned('lock', 'mmpretrain', 'core', 'adapters')
    missing = {name for name in names if not {normal(p) for p in providers.get(name, [name])} & everywhere}
    assert not missing
