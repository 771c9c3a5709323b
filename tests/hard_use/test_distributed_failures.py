"""When one process of several dies, errs or hangs, the others end: in a bare loop, and in a training of MMEngine."""

import needs_openmmlab  # noqa: F401  isort: skip

import os
import signal
import subprocess
import sys

import pytest
from distributed_scenes import Network, built, shards_of, value_of
from hard_use.dying_rank import WAYS, happens
from processes import ROOT, a_free_port, join_the_others, started
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

SECONDS = 8
"""How long a process waits for the others; without a setting it is half an hour."""
ENOUGH = 120
"""Seconds after which a test gives up; far more than is needed, and far less than half an hour."""
SUMS, ITEMS = 'LovaszSoftmaxLoss {}', 'DirectAPLoss {}'
"""Losses that add up over processes, and that gather."""


def train() -> None:
    """Train in a bare loop, in which rank 1 fails in the third step."""
    rank, _, (way, loss) = join_the_others(SECONDS)
    n, model, loss = distributed.get_world_size(), DistributedDataParallel(Network()), built(loss, 'world')
    for step in range(5):
        features, labels, weights = shards_of('pixels, uneven', n, step)[rank]
        if rank == 1 and step == 2:
            happens(way, labels)
        value_of(loss, model, (features, labels, weights)).backward()
        print(f'rank {rank} has done step {step}', file=sys.stderr, flush=True)


@pytest.mark.parametrize(
    ('way', 'n', 'loss'),
    [('killed', 4, SUMS), ('wrong label', 2, ITEMS), ('wrong label', 4, SUMS), ('hangs', 2, ITEMS)],
)
def test_the_others_end_with_an_error(tmp_path, way, n, loss):
    processes = started(__file__, tmp_path, n, way, loss)
    try:
        errors = {rank: processes[rank].communicate(timeout=ENOUGH)[1] for rank in range(n) if rank != 1}
    finally:
        for process in processes:
            process.kill()
    errors[1] = processes[1].communicate()[1]
    for rank, error in errors.items():
        assert f'rank {rank} has done step 1' in error
        assert f'rank {rank} has done step 2' not in error
        if rank != 1:
            assert processes[rank].returncode > 0
            assert 'RuntimeError' in error or 'DistBackendError' in error
    if way == 'wrong label':
        assert 'ValueError: Parameter `target`' in errors[1]
        assert 'Found 200' in errors[1]
    else:
        assert processes[1].returncode == -signal.SIGKILL


@pytest.mark.parametrize('way', WAYS)
def test_a_training_ends_with_an_error(tmp_path, way):
    config = tmp_path / 'dying.py'
    config.write_text(
        f"_base_ = ['{ROOT}/configs/long_tail_shapes/tiny-unet_lovasz_lts.py']\n"
        "custom_imports = dict(imports=['mmseg_nondecomp.datasets', 'hard_use.dying_rank'])\n"
        f"custom_hooks = [dict(type='DyingRank', way='{way}')]\n"
        f'env_cfg = dict(dist_cfg=dict(timeout={SECONDS}))\n'
        "model = dict(decode_head=dict(loss_decode=dict(scope='world')))\n"
        f"data = dict(data_root='{tmp_path}', num_images=8)\n"
        'train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False, dataset=data)\n'
        'val_dataloader = dict(num_workers=0, persistent_workers=False, dataset=data)\n'
        'train_cfg = dict(max_iters=8, val_interval=8)\n'
        'default_hooks = dict(logger=dict(interval=1))\n'
    )
    paths = [str(ROOT / 'tests'), os.environ.get('PYTHONPATH', '')]
    settings = dict(OMP_NUM_THREADS='1', PYTHON=sys.executable, PORT=str(a_free_port()))
    done = subprocess.run(
        ['bash', ROOT / 'tools' / 'dist_train.sh', config, '2', '--work-dir', tmp_path / 'run'],
        cwd=ROOT,
        env=os.environ | settings | {'PYTHONPATH': os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENOUGH,
        check=False,
    )
    assert done.returncode > 0
    assert '[2/8]' in done.stdout
    assert '[3/8]' not in done.stdout
    assert 'RuntimeError' in done.stdout
    if way == 'wrong label':
        assert 'ValueError: Parameter `target`' in done.stdout
        assert 'Found 200' in done.stdout


if __name__ == '__main__':
    train()
