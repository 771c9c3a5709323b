"""Every name of the package that a document or a config mentions can be imported."""

import needs_openmmlab  # noqa: F401  isort: skip

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = re.compile(r'\bmmseg_nondecomp(?:\.[A-Za-z_0-9]+)+')
OF_MMPRETRAIN = ('mmseg_nondecomp.heads.TopKClsHead', 'mmseg_nondecomp.heads.topk_cls_head')


def documented_names():
    documents = [ROOT / 'README.md', ROOT / 'CHANGELOG.md', ROOT / 'CONTRIBUTING.md']
    documents += [path for folder in ('docs', 'configs') for path in (ROOT / folder).rglob('*.*')]
    text = '\n'.join(path.read_text() for path in documents if path.suffix in ('.md', '.py') and path.is_file())
    return sorted(set(NAME.findall(text)))


def is_importable(name):
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition('.')
        return is_importable(module) and hasattr(import_module(module), attribute)
    return True


@pytest.mark.parametrize('name', documented_names())
def test_a_documented_name_can_be_imported(name):
    if name in OF_MMPRETRAIN and find_spec('mmpretrain') is None:
        pytest.skip('MMPretrain is not installed')
    if name.startswith('mmseg_nondecomp.adapters.keras') and find_spec('keras') is None:
        pytest.skip('Keras is not installed')
    assert is_importable(name)


def test_there_are_such_names():
    assert {'mmseg_nondecomp.datasets', 'mmseg_nondecomp.functional.max_pooling'} <= set(documented_names())


def test_the_guide_has_every_measure_of_metric_loss():
    from mmseg_nondecomp.losses._recommended import CHOICES

    guide = (ROOT / 'docs/choosing.md').read_text()
    assert set(re.findall(r"metric_loss\('(\w+)'", guide)) == set(CHOICES)
