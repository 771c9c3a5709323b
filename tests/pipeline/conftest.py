import os
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.dataset import InfiniteSampler
from processes import a_free_port

ROOT = Path(__file__).parents[2]
TINY = [
    'train_dataloader.dataset.num_images=8',
    'val_dataloader.dataset.num_images=4',
    'test_dataloader.dataset.num_images=4',
    'test_dataloader.num_workers=0',
    'test_dataloader.persistent_workers=False',
    'train_dataloader.batch_size=2',
    'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False',
    'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False',
    'default_hooks.logger.interval=1',
    'randomness.seed=0',
]


@pytest.fixture(scope='session')
def repeatable():
    """Options with which a training with LongTailShapes and without workers goes on after a stop as if there was none.

    The stock MMEngine needs none: it loads again what was seen, and the same random numbers are drawn. Where samplers
    can skip it, as on OneDL, crops and flips are drawn anew: nothing in them is left to chance.
    """
    if not hasattr(InfiniteSampler, 'skip'):
        return []
    pipeline = 'train_dataloader.dataset.pipeline'
    return [f'{pipeline}.2.crop_size=(128,128)', f'{pipeline}.3.prob=0.0']


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    """A folder for LongTailShapes that all tests share."""
    return tmp_path_factory.mktemp('scenes')


@pytest.fixture(scope='session')
def command_of(scenes):
    """The command line of a script of tools/ on a few small images, without workers."""
    data = [f'{part}_dataloader.dataset.data_root={scenes}' for part in ('train', 'val', 'test')]

    def command(script, *arguments, options=()):
        program = [sys.executable] if script.endswith('.py') else ['bash']
        path = str(ROOT / 'tools' / script)
        return [*program, path, *map(str, arguments), '--cfg-options', *TINY, *data, *options]

    return command


@pytest.fixture
def environment():
    """The environment of a script, with what a test has set when it asks."""
    return lambda: {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHON': sys.executable, 'PORT': str(a_free_port())}


@pytest.fixture
def tool(command_of, environment):
    """Runs a script of tools/ as a user does, and gives what it printed."""

    def run(script, *arguments, options=(), fails=False):
        done = subprocess.run(
            command_of(script, *arguments, options=options),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    return run
