"""Lets torchvision's Python part import where its compiled operators cannot be loaded. Only for the test environment.

A torchvision built for CUDA does not find its libraries beside a torch for the CPU. A classifier needs no operator of
it, but its import looks two of them up, which are declared here. tools/setup_mmpretrain.sh has it run at the start of
every process of .venv-mmpretrain.
"""

from importlib.util import find_spec
from pathlib import Path

import torch


def declare() -> torch.library.Library | None:
    """Declare the operators, unless torchvision brings them."""
    spec = find_spec('torchvision')
    if spec is None or spec.origin is None:
        return None
    try:
        for binary in Path(spec.origin).parent.glob('_C*.so'):
            torch.ops.load_library(str(binary))
    except OSError:
        library = torch.library.Library('torchvision', 'DEF')
        for name in ('nms', 'qnms'):
            library.define(f'{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
        return library
    return None


DECLARED = declare()  # they exist as long as this does
