"""The structure of the package: short ways to a formula, short functions, one direction of imports."""

import ast
import importlib
from pathlib import Path

import pytest
from code_blocks import ROOT

PACKAGE = ROOT / 'mmseg_nondecomp'
MODULES = sorted(PACKAGE.rglob('*.py'))

WAYS = {
    'losses/lovasz_softmax_loss.py': 8,
    'losses/smooth_topk_loss.py': 7,
    'losses/s_measure_loss.py': 9,
    'losses/direct_ap_loss.py': 9,
    'losses/loss_max_pooling.py': 7,
}
"""Modules on the way of a call, at most."""
NOT_COUNTED = {PACKAGE / 'registry.py', PACKAGE / '_utils' / 'versions.py'}
LONGEST_BODY = 45


def imported_files(path: Path) -> set[Path]:
    """Return the files of the package that the top level of a module imports."""
    tree = ast.parse(path.read_text(encoding='utf-8'))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = {id(node) for outer in ast.walk(tree) if isinstance(outer, functions) for node in ast.walk(outer)}
    files = set()
    for node in ast.walk(tree):
        if id(node) in inner or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            folder = path.parents[node.level - 1].relative_to(ROOT).parts if node.level else ()
            module = '.'.join([*folder, *([node.module] if node.module else [])])
            names = [f'{module}.{alias.name}' for alias in node.names]
        files.update(file for name in names if (file := file_of(name)) is not None)
    return files


def file_of(name: str) -> Path | None:
    """Return the file of a module, or of the module that has a name; None outside of the package."""
    parts = name.split('.')
    if parts[0] != PACKAGE.name:
        return None
    for end in (len(parts), len(parts) - 1):
        path = ROOT.joinpath(*parts[:end])
        for file in (path.with_suffix('.py'), path / '__init__.py'):
            if file.exists():
                return file
    return None


def way_of(path: Path) -> list[str]:
    """Return the modules that importing a module brings, itself included; packages' ``__init__`` are passed through."""
    seen, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file not in seen and file not in NOT_COUNTED:
            seen.add(file)
            waiting += imported_files(file)
    return sorted(str(file.relative_to(PACKAGE)) for file in seen if file.name != '__init__.py')


@pytest.mark.parametrize(('module', 'limit'), WAYS.items())
def test_the_way_to_a_formula_is_short(module, limit):
    way = way_of(PACKAGE / module)
    print(f'\n{module}: {len(way)} of at most {limit}: {", ".join(way)}')
    assert len(way) <= limit


def test_function_bodies_and_registered_losses_are_short():
    bodies = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                bodies[f'{path.relative_to(PACKAGE)}:{node.name}'] = lines
    longest = sorted(bodies.items(), key=lambda item: -item[1])[:5]
    print('\nlongest bodies:', longest)
    assert longest[0][1] <= LONGEST_BODY
    lengths = {
        path.name: len(path.read_text(encoding='utf-8').splitlines()) for path in PACKAGE.glob('losses/[!_]*.py')
    }
    print('\n', lengths)
    for name, length in lengths.items():
        assert length <= (150 if name == 's_measure_loss.py' else 90), name


def test_the_functional_layer_imports_nothing_from_above_and_no_name_shadows_a_module():
    for path in PACKAGE.glob('functional/**/*.py'):
        for file in imported_files(path):
            assert file.relative_to(PACKAGE).parts[0] in ('functional', '_utils'), (path, file)
    for init in PACKAGE.rglob('__init__.py'):
        package = importlib.import_module('.'.join(init.parent.relative_to(ROOT).parts))
        for name in getattr(package, '__all__', ()):
            shadowed = init.parent / f'{name}.py'
            assert not shadowed.exists(), f'{shadowed} has the name of what {package.__name__} exports'
