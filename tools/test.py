"""Evaluate a trained model: ``python tools/test.py CONFIG CHECKPOINT``."""

import argparse

from command_line import leave_processes, load_config, parser
from mmengine.config import Config
from mmengine.runner import Runner


def draw_predictions(cfg: Config, args: argparse.Namespace) -> None:
    """Make the config's visualisation hook show the predictions or save them to a folder."""
    hook = cfg.get('default_hooks', {}).get('visualization')
    if hook is None:
        raise SystemExit(
            '--show and --show-dir need a visualisation hook in the config: '
            "default_hooks = dict(visualization=dict(type='SegVisualizationHook'))."
        )
    hook.draw = True
    hook.interval = 1
    if args.show:
        hook.show = True
        hook.wait_time = args.wait_time
    if args.show_dir:
        cfg.visualizer.save_dir = args.show_dir


def augment_at_test_time(cfg: Config) -> None:
    """Use the config's ``tta_model`` and ``tta_pipeline``; with a ``DecidingSegmentor``, its decision."""
    if cfg.get('tta_model') is None or cfg.get('tta_pipeline') is None:
        raise SystemExit('--tta needs `tta_model` and `tta_pipeline` in the config.')
    cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    is_deciding = cfg.model.type in ('DecidingSegmentor', 'mmseg_nondecomp.DecidingSegmentor')
    if is_deciding and cfg.tta_model.type in ('SegTTAModel', 'mmseg.SegTTAModel'):
        cfg.tta_model.type = 'DecidingTTAModel'  # the stock class takes the argmax
    cfg.tta_model.module = cfg.model
    cfg.model = cfg.tta_model


def main() -> None:
    """Parse the command line and evaluate."""
    arguments = parser('Evaluate a segmentation model')
    arguments.add_argument('checkpoint', help='checkpoint file')
    arguments.add_argument('--out', help='folder for the predictions, for offline evaluation')
    arguments.add_argument('--show', action='store_true', help='show the predictions')
    arguments.add_argument('--show-dir', help='folder for pictures of the predictions')
    arguments.add_argument('--wait-time', type=float, default=2, help='seconds between the pictures of --show')
    arguments.add_argument('--tta', action='store_true', help='test-time augmentation')
    args = arguments.parse_args()
    cfg = load_config(args)
    cfg.load_from = args.checkpoint
    if args.show or args.show_dir:
        draw_predictions(cfg, args)
    if args.tta:
        augment_at_test_time(cfg)
    if args.out is not None:
        cfg.test_evaluator.update(output_dir=args.out, keep_results=True)
    runner = Runner.from_cfg(cfg)
    runner.test()
    del runner
    leave_processes()


if __name__ == '__main__':
    main()
