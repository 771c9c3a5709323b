"""Files and logs of a training, compared with those of another."""

import json
from pathlib import Path
from typing import Any

import torch

ITERATIONS = 14
UNLIKE = 'time', 'data_time', 'memory', 'eta', 'last_ckpt', 'experiment_name', 'mmengine_version', 'seconds', 'starts'


def left_by_train(folder: Path) -> dict[str, Any]:
    """Return the last checkpoint of ``tools/train.py`` and all logged values of every step.

    In the checkpoint are weights, histograms and multipliers of the losses, the state of the optimizer, the IoU that
    the sampler was told, and the values that were logged.
    """
    checkpoint = torch.load(folder / f'iter_{ITERATIONS}.pth', weights_only=False)
    del checkpoint['meta']
    logged: dict[str, list[Any]] = {}
    for file in sorted(folder.glob('*/vis_data/scalars.json')):
        for line in file.read_text().splitlines():
            try:
                values = json.loads(line)
            except json.JSONDecodeError:  # The last line of a process that was killed while it wrote.
                continue
            for key, value in values.items():
                logged.setdefault(f'{values.get("iter", "val")} {values["step"]} {key}', []).append(value)
    # The values of a step that was trained twice should be the same, too.
    steps = {key: values[0] if values.count(values[0]) == len(values) else values for key, values in logged.items()}
    return {'checkpoint': checkpoint, 'logged': steps}


def left_by_compare(folder: Path) -> dict[str, Any]:
    """Return the result of a training of ``tools/compare.py``, with the curve of its validations."""
    [file] = folder.rglob('result.json')
    return json.loads(file.read_text())


def compared(expected: dict[str, Any], found: dict[str, Any], was_through: bool = False) -> str:
    """Compare two trainings; ``was_through`` if the last checkpoint existed before the last start."""
    end = 'the same'
    if was_through and 'logged' in found and not any(key.startswith(f'val {ITERATIONS} ') for key in found['logged']):
        # MMEngine does not make up for a validation that was due when the checkpoint was saved.
        logged = {key: value for key, value in expected['logged'].items() if f'val {ITERATIONS} ' not in key}
        expected, end = {**expected, 'logged': logged}, 'the same, without the last validation'
    return difference(expected, found) or end


def difference(first: Any, second: Any, path: str = '') -> str | None:
    if path.rsplit('/', 1)[-1].removeprefix('train/').split(' ')[-1] in UNLIKE:
        return None
    if hasattr(first, '__getstate__') and hasattr(first, '_log_history'):
        first, second = (list(buffer._log_history) for buffer in (first, second))
    if isinstance(first, torch.Tensor):
        same = first.dtype == second.dtype and torch.equal(first.nan_to_num(-1.5), second.nan_to_num(-1.5))
        return None if same else f'{path} has other numbers'
    if isinstance(first, dict):
        if first.keys() != second.keys():
            return f'{path} has other keys: {sorted(map(str, first.keys() ^ second.keys()))}'
        return next((found for key in first if (found := difference(first[key], second[key], f'{path}/{key}'))), None)
    if isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return f'{path} has another length: {len(first)} and {len(second)}'
        pairs = enumerate(zip(first, second, strict=True))
        return next((found for i, (a, b) in pairs if (found := difference(a, b, f'{path}/{i}'))), None)
    same = first == second or (first != first and second != second)
    return None if same else f'{path} is another: {first} and {second}'
