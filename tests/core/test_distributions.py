"""Content of the sdist and the wheel. `make test-core` builds them into `dist`, beside the tests."""

from core import without_openmmlab  # noqa: F401  isort: skip

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import mmseg_nondecomp

DIST = Path(__file__).parents[2] / 'dist'


@pytest.fixture(scope='module')
def wheel():
    (path,) = DIST.glob('*.whl')
    with zipfile.ZipFile(path) as file:
        yield file


@pytest.fixture(scope='module')
def sdist():
    """The names in the sdist, without the folder that they all are in."""
    (path,) = DIST.glob('*.tar.gz')
    with tarfile.open(path) as file:
        tops, names = zip(*(member.name.partition('/')[::2] for member in file if member.isfile()), strict=True)
    assert set(tops) == {path.name.removesuffix('.tar.gz')}
    return set(names)


def test_both_have_the_version_of_the_package():
    stem = f'mmseg_nondecomp-{mmseg_nondecomp.__version__}'
    assert {path.name for path in DIST.iterdir()} == {f'{stem}.tar.gz', f'{stem}-py3-none-any.whl'}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    about = f'mmseg_nondecomp-{mmseg_nondecomp.__version__}.dist-info'
    names = set(wheel.namelist())
    assert {name.split('/')[0] for name in names} == {'mmseg_nondecomp', about}
    package = {name for name in names if name.startswith('mmseg_nondecomp/')}
    assert {Path(name).suffix for name in package - {'mmseg_nondecomp/py.typed'}} == {'.py'}
    assert 'mmseg_nondecomp/py.typed' in package


def test_the_wheel_holds_all_of_the_package(wheel, sdist):
    assert {n for n in wheel.namelist() if n.startswith('mmseg_nondecomp/')} == {
        n for n in sdist if n.startswith('mmseg_nondecomp/')
    }


def test_the_licence_is_in_both(wheel, sdist):
    assert 'LICENSE' in sdist
    (name,) = [name for name in wheel.namelist() if name.endswith('LICENSE')]
    assert 'Apache License' in wheel.read(name).decode()


def test_the_sdist_holds_documents_and_tests(sdist):
    top = {'README.md', 'CHANGELOG.md', 'CITATION.cff', 'LICENSE', 'MANIFEST.in', 'pyproject.toml'}
    assert {name for name in sdist if '/' not in name} == top | {'PKG-INFO', 'setup.cfg'}
    folders = {name.split('/')[0] for name in sdist if '/' in name}
    assert folders == {'mmseg_nondecomp', 'mmseg_nondecomp.egg-info', 'tests'}
    assert 'tests/core/test_smoke.py' in sdist


def test_the_metadata_name_the_requirements(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith('METADATA')]
    lines = wheel.read(name).decode().splitlines()
    needed = [line.removeprefix('Requires-Dist: ') for line in lines if line.startswith('Requires-Dist: ')]
    always = {re.match(r'\w+', requirement)[0] for requirement in needed if 'extra ==' not in requirement}
    assert always == {'torch', 'torchmetrics', 'numpy'}
    assert any(line.startswith('License') and 'Apache-2.0' in line for line in lines)
    assert 'Description-Content-Type: text/markdown' in lines
