"""A training that is killed goes on as if nothing had been, whatever it was doing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name('killed_training.py')
TORN = 'half a checkpoint', 'between the two files', 'last_checkpoint is empty', 'the disk is full'
AGAIN = 'half of the named one'
"""Where `save_best` writes a checkpoint again."""


def trials(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)['trials']


def test_killed_at_random_moments_and_while_a_checkpoint_is_written():
    killed = trials('--trials', 30)
    assert len(killed) == 30
    assert sum(len(trial['killed after']) for trial in killed) > 30
    assert sum(bool(trial['left']) for trial in killed) > 10, 'few had a checkpoint to go on from'
    for trial in killed:
        assert trial['end'] in ('the same', 'the same, without the last validation'), trial
    moments = *TORN, AGAIN
    killed = trials('--trials', len(moments), '--moments', *moments)
    assert [(trial['moment'], trial['end']) for trial in killed] == [(moment, 'the same') for moment in moments]


@pytest.mark.parametrize(('kept', 'end'), [(1, 'max_keep_ckpts=1'), (2, 'the same')])
def test_killed_with_few_checkpoints_kept(kept, end):
    """MMEngine makes room before it writes: one is too few, and that is told."""
    options = '--cfg-options', f'default_hooks.checkpoint.max_keep_ckpts={kept}'
    [trial] = trials('--trials', 1, '--moments', 'half a checkpoint', *options)
    assert end in trial['end']


def test_a_comparison_killed_at_random_moments_and_while_a_checkpoint_is_written():
    killed = trials('--trials', 15, '--tool', 'compare')
    assert sum(len(trial['killed after']) for trial in killed) > 15
    assert sum(bool(trial['left']) for trial in killed) > 5, 'few had a checkpoint to go on from'
    assert {trial['end'] for trial in killed} == {'the same'}, killed
    killed = trials('--trials', len(TORN), '--tool', 'compare', '--moments', *TORN)
    assert [(trial['moment'], trial['end']) for trial in killed] == [(moment, 'the same') for moment in TORN]
