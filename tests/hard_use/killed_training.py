"""Kill a training and have it go on: ``python tests/hard_use/killed_training.py --trials 30``.

One training goes through. In each trial the same training is killed (SIGKILL) and started again until it is through as
well, by ``tools/train.py --resume`` or as ``tools/compare.py`` does. Both should have left the same, bit by bit: see
`what_is_left.py`.

The process that imports everything starts each training as a fork of itself, which saves the seconds of an import.
"""

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import matplotlib.pyplot  # noqa: F401
import torch
import torch._dynamo
from mmengine.config import Config
from mmengine.fileio import LocalBackend
from mmengine.runner import runner as mmengine_runner
from mmseg.utils import register_all_modules
from what_is_left import ITERATIONS, compared, left_by_compare, left_by_train

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / 'tools'))
import train  # noqa: E402
from comparison.job import Job  # noqa: E402
from comparison.training import train_and_score  # noqa: E402

MOMENTS = (
    *('random', 'half a checkpoint', 'between the two files'),
    *('last_checkpoint is empty', 'half of the named one', 'the disk is full'),
)
MOST_KILLS = 3
CONFIG = """
_base_ = {base!r}
crop = (32, 32)
pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
train_pipeline = [*pipeline, dict(type='RandomCropOnClass', crop_size=crop), dict(type='RandomFlip', prob=0.5),
                  dict(type='PackSegInputs')]
data = dict(data_root={scenes!r}, image_size=48, num_images=6, serialize_data=False)
loader = dict(batch_size=2, num_workers=0, persistent_workers=False)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **data), **loader)
val_dataloader = dict(dataset=data, **loader)
test_dataloader = None
test_cfg = None
test_evaluator = None
custom_hooks = [dict(type='TrainIoUHook', interval=1, momentum=0.5), dict(type='DualAscentHook', interval=2)]
model = dict(
    data_preprocessor=dict(size=crop),
    decode_head=dict(
        loss_decode=[
            dict(type='LovaszSoftmaxLoss', memory=3),
            dict(type='SMeasureLoss', measure='f_beta', loss_weight=0.1),
        ]
    ),
)
train_cfg = dict(max_iters={iterations}, val_interval=5)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=3))
randomness = dict(seed=0)
log_level = 'ERROR'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--trials', type=int, default=30)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--moments', nargs='+', choices=MOMENTS, default=['random'])
    parser.add_argument('--tool', choices=['train', 'compare'], default='train')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE')
    args = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    register_all_modules(init_default_scope=False)
    # MMEngine formats the config and asks for compilers several times, which takes longer than the training.
    Config.pretty_text = ''
    mmengine_runner.collect_env = dict
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.tool, args.cfg_options)
        draw = random.Random(args.seed)
        trials = [bench.trial(i, args.moments[i % len(args.moments)], draw) for i in range(args.trials)]
    print(json.dumps({'seconds of a training': round(bench.seconds, 2), 'trials': trials}, indent=1))


class Bench:
    def __init__(self, folder: Path, tool: str, options: list[str]) -> None:
        self.folder, self.options = folder, options
        self.train, self.left_by = {
            'train': (self.train_as_train_does, left_by_train),
            'compare': (self.train_as_compare_does, left_by_compare),
        }[tool]
        os.environ['XDG_CACHE_HOME'] = str(folder / 'cache')
        self.config = folder / 'config.py'
        base = str(ROOT / 'configs/long_tail_shapes/tiny-unet_ce-iou_lts.py')
        self.config.write_text(CONFIG.format(base=base, scenes=str(folder / 'scenes'), iterations=ITERATIONS))
        # The first one draws the scenes and counts their classes.
        self.seconds = 0.95 * min(self.wait(self.start(name)) for name in ('warm', 'through'))
        self.expected = self.left_by(folder / 'through')
        again = compared(self.expected, self.left_by(folder / 'warm'))
        if again != 'the same':
            raise SystemExit(f'The training does not repeat itself: {again}')

    def trial(self, number: int, moment: str, draw: random.Random) -> dict[str, Any]:
        """Kill a training, have it go on, and tell how it ended."""
        name = f'trial{number}'
        told: dict[str, Any] = {'moment': moment, 'killed after': []}
        if moment == 'random':
            for i in range(draw.randint(1, MOST_KILLS)):
                pid = self.start(name, resume=i > 0)
                seconds = draw.random() * self.seconds
                while seconds_of(pid) < seconds:
                    time.sleep(0.002)
                os.kill(pid, signal.SIGKILL)
                if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
                    told['killed after'].append(round(seconds, 3))
        else:
            os.waitpid(self.start(name, lambda: die_at(moment)), 0)
        told['left'] = [path.name for path in sorted((self.folder / name).rglob('*.pth'), key=os.path.getmtime)]
        if os.waitpid(self.start(name, resume=True), 0)[1]:
            told['end'] = 'failed: ' + (self.folder / f'{name}.txt').read_text().strip().splitlines()[-1]
        else:
            was_through = f'iter_{ITERATIONS}.pth' in told['left']
            told['end'] = compared(self.expected, self.left_by(self.folder / name), was_through)
        return told

    def start(self, name: str, prepare: Callable[[], None] = lambda: None, resume: bool = False) -> int:
        """Train in a fork of this process, and give its number."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            output = os.open(self.folder / f'{name}.txt', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            prepare()
            self.train(self.folder / name, resume)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def train_as_train_does(self, folder: Path, resume: bool) -> None:
        sys.argv = ['train.py', str(self.config), '--work-dir', str(folder)]
        sys.argv += ['--resume'] * resume + (['--cfg-options', *self.options] if self.options else [])
        train.main()

    def train_as_compare_does(self, folder: Path, resume: bool) -> None:
        """Train as a process of ``tools/compare.py``, which goes on by itself."""
        train_and_score(Job(str(self.config), 0, folder), report=lambda share: None)

    def wait(self, pid: int) -> float:
        """Wait for a training that has to end well; the seconds that it computed."""
        _, status, used = os.wait4(pid, 0)
        if status:
            raise SystemExit('\n'.join(file.read_text()[-3000:] for file in self.folder.glob('*.txt')))
        return used.ru_utime + used.ru_stime


def seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process, which do not depend on the load; infinity once it has ended."""
    state, *numbers = Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2].split()
    return float('inf') if state == 'Z' else (int(numbers[10]) + int(numbers[11])) / os.sysconf('SC_CLK_TCK')


def die_at(moment: str) -> None:
    """Have this process die while it saves its third checkpoint."""
    put, saved = LocalBackend.put, []

    def put_and_die(backend: LocalBackend, obj: bytes, filepath: str) -> None:
        saved.append(filepath)
        if len(saved) < 3:
            put(backend, obj, filepath)
            return
        if moment == 'half of the named one':  # which `save_best` writes again
            filepath = saved[-2]
        if moment == 'the disk is full':
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(obj) // 2, resource.RLIM_INFINITY))
        put(backend, obj[: len(obj) // 2] if moment.startswith('half') else obj, filepath)
        if moment == 'last_checkpoint is empty':
            Path(filepath).with_name('last_checkpoint').write_text('')
        os.kill(os.getpid(), signal.SIGKILL)

    LocalBackend.put = put_and_die


if __name__ == '__main__':
    main()
