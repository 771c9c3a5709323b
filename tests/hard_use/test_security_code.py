"""No call in the package or in the tools runs data as code. Ruff's rules S find most such calls."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ('mmseg_nondecomp', 'tools') for path in (ROOT / folder).rglob('*.py'))
PICKLES = {'pickle', '_pickle', 'cPickle', 'dill', 'joblib', 'cloudpickle', 'jsonpickle', 'shelve', 'marshal'}
RUNS = {'__import__', 'compile', 'import_module', 'fromstring', 'run_path', 'run_module', 'extractall', 'mktemp'}
RUNS |= {'load_from_local', '_load_checkpoint', 'read_pickle', 'memmap', 'fromfile', 'loadtxt', 'genfromtxt'}
HARMLESS = ('re.compile', 'torch.compile', 'Config.fromfile')
"""The last runs a config, which is a program."""
ALLOWED = {
    ('mmseg_nondecomp/backbones/efficientnet_lite.py', 'torch.load'): '`weights_only` is True, the SHA-256 is checked',
    ('mmseg_nondecomp/checkpoints/_loading.py', 'pickle'): 'the name of an error',
    ('mmseg_nondecomp/checkpoints/_loading.py', 'torch.load'): "`weights_only` is True, torch's switches work",
    ('mmseg_nondecomp/checkpoints/_loading.py', 'load_from_local'): 'is handed to MMEngine',
    ('mmseg_nondecomp/evaluation/_metrics_from_config.py', 'import_module'): 'a module that a config names',
    ('mmseg_nondecomp/checkpoints/_stand_ins.py', 'pickle'): 'the name of an error',
    ('tools/comparison/training.py', 'load_from_local'): 'is of this package, and safe',
    ('tools/reproductions/fine_tuned.py', 'load_from_local'): 'is of this package, and safe',
    ('tools/benchmarks/peers.py', 'import_module'): 'a module that the file names',
    ('tools/benchmarks/metrics.py', 'pickle'): 'measures how large a state is; nothing is read',
}
"""Findings by file, each with the reason why it is harmless."""


def findings(source):
    """Yield the names of calls in a source that could run data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [node.module or ''] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (module for module in modules if module.partition('.')[0] in PICKLES)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in RUNS and ast.unparse(node) not in HARMLESS:
                yield name
            elif name == 'load' and ast.unparse(node) in ('torch.load', 'torch.jit.load', 'torch.hub.load'):
                yield ast.unparse(node)
        if isinstance(node, ast.Call):
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            yield from (
                f'{argument}={value}'
                for argument, safe in (('allow_pickle', 'False'), ('weights_only', 'True'), ('shell', 'False'))
                if (value := keywords.get(argument, safe)) != safe
            )


def test_nothing_that_runs_data_is_called():
    found = {
        (path.relative_to(ROOT).as_posix(), what)
        for path in FILES
        for what in findings(path.read_text(encoding='utf-8'))
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    'source',
    [
        *('import pickle', 'from pickle import loads', 'import joblib as j', 'from dill import load', 'import shelve'),
        *('torch.load(path)', 'partial(torch.load, weights_only=False)', 'np.load(path, allow_pickle=True)'),
        *('hub(url, weights_only=switch)', 'run(command, shell=True)', 'exec(compile(text, "", "exec"))'),
        *('importlib.import_module(name)', 'Config.fromstring(text, ".py")', 'archive.extractall(folder)'),
    ],
)
def test_it_would_be_found(source):
    assert list(findings(source))


@pytest.mark.parametrize(
    'line',
    [
        *('eval(text)', 'exec(text)', 'import pickle; pickle.loads(data)', 'import marshal; marshal.loads(data)'),
        *('import shelve; shelve.open(path)', 'import yaml; yaml.load(text)', 'import os; os.system(command)'),
        *('import subprocess; subprocess.run(command, shell=True)', 'import tempfile; tempfile.mktemp()'),
        *('import hashlib; hashlib.md5(data)', 'import tarfile; tarfile.open(path).extractall()'),
        *('import xml.dom.minidom as m; m.parse(path)', 'import requests; requests.get(url, verify=False)'),
        'import urllib.request; urllib.request.urlopen(url)',
    ],
)
def test_ruff_finds_the_rest(line):
    options = ['--stdin-filename', 'mmseg_nondecomp/a.py', '--output-format=json', '-']
    command = [sys.executable, '-m', 'ruff', 'check', *options]
    done = subprocess.run(command, input=line, capture_output=True, text=True, cwd=ROOT)
    assert '"code":"S' in done.stdout.replace(' ', '')


def test_exceptions_from_ruff_have_a_reason():
    rules = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['ruff']['lint']
    assert 'S' in rules['select']
    assert not [rule for rule in rules['ignore'] if rule.startswith('S') and rule[1:].isdigit()]
    assert [folder for folder, off in rules['per-file-ignores'].items() if 'S' in off] == ['tests/**']
    lines = [
        (path, line) for path in FILES for line in path.read_text(encoding='utf-8').splitlines() if 'noqa: S' in line
    ]
    # A parser without doctypes; files with known hashes; and this program itself, started anew.
    found = {(path.name, line.partition('noqa: ')[2]) for path, line in lines}
    assert found == {('voc_actions.py', 'S314'), ('aerial_trees.py', 'S314'), ('busy.py', 'S603')}
