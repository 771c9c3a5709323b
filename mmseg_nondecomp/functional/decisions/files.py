"""Files of fitted decisions."""

import json
from pathlib import Path
from typing import Any

from mmseg_nondecomp.functional.decisions.class_offsets import ClassOffsets
from mmseg_nondecomp.functional.decisions.image_overlap import ImageOverlap
from mmseg_nondecomp.functional.decisions.thresholds import Thresholds

Decision = ClassOffsets | ImageOverlap | Thresholds
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (ClassOffsets, ImageOverlap, Thresholds)}


def write_decision(decision: Decision, path: str | Path) -> None:
    """Write a decision to a file of JSON, which `read_decision` reads.

    Raises:
        TypeError: If it is not one of ``ClassOffsets``, ``ImageOverlap`` and ``Thresholds``.
    """
    kind = type(decision).__name__
    if kind not in KINDS:
        raise TypeError(f'Parameter `decision` should be one of {tuple(KINDS)}. Found {kind}.')
    text = json.dumps({'type': kind, 'state': decision.state()}, indent=1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.new')
    try:
        temporary.write_text(text + '\n', encoding='utf-8')
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_decision(path: str | Path) -> Decision:
    """Return the decision in a file of `write_decision`.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file does not hold a decision.
    """
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
        kind = KINDS[content['type']]
        return kind.from_state(content['state'])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f'The file {str(path)!r} should hold a decision of tools/fit_decision.py: {error}') from error
