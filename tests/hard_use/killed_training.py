"""Kill a training and have it go on: ``python tests/hard_use/killed_training.py --trials 30``.

One training goes through. In each trial the same training is killed (SIGKILL) and started again with ``--resume`` until
it is through as well. Both should have left the same: weights, histograms and multipliers of the losses, the state of
the optimizer, the IoU that the sampler was told, and every logged value, bit by bit.

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

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / 'tools'))
import train  # noqa: E402

MOMENTS = (
    'random',
    'half a checkpoint',
    'between the two files',
    'last_checkpoint is empty',
    'half of the named one',
    'the disk is full',
)
ITERATIONS = 14
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
UNLIKE = 'time', 'data_time', 'memory', 'eta', 'last_ckpt', 'experiment_name', 'mmengine_version'


def main() -> None:
    """Kill trainings and say how they went on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--trials', type=int, default=30)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--moments', nargs='+', choices=MOMENTS, default=['random'])
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE')
    args = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    register_all_modules(init_default_scope=False)
    # MMEngine formats the config and asks for compilers several times, which takes longer than the training.
    Config.pretty_text = ''
    mmengine_runner.collect_env = dict
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.cfg_options)
        draw = random.Random(args.seed)
        trials = [bench.trial(i, args.moments[i % len(args.moments)], draw) for i in range(args.trials)]
    print(json.dumps({'seconds of a training': round(bench.seconds, 2), 'trials': trials}, indent=1))


class Bench:
    """A training that went through, and others like it."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder, self.options = folder, options
        os.environ['XDG_CACHE_HOME'] = str(folder / 'cache')
        self.config = folder / 'config.py'
        base = str(ROOT / 'configs/long_tail_shapes/tiny-unet_ce-iou_lts.py')
        self.config.write_text(CONFIG.format(base=base, scenes=str(folder / 'scenes'), iterations=ITERATIONS))
        # The first one draws the scenes and counts their classes.
        self.seconds = 0.95 * min(self.wait(self.start(name)) for name in ('warm', 'through'))
        self.expected = left_by(folder / 'through')
        if found := difference(self.expected, left_by(folder / 'warm')):
            raise SystemExit(f'The training does not repeat itself: {found}')

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
        told['left'] = [path.name for path in sorted((self.folder / name).glob('*.pth'), key=os.path.getmtime)]
        is_through = f'iter_{ITERATIONS}.pth' in told['left']
        if os.waitpid(self.start(name, resume=True), 0)[1]:
            told['end'] = 'failed: ' + (self.folder / f'{name}.txt').read_text().strip().splitlines()[-1]
        else:
            told['end'] = self.compared(left_by(self.folder / name), is_through)
        return told

    def compared(self, found: dict[str, Any], is_through: bool) -> str:
        """How what a training left differs from what the first one left."""
        expected, end = self.expected, 'the same'
        if is_through and not any(key.startswith(f'val {ITERATIONS} ') for key in found['logged']):
            # MMEngine does not make up for a validation that was due when the checkpoint was saved.
            logged = {key: value for key, value in expected['logged'].items() if f'val {ITERATIONS} ' not in key}
            expected, end = {**expected, 'logged': logged}, 'the same, without the last validation'
        return difference(expected, found) or end

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
            sys.argv = ['train.py', str(self.config), '--work-dir', str(self.folder / name)]
            sys.argv += ['--resume'] * resume + (['--cfg-options', *self.options] if self.options else [])
            train.main()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait(self, pid: int) -> float:
        """Wait for a training that has to end well; the seconds that it computed."""
        _, status, used = os.wait4(pid, 0)
        if status:
            raise SystemExit('\n'.join(file.read_text()[-3000:] for file in self.folder.glob('*.txt')))
        return used.ru_utime + used.ru_stime


def seconds_of(pid: int) -> float:
    """How long a process has computed, by which a busy machine is as good as a quiet one; no end once it is over."""
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


def left_by(folder: Path) -> dict[str, Any]:
    """What a training has left: its last checkpoint, and the values of each step in its log."""
    checkpoint = torch.load(folder / f'iter_{ITERATIONS}.pth', weights_only=False)
    del checkpoint['meta']
    logged: dict[str, list[Any]] = {}
    for file in sorted(folder.glob('*/vis_data/scalars.json')):
        for line in file.read_text().splitlines():
            try:
                values = json.loads(line)
            except json.JSONDecodeError:  # The last line of a process that was killed while it wrote.
                continue
            for key, value in values.items():
                logged.setdefault(f'{values.get("iter", "val")} {values["step"]} {key}', []).append(value)
    # The values of a step that was trained twice should be the same, too.
    steps = {key: values[0] if values.count(values[0]) == len(values) else values for key, values in logged.items()}
    return {'checkpoint': checkpoint, 'logged': steps}


def difference(first: Any, second: Any, path: str = '') -> str | None:
    """Where two things differ first, or None."""
    if path.rsplit('/', 1)[-1].removeprefix('train/').split(' ')[-1] in UNLIKE:
        return None
    if hasattr(first, '__getstate__') and hasattr(first, '_log_history'):
        first, second = (list(buffer._log_history) for buffer in (first, second))
    if isinstance(first, torch.Tensor):
        same = first.dtype == second.dtype and torch.equal(first.nan_to_num(-1.5), second.nan_to_num(-1.5))
    elif isinstance(first, dict):
        if first.keys() != second.keys():
            return f'{path} has other keys: {sorted(map(str, first.keys() ^ second.keys()))}'
        return next((found for key in first if (found := difference(first[key], second[key], f'{path}/{key}'))), None)
    elif isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return f'{path} has another length: {len(first)} and {len(second)}'
        pairs = enumerate(zip(first, second, strict=True))
        return next((found for i, (a, b) in pairs if (found := difference(a, b, f'{path}/{i}'))), None)
    else:
        same = first == second or (first != first and second != second)
    return None if same else f'{path} is another: {first} and {second}'


if __name__ == '__main__':
    main()
