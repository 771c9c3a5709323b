"""Code in README.md and docs/: its blocks, and programs that are executed page by page."""

import ast
import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / 'docs').glob('**/*.md'))
FENCE = re.compile(r'^```(\w+)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?', re.DOTALL | re.MULTILINE)
STOCK = re.compile(r'mm\w+::[\w./-]+\.py')
BASE = 'mmseg::fcn/fcn_r50-d8_4xb2-40k_cityscapes-512x1024.py'
FRAMEWORKS = {
    'docs/asked-for.md': ('transformers', 'nnunetv2', 'monai', 'segmentation_models_pytorch', 'ultralytics'),
    'docs/recipes/keras.md': ('keras',),
    'docs/recipes/lightning.md': ('pytorch_lightning',),
    'docs/recipes/monai.md': ('monai',),
    'docs/recipes/nnunet.md': ('nnunetv2',),
    'docs/recipes/segmentation-models.md': ('segmentation_models_pytorch',),
    'docs/recipes/transformers.md': ('transformers', 'accelerate'),
    'docs/recipes/ultralytics.md': ('ultralytics',),
}
"""Pages whose programs need other frameworks, which are in the environment of `make test-adapters`."""


class Block(NamedTuple):
    code: str
    printed: str | None
    """The block of text below it: what it prints."""
    stock: str
    """The stock config named last above it, or in it."""


def blocks(document, language):
    text = document.read_text()
    found = []
    for block in FENCE.finditer(text):
        if block[1] == language:
            named = STOCK.findall(text[: block.end()])
            found.append(Block(block[2], block[3], named[-1] if named else BASE))
    return found


def is_config(block):
    """Return whether a block of Python has only assignments, and no call but dict()."""
    tree = ast.parse(block.code)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return all(isinstance(statement, ast.Assign) for statement in tree.body) and all(
        isinstance(call, ast.Name) and call.id == 'dict' for call in calls
    )


def is_program(page):
    """Return whether a page has code to execute, and what it needs is installed."""
    needs = FRAMEWORKS.get(page.relative_to(ROOT).as_posix(), ())
    return all(map(find_spec, needs)) and any(not is_config(block) for block in blocks(page, 'python'))


def run(page):
    """Run a page. Return its variables, and the printed and the documented output of each block."""
    names, printed = {}, []
    for block in blocks(page, 'python'):
        if not is_config(block):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block.code, page.name, 'exec'), names)
            printed.append((output.getvalue(), block.printed))
    return names, printed
