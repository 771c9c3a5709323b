"""tools/compare.py run once, run again, interrupted and resumed, and with a mistake in a config."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CONFIG = 'configs/long_tail_shapes/tiny-unet_{}_lts.py'
N_ITERATIONS = 30
LENGTH = [
    f'train_cfg.max_iters={N_ITERATIONS}',
    f'param_scheduler.0.end={N_ITERATIONS}',
    'val_dataloader.dataset.num_images=2',
]


def results_in(out):
    return json.loads((out / 'results.json').read_text())


def wait_until_gone(group):
    """Wait until no process of the group is left. Processes of Python itself end a moment after their parent."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail('processes are left')


@pytest.fixture(scope='module')
def compared(tmp_path_factory):
    return tmp_path_factory.mktemp('compared')


@pytest.fixture
def compare(tool, compared):

    def run(out=compared, options=LENGTH, fails=False):
        configs = [CONFIG.format(name) for name in ('ce', 'lovasz-equibatch')]
        return tool('compare.py', *configs, '--out', out, options=options, fails=fails)

    return run


def test_finished_trainings_are_not_repeated(compare, compared):
    said = compare()
    assert '2 runs, 0 of them finished before' in said
    assert f'report: {compared / "report.html"}' in said
    before = results_in(compared)
    assert [trained['iterations'] for trained in before['trainings']] == [N_ITERATIONS] * 2
    for trained in before['trainings']:
        points = [point['iteration'] for point in trained['curve']]
        assert points == list(range(N_ITERATIONS // 10, N_ITERATIONS + 1, N_ITERATIONS // 10))
        assert trained['curve'][-1]['data set'] == trained['mIoU']
    assert '2 runs, 2 of them finished before' in compare()
    assert results_in(compared)['trainings'] == before['trainings']


def test_an_interrupted_training_resumes_to_the_same_result(compare, compared, tmp_path, command_of, environment):
    """Without workers the weights are the same, bit by bit."""
    compare()
    arguments = [CONFIG.format('ce'), '--out', tmp_path]
    folder = tmp_path / 'short' / 'tiny-unet_ce_lts' / 'lr' / 'seed0'

    def start():
        return subprocess.Popen(
            command_of('compare.py', *arguments, options=LENGTH),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Where the tests run in the background, the shell has their processes ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    process = start()
    deadline = time.monotonic() + 200
    while not list(folder.glob('iter_*.pth')):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert 'the same command resumes from here' in said
    assert 'Traceback' not in said
    wait_until_gone(process.pid)
    assert not (folder / 'result.json').exists()

    said, _ = start().communicate(timeout=200)
    [ours] = results_in(tmp_path)['trainings']
    assert ours['starts'] == 2
    whole = results_in(compared)['trainings'][0]
    assert ours['curve'] == whole['curve']
    assert ours['IoU'] == whole['IoU']
    theirs = np.load(compared / 'short' / 'tiny-unet_ce_lts' / 'lr' / 'seed0' / 'last.npz')
    for name, array in np.load(folder / 'last.npz').items():
        np.testing.assert_array_equal(array, theirs[name])


def test_a_training_that_fails_is_named_with_its_output_and_the_others_end(tool, tmp_path):
    mistaken = tmp_path / 'mistaken.py'
    base = ROOT / CONFIG.format('ce')
    loss = "dict(_delete_=True, type='LossMaxPooling', p=0.5)"
    mistaken.write_text(f"_base_ = ['{base}']\nmodel = dict(decode_head=dict(loss_decode={loss}))\n")
    configs = [mistaken, CONFIG.format('ce')]
    said = tool('compare.py', *configs, '--out', tmp_path / 'out', options=LENGTH, fails=True)
    output = tmp_path / 'out' / 'short' / 'mistaken' / 'lr' / 'seed0' / 'output.txt'
    assert '1 of 2 runs failed' in said
    assert str(output) in said
    assert 'Parameter `p`' in output.read_text()
    assert (tmp_path / 'out' / 'short' / 'tiny-unet_ce_lts' / 'lr' / 'seed0' / 'result.json').exists()


def test_mistakes_on_the_command_line_are_reported(tool, tmp_path):
    ce = CONFIG.format('ce')
    assert 'no such config: configs/nothing.py' in tool('compare.py', ce, 'configs/nothing.py', fails=True)
    (tmp_path / 'tiny-unet_ce_lts.py').write_text('')
    said = tool('compare.py', ce, tmp_path / 'tiny-unet_ce_lts.py', fails=True)
    assert 'configs should differ by name' in said
    assert 'seeds should differ by name' in tool('compare.py', ce, '--seeds', '1', '1', fails=True)
