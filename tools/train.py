"""Train a segmentation model: ``python tools/train.py CONFIG``, for any MMSegmentation config and those here."""

from command_line import leave_processes, load_config, parser
from loss_check import check_losses
from mmengine.config import Config
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from resuming import name_a_whole_checkpoint


def use_mixed_precision(cfg: Config) -> None:
    """Turn on automatic mixed precision, as ``--amp`` does in MMSegmentation."""
    wrapper = cfg.optim_wrapper
    if wrapper.get('type', 'OptimWrapper') not in ('OptimWrapper', 'AmpOptimWrapper'):
        raise SystemExit(f'--amp works with `OptimWrapper` only. The config has {wrapper.type!r}.')
    wrapper.type = 'AmpOptimWrapper'
    wrapper.setdefault('loss_scale', 'dynamic')


def main() -> None:
    """Parse the command line and train."""
    arguments = parser('Train a segmentation model')
    arguments.add_argument('--resume', action='store_true', help='resume from the last checkpoint of the work dir')
    arguments.add_argument('--amp', action='store_true', help='train with automatic mixed precision')
    args = arguments.parse_args()
    cfg = load_config(args)
    if args.amp:
        use_mixed_precision(cfg)
    if args.resume:
        cfg.resume = True
    if cfg.get('resume') and not cfg.get('load_from'):
        name_a_whole_checkpoint(cfg.work_dir)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    check_losses(runner)
    runner.train()
    del runner
    leave_processes()


if __name__ == '__main__':
    main()
