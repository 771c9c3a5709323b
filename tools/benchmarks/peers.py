"""Losses of installed libraries.

Some libraries depend on torchvision or another torch, which their losses do not need: their files are sufficient (``pip
install --no-deps --target DIR``), and further imports of their packages are skipped.
"""

import importlib
import sys
import types
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]

DISTRIBUTIONS = (
    'difftopk',
    'kornia',
    'libauc',
    'mmdet',
    'mmsegmentation',
    'monai',
    'rankseg',
    'scikit-learn',
    'segmentation-models-pytorch',
    'torchmetrics',
)


def versions() -> dict[str, str | None]:
    """Return the versions of the peers; None for those that are not installed."""

    def of(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {name: of(name) for name in DISTRIBUTIONS}


def losses_of_smp() -> Any:
    """Return the losses of segmentation-models-pytorch without its encoders, which need torchvision and timm."""
    if not find_spec('segmentation_models_pytorch'):
        return None
    return imported_without('segmentation_models_pytorch.losses', 'segmentation_models_pytorch')


def losses_of_libauc() -> Any:
    """Return the losses of LibAUC for areas under curves, without its models and data sets."""
    if not find_spec('libauc'):
        return None
    return imported_without('libauc.losses.auc', 'libauc', 'libauc.losses', 'libauc.utils')


def module_of(name: str) -> Any:
    """Return a module of an installed package; None if it is not installed."""
    return importlib.import_module(name) if find_spec(name.partition('.')[0]) else None


def libauc_peer(n: int) -> dict[str, Loss]:
    """Return the average precision loss of LibAUC (SOAP) for a data set of n items."""
    libauc = losses_of_libauc()
    if libauc is None:
        return {}
    loss = libauc.APLoss(data_len=n)
    return {'APLoss of LibAUC': lambda x, y: loss(x.sigmoid(), y, torch.arange(n))}


def difftopk_peer(n: int, k: int) -> dict[str, Loss]:
    """Return the loss of difftopk as in its documentation, on the 16 highest scores; k should be smaller."""
    difftopk = module_of('difftopk') if k < 16 else None
    if difftopk is None:
        return {}
    loss = difftopk.TopKCrossEntropyLoss(
        diffsort_method='odd_even', inverse_temperature=2, p_k=[0.0] * (k - 1) + [1.0], n=n, m=16, distribution='cauchy'
    )
    return {'TopKCrossEntropyLoss of difftopk, m = 16': loss}


def imported_without(module: str, *packages: str) -> Any:
    """Import a module without running the imports of these packages, outer ones first."""
    for name in packages:
        if name not in sys.modules:
            spec = find_spec(name)
            package = types.ModuleType(name)
            package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
            sys.modules[name] = package
    return importlib.import_module(module)
