"""Losses of other libraries, those that are installed.

Some would bring a torchvision or another torch along, of which their losses need nothing: their files alone are enough
(``pip install --no-deps --target DIR``), and what their packages import on top is left out.
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
    'scikit-learn',
    'segmentation-models-pytorch',
    'torchmetrics',
)


def versions() -> dict[str, str | None]:
    """What the peers' versions are; None of those that are left out."""

    def of(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {name: of(name) for name in DISTRIBUTIONS}


def losses_of_smp() -> Any:
    """The losses of segmentation-models-pytorch without its encoders, which need torchvision and timm."""
    if not find_spec('segmentation_models_pytorch'):
        return None
    return imported_without('segmentation_models_pytorch.losses', 'segmentation_models_pytorch')


def losses_of_libauc() -> Any:
    """The losses of LibAUC for areas under curves, without its models and data sets."""
    if not find_spec('libauc'):
        return None
    return imported_without('libauc.losses.auc', 'libauc', 'libauc.losses', 'libauc.utils')


def module_of(name: str) -> Any:
    """A module whose package comes along as it is; None where that is not installed."""
    return importlib.import_module(name) if find_spec(name.partition('.')[0]) else None


def libauc_peer(n: int) -> dict[str, Loss]:
    """The average precision loss of LibAUC (SOAP) for a data set of n items."""
    libauc = losses_of_libauc()
    if libauc is None:
        return {}
    loss = libauc.APLoss(data_len=n)
    return {'APLoss of LibAUC': lambda x, y: loss(x.sigmoid(), y, torch.arange(n))}


def difftopk_peer(n: int, k: int) -> dict[str, Loss]:
    """The loss of difftopk as its documentation has it, on the 16 highest scores, of which k should be fewer."""
    difftopk = module_of('difftopk') if k < 16 else None
    if difftopk is None:
        return {}
    loss = difftopk.TopKCrossEntropyLoss(
        diffsort_method='odd_even', inverse_temperature=2, p_k=[0.0] * (k - 1) + [1.0], n=n, m=16, distribution='cauchy'
    )
    return {'TopKCrossEntropyLoss of difftopk, m = 16': loss}


def imported_without(module: str, *packages: str) -> Any:
    """A module without what these packages, outer ones first, import when they are imported themselves."""
    for name in packages:
        if name not in sys.modules:
            spec = find_spec(name)
            package = types.ModuleType(name)
            package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
            sys.modules[name] = package
    return importlib.import_module(module)
