"""Blocks, links and commands of README.md and docs/, and the configs in them."""

import io
import re
import runpy
import sys
from contextlib import redirect_stdout, suppress
from functools import cache
from inspect import signature
from unittest.mock import patch

import torch
from code_blocks import ROOT, blocks, is_config
from mmengine.config import Config
from mmengine.registry import DATA_SAMPLERS, HOOKS, METRICS, MODELS, TASK_UTILS, TRANSFORMS, init_default_scope
from mmengine.utils import import_modules_from_strings

DOCUMENTS = [path for folder in ('*.md', 'configs/*/*.md', 'docs/**/*.md') for path in sorted(ROOT.glob(folder))]


def configs_of(documents, toolboxes):
    """Return the blocks of configs for these toolboxes, by a name for their tests."""
    return {
        f'{document.relative_to(ROOT)}-{number}': block
        for document in documents
        for number, block in enumerate(blocks(document, 'python'))
        if is_config(block) and block.stock.partition('::')[0] in toolboxes
    }


def applied(block, folder):
    """Return the stock config, and the same with the lines of a block."""
    inherit = f'_base_ = [{block.stock!r}]\n'
    (folder / 'stock.py').write_text(inherit)
    (folder / 'mine.py').write_text(block.code if '_base_' in block.code else inherit + block.code)
    return tuple(Config.fromfile(folder / name) for name in ('stock.py', 'mine.py'))


def parts(config):
    if isinstance(config, dict):
        if 'type' in config:
            yield config
        for value in config.values():
            yield from parts(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from parts(value)


def own_classes():
    """Return the registered classes of this package by name, each with its registry."""
    registries = DATA_SAMPLERS, HOOKS, METRICS, MODELS, TASK_UTILS, TRANSFORMS
    found = ((name, registry, cls) for registry in registries for name, cls in registry.module_dict.items())
    return {name: (registry, cls) for name, registry, cls in found if cls.__module__.startswith('mmseg_nondecomp')}


def check_config(block, folder):
    """Apply a block to its stock config, build the model, and every part of this package that it names."""
    stock, mine = applied(block, folder)
    toolbox = block.stock.partition('::')[0]
    import_modules_from_strings([f'{toolbox}.models', f'{toolbox}.datasets', f'{toolbox}.evaluation'])
    init_default_scope(toolbox)
    # Nothing is computed, so that no weights are needed; but backbones of MMPretrain, and SAN, read numbers when built.
    with torch.device('cpu' if toolbox == 'mmpretrain' or '/san-' in block.stock else 'meta'):
        MODELS.build(mine.model)
    ours = own_classes()
    used = [part for part in parts(dict(mine.items())) if part['type'] in ours]
    assert used, 'nothing of this package is used'
    for part in used:
        registry, cls = ours[part['type']]
        signature(cls).bind_partial(**{key: value for key, value in part.items() if key not in ('type', '_scope_')})
        if registry in (METRICS, HOOKS, TRANSFORMS):
            registry.build(part)
    if 'RandomCropOnClass' in block.code:  # The pipeline is the stock one but for the crop.
        before, after = (config.train_dataloader.dataset.pipeline for config in (stock, mine))
        assert [{**step, 'type': step.type.replace('OnClass', '')} for step in after] == before


def commands(document):
    """Return the commands of the blocks in bash, each a list of words."""
    lines = '\n'.join(block.code for block in blocks(document, 'bash')).replace('\\\n', ' ').splitlines()
    return [line.partition(' #')[0].split() for line in lines if line.strip()]


@cache
def options_of(script):
    """Return the options in the ``--help`` of a script of tools/."""
    script = {'dist_train.sh': 'train.py', 'dist_test.sh': 'test.py'}.get(script, script)
    folder = str(ROOT / 'tools')
    with (
        patch.object(sys, 'argv', [script, '--help']),
        patch.object(sys, 'path', [folder, *sys.path]),
        redirect_stdout(io.StringIO()) as printed,
        suppress(SystemExit),
    ):
        runpy.run_path(f'{folder}/{script}', run_name='__main__')
    return set(re.findall(r'(?<![\w-])--?[a-z][\w-]*', printed.getvalue()))


def slugs(document):
    text = re.sub(r'^```.*?^```$', '', document.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
    plain = [re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', title).strip().lower() for title in titles]
    return {re.sub(r'[^\w\- ]', '', title).replace(' ', '-') for title in plain}


def dead_links(document):
    """Return the links of a document to a missing file or a missing heading."""
    text = re.sub(r'^```.*?^```$|`[^`\n]*`', '', document.read_text(), flags=re.DOTALL | re.MULTILINE)
    dead = []
    for target in re.findall(r'\]\(([^)\s]+)\)', text):
        if not target.startswith('http'):
            path, _, anchor = target.partition('#')
            file = document.parent / path if path else document
            if not file.exists() or (anchor and anchor not in slugs(file)):
                dead.append(target)
    return dead


def named_files(document):
    """Return the files of tools/, configs/, requirements/ and benchmarks/ in a document."""
    return re.findall(r'(?<![\w./-])(?:tools|configs|requirements|benchmarks)/[\w./-]+\.\w+', document.read_text())
