"""Options of MMSegmentation's command line common to training and testing."""

import argparse
import gc
import os
from datetime import timedelta
from pathlib import Path

import torch
from mmengine.config import Config, DictAction
from mmengine.device import get_device

import mmseg_nondecomp  # noqa: F401  registers the losses and makes checkpoints and configs loadable; import it before any config


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options common to ``tools/train.py`` and ``tools/test.py``."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument('config', help='config file')
    result.add_argument('--work-dir', help='folder for logs and checkpoints (default: work_dirs/<name of the config>)')
    result.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        metavar='KEY=VALUE',
        help='settings that override the config, such as optim_wrapper.optimizer.lr=0.001 "key=[(a,b),(c,d)]"',
    )
    result.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    result.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch')
    return result


def load_config(args: argparse.Namespace) -> Config:
    """Return the config with the settings of the command line."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(args.config).stem)
    if args.launcher == 'pytorch' and get_device() == 'cpu':
        start_processes_on_the_cpu(cfg)
    return cfg


def start_processes_on_the_cpu(cfg: Config) -> None:
    """Initialise the process group with gloo, since MMEngine's launchers and model wrapper require a GPU.

    As there, ``env_cfg.dist_cfg.timeout`` is the number of seconds that a process waits for the others.
    """
    seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout')
    torch.distributed.init_process_group('gloo', timeout=seconds and timedelta(seconds=seconds))
    cfg.setdefault(
        'model_wrapper_cfg',
        dict(
            type='MMDistributedDataParallel',
            device_ids=None,
            broadcast_buffers=False,
            find_unused_parameters=cfg.get('find_unused_parameters', False),
        ),
    )


def leave_processes() -> None:
    """Destroy the process group, if there is one, after the last reference to a Runner is gone.

    Otherwise the interpreter destroys the model's references to the group at exit, where a running gloo thread aborts
    the finished program (one in four on two cores).
    """
    if torch.distributed.is_initialized():
        gc.collect()  # a Runner and its hooks refer to each other
        torch.distributed.destroy_process_group()
