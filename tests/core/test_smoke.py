"""The installed package does its work where torch, torchmetrics and numpy are all there is."""

from core import without_openmmlab  # noqa: F401  isort: skip

import pkgutil
import sys
import sysconfig
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from losses.test_contract import CASES
from metrics.test_contract import ARGUMENTS
from torch import nn

import mmseg_nondecomp
from mmseg_nondecomp import functional, losses, metrics
from mmseg_nondecomp.adapters.nnunet import TRAINERS

OPENMMLAB = ['mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'mmseg']
MODULES = [
    module.name
    for module in pkgutil.walk_packages(mmseg_nondecomp.__path__, 'mmseg_nondecomp.', onerror=lambda name: None)
]


def test_it_is_the_installed_one():
    assert Path(mmseg_nondecomp.__file__).is_relative_to(sysconfig.get_path('purelib'))


def test_no_openmmlab_is_there():
    assert not [name for name in OPENMMLAB if find_spec(name)]
    found = {distribution.name.lower().replace('-', '_') for distribution in metadata.distributions()}
    assert {name for name in found if name.startswith(('mm', 'onedl'))} == {'mmseg_nondecomp'}


def test_version_is_that_of_the_distribution():
    assert mmseg_nondecomp.__version__ == metadata.version('mmseg_nondecomp') != 'unknown'


def test_it_is_typed():
    assert 'mmseg_nondecomp/py.typed' in map(str, metadata.files('mmseg_nondecomp'))


@pytest.mark.parametrize('module', [mmseg_nondecomp, functional, losses, metrics, metrics.functional], ids=str)
def test_every_public_name_is_there(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize('name', mmseg_nondecomp.NEEDS)
def test_names_that_need_openmmlab_raise_an_import_error(name):
    package = mmseg_nondecomp.NEEDS[name]
    with pytest.raises(ImportError, match=rf'`{name}` needs {package}: pip install "mmseg_nondecomp\[mmseg\]"'):
        getattr(mmseg_nondecomp, name)
    with pytest.raises(ImportError, match=package):
        exec(f'from mmseg_nondecomp import {name}')


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match='LovaszSoftmax2'):
        mmseg_nondecomp.LovaszSoftmax2  # noqa: B018


def missing(name):
    """Return the package that is missing when a module is imported, or None."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        return error.name.partition('.')[0]


@pytest.mark.parametrize('name', MODULES)
def test_every_module_imports_or_names_the_missing_package(name):
    folders = ('backbones', 'checkpoints', 'datasets', 'evaluation', 'hooks', 'transforms')
    needs_openmmlab = name.split('.')[1] in folders
    by_name = name.startswith('mmseg_nondecomp.heads.')
    others = ['keras'] if name == 'mmseg_nondecomp.adapters.keras' else [None]
    assert missing(name) in (OPENMMLAB if needs_openmmlab or by_name else others)


def test_the_trainers_of_nnunet_are_installed():
    assert [path.name for path in TRAINERS.glob('*.py')] == ['mmseg_nondecomp_trainers.py']


def test_nothing_of_it_imports_openmmlab():
    assert not set(OPENMMLAB) & set(sys.modules)


@pytest.mark.parametrize(
    ('name', 'arguments'), [(name, arguments) for name, cases in CASES.items() for _, arguments in cases], ids=str
)
def test_a_step_of_training(name, arguments):
    torch.manual_seed(0)
    model, loss = nn.Conv2d(3, 5, 3, padding=1), getattr(mmseg_nondecomp, name)(**arguments)
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.01)
    images, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2, 8, 8))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    value = loss(model(images), labels)
    value.backward()
    optimizer.step()
    assert value.isfinite()
    assert value.ndim == 0
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not torch.equal(model.weight, before[0])


@pytest.mark.parametrize('name', metrics.__all__)
def test_a_metric_of_two_batches(name):
    torch.manual_seed(0)
    metric = getattr(metrics, name)(num_classes=5, **ARGUMENTS[name][0])
    for _ in range(2):
        metric.update(torch.randn(2, 5, 8, 8).softmax(1), torch.randint(0, 5, (2, 8, 8)))
    found = metric.compute()
    values = found.values() if isinstance(found, dict) else [found]
    assert all(value.isfinite().all() and 0 <= value.min() <= value.max() <= 1 for value in values)
