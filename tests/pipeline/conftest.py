import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.dataset import InfiniteSampler
from processes import a_free_port

ROOT = Path(__file__).parents[2]
LOADERS = [f'{part}_dataloader' for part in ('train', 'val', 'test')]
TINY = [
    *(f'{loader}.{option}' for loader in LOADERS for option in ('num_workers=0', 'persistent_workers=False')),
    *(f'{loader}.dataset.num_images={n}' for loader, n in zip(LOADERS, (8, 4, 4), strict=True)),
    *('train_dataloader.batch_size=2', 'default_hooks.logger.interval=1', 'randomness.seed=0'),
]


@pytest.fixture(scope='session')
def repeatable():
    """Options with which a resumed training on LongTailShapes equals one without a stop.

    The stock MMEngine needs none: it loads the seen data again, and the same random numbers are drawn. Samplers of
    OneDL skip the seen data, and crops and flips are drawn anew. Hence they are made deterministic.
    """
    if not hasattr(InfiniteSampler, 'skip'):
        return []
    pipeline = 'train_dataloader.dataset.pipeline'
    return [f'{pipeline}.2.crop_size=(128,128)', f'{pipeline}.3.prob=0.0']


@pytest.fixture(scope='session')
def scenes(tmp_path_factory):
    return tmp_path_factory.mktemp('scenes')


@pytest.fixture(scope='session')
def command_of(scenes):
    """Return the command line of a script of tools/ on a few small images, without workers."""
    data = [f'{loader}.dataset.data_root={scenes}' for loader in LOADERS]

    def command(script, *arguments, options=()):
        program = [sys.executable] if script.endswith('.py') else ['bash']
        path = str(ROOT / 'tools' / script)
        return [*program, path, *map(str, arguments), '--cfg-options', *TINY, *data, *options]

    return command


@pytest.fixture
def environment():
    """Return the environment of a script, with the changes that a test has made."""
    return lambda: {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHON': sys.executable, 'PORT': str(a_free_port())}


@pytest.fixture(scope='session')
def forks():
    paths = [str(ROOT), str(ROOT / 'tools'), os.environ.get('PYTHONPATH', '')]
    environment = os.environ | {'OMP_NUM_THREADS': '1', 'PYTHONPATH': os.pathsep.join(filter(None, paths))}
    command = [sys.executable, str(Path(__file__).with_name('forks.py'))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def tool(command_of, environment, request, tmp_path_factory):
    """Run a script of tools/ and return its output; in a new process, as by a user, where that is asked for."""

    def run(script, *arguments, options=(), fails=False, in_new_process=False):
        command = command_of(script, *arguments, options=options)
        output = tmp_path_factory.mktemp('output') / 'output.txt'
        if in_new_process or script in ('compare.py', 'dist_train.sh', 'dist_test.sh'):
            with output.open('w') as file:
                done = subprocess.run(
                    command, cwd=ROOT, env=environment(), stdout=file, stderr=file, timeout=300, check=False
                )
            code = done.returncode
        else:
            forks = request.getfixturevalue('forks')
            call = dict(words=command[1:], cwd=str(ROOT), environment=environment(), output=str(output))
            forks.stdin.write(json.dumps(call) + '\n')
            forks.stdin.flush()
            answer = next(line for line in forks.stdout if line.startswith('exit '))  # OneDL prints, too
            code = int(answer.split()[1])
        printed = output.read_text()
        assert (code != 0) == fails, printed[-6000:]
        return printed

    return run
