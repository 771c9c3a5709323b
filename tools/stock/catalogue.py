"""The stock models of the matrix: one config for each combination of heads."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.config import Config, ConfigDict

HEAD_KEYS = ('decode_head', 'auxiliary_head', 'kernel_generate_head', 'bbox_head', 'mask_head', 'rpn_head', 'roi_head')
"""Keys of a model whose types distinguish stock models, besides the type of the model."""
DETECTOR_KEYS = (*HEAD_KEYS, 'point_head', 'semantic_head', 'panoptic_head', 'track_head', 'grid_head', 'mask_iou_head')


class StockModel(NamedTuple):
    """A stock config and the heads of its model."""

    toolbox: str
    folder: str
    config: str
    """Path below the folder of configs."""
    heads: tuple[str, ...]
    """``key=type`` of each head, sorted."""

    @property
    def name(self) -> str:
        """Name in test ids and on the command line."""
        return f'{self.toolbox}::{self.config}'


def configs_folder(toolbox: str) -> Path:
    """Return the folder of the installed stock configs."""
    spec = find_spec(toolbox)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f'{toolbox} is not installed.')
    return Path(spec.origin).parent / '.mim' / 'configs'


def model_of(toolbox: str, config: str) -> ConfigDict:
    """Return the model of a stock config. Modules that it imports may be missing: its backbone is replaced."""
    return Config.fromfile(configs_folder(toolbox) / config, import_custom_modules=False).model


def heads_of(model: ConfigDict) -> tuple[str, ...]:
    """Return ``key=type`` of the model and of each of its heads, each combination once."""
    return tuple(sorted({f'{key}={kind}' for key, kind in _typed('model', model) if key in {'model', *DETECTOR_KEYS}}))


def _typed(key: str, config: Any) -> Iterator[tuple[str, str]]:
    if isinstance(config, dict):
        if 'type' in config:
            yield key, config['type'] if isinstance(config['type'], str) else config['type'].__name__
        for name, value in config.items():
            yield from _typed(name, value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _typed(key, value)


def stock_models(toolbox: str) -> tuple[list[StockModel], dict[str, list[str]]]:
    """Return the representative models, and for each folder the configs that represent it.

    In MMSegmentation, each combination of heads in a folder is represented by a config of the folder; in MMDetection,
    each combination by one config of the folder that has most configs with it. Configs that cannot be read are left
    out.
    """
    root = configs_folder(toolbox)
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
    folders: dict[str, list[str]] = {path.name: [] for path in sorted(root.iterdir()) if path.name != '_base_'}
    for path in sorted(root.glob('[!_]*/*.py')):
        try:
            heads = heads_of(model_of(toolbox, str(path.relative_to(root))))
        except (OSError, KeyError, AttributeError):  # a config of data only, or a file that the distribution lacks
            continue
        groups.setdefault(heads, {}).setdefault(path.parent.name, []).append(str(path.relative_to(root)))
    models = []
    for heads, members in groups.items():
        largest = max(members, key=lambda folder: len(members[folder]))
        for folder in members:
            chosen = folder if toolbox == 'mmseg' else largest
            config = min(members[chosen], key=lambda name: ('r50' not in name, 'levir' in name, len(name), name))
            folders[folder].append(config)
            if folder == chosen:
                models.append(StockModel(toolbox, folder, config, heads))
    return sorted(models), folders
