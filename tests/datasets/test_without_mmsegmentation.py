"""The data sets where mmsegmentation is missing, or does not work."""

from __future__ import annotations

import subprocess
import sys


def test_needs_no_mmsegmentation():
    """Where it is not installed, the other data sets are there."""
    program = """
import sys
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition('.')[0] == 'mmseg' else found(name, *rest)
import mmseg_nondecomp.datasets as datasets
assert 'mmseg' not in sys.modules
assert not hasattr(datasets, 'LongTailShapes')
assert 'LongTailShapes' not in datasets.__all__
from mmengine.registry import DATASETS
assert len(DATASETS.build(dict(type='GroupedShapes', images_per_class=1))) == 100
"""
    subprocess.run([sys.executable, '-c', program], check=True)


def test_broken_mmsegmentation_is_an_error(tmp_path):
    (tmp_path / 'mmseg').mkdir()
    (tmp_path / 'mmseg' / '__init__.py').write_text("raise ImportError('no such version')\n")
    program = f'import sys; sys.path.insert(0, {str(tmp_path)!r}); import mmseg_nondecomp.datasets'
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=False)
    assert done.returncode
    assert 'ImportError: no such version' in done.stderr
