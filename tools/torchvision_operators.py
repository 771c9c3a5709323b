"""Import of torchvision's Python part without its compiled operators. Only for the test environment.

A torchvision built for CUDA does not find its libraries next to a CPU torch. Classifiers need none of its operators,
but the import looks up two of them, which are declared here. tools/setup_mmpretrain.sh makes every process of
.venv-mmpretrain run this file at its start.
"""

from importlib.util import find_spec
from pathlib import Path

import torch


def declare() -> torch.library.Library | None:
    """Declare the operators unless torchvision provides them."""
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


DECLARED = declare()  # keeps the declarations alive
