"""Fit a decision on the validation set of a config: ``python tools/fit_decision.py CONFIG CHECKPOINT``.

The decision is written to a file, for ``DecidingSegmentor``. Validation images are predicted once for each pass of the
fit; nothing but counts is kept.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from command_line import leave_processes, load_config, parser
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor

from mmseg_nondecomp._utils.progress_line import progress
from mmseg_nondecomp.functional.decisions import ClassOffsets, ImageOverlap, Thresholds, write_decision
from mmseg_nondecomp.functional.decisions._logits import logits_of_probability
from mmseg_nondecomp.losses._distributed import sum_over

DECISIONS = {kind.__name__: kind for kind in (ClassOffsets, ImageOverlap, Thresholds)}


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the options of the fit."""
    arguments.add_argument('checkpoint', help='checkpoint file')
    arguments.add_argument('--decision', choices=DECISIONS, default='ClassOffsets')
    arguments.add_argument('--out', type=Path, help='file of the decision (default: <work-dir>/<decision>.json)')
    arguments.add_argument(
        '--measure', choices=['iou', 'dice', 'recall'], default='iou', help='of ClassOffsets and ImageOverlap'
    )
    for name in ('recall', 'precision', 'f-beta'):
        arguments.add_argument(f'--{name}', type=float, help='of Thresholds: give one of the three')
    arguments.add_argument('--confidence', type=float, default=0.95, help='of Thresholds')
    arguments.add_argument('--unit', choices=['item', 'image'], help='of Thresholds: what is drawn independently')
    arguments.add_argument('--n-new', type=number, help='of Thresholds: least number of units in new data, or inf')
    arguments.add_argument('--classes', type=int, nargs='+', help='of Thresholds: classes that get one')


def number(text: str) -> float:
    """Return a whole number, or infinity."""
    return math.inf if text == 'inf' else int(text)


class Predictions:
    """Scores and labels of the validation images, which can be passed several times."""

    def __init__(self, cfg: Config) -> None:
        if cfg.model.type in ('DecidingSegmentor', 'mmseg_nondecomp.DecidingSegmentor'):
            cfg.model.decision = None
        sampler = cfg.val_dataloader.get('sampler') or {}
        if sampler.get('type') == 'DefaultSampler':
            sampler.update(shuffle=False, round_up=False)  # no image counts twice
        runner = Runner.from_cfg(cfg)
        runner.load_or_resume()
        self.model = runner.model.eval()
        self.loader = runner.build_dataloader(cfg.val_dataloader)
        head = getattr(getattr(self.model, 'module', self.model), 'decode_head', None)
        head = head[-1] if isinstance(head, torch.nn.ModuleList) else head  # of a cascade
        self.ignore_index: int | None = getattr(head, 'ignore_index', None)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in progress(self.loader, len(self.loader), 'predicting'):
            with torch.no_grad():
                samples = self.model.val_step(batch)
            for sample in samples:
                scores = sample.seg_logits.data.unsqueeze(0)
                logits = logits_of_probability(scores) if scores.shape[1] == 1 else scores
                yield logits, sample.gt_sem_seg.data.to(scores.device)


def fit(args: argparse.Namespace, predictions: Predictions) -> ClassOffsets | ImageOverlap | Thresholds:
    """Fit the decision of the command line."""
    common: dict[str, Any] = dict(ignore_index=predictions.ignore_index, reduce=sum_over('world'))
    if args.decision != 'Thresholds':
        return DECISIONS[args.decision].fit(predictions, args.measure, **common)
    criterion = {name: getattr(args, name) for name in ('recall', 'precision', 'f_beta')}
    return Thresholds.fit(
        predictions,
        **criterion,
        confidence=args.confidence,
        unit=args.unit,
        n_new=args.n_new,
        classes=args.classes,
        **common,
    )


def told(decision: ClassOffsets | ImageOverlap | Thresholds) -> str:
    """Return the report of a fit as text."""
    if isinstance(decision, Thresholds):
        rows = (
            f'class {row.channel}: threshold {row.threshold:.4g}, recall {row.recall:.4f} and precision '
            f'{row.precision:.4f} on {row.n_units} {decision.criterion.unit}s'
            for row in decision.report
            if not math.isnan(row.threshold)
        )
        return '\n'.join(rows)
    report = decision.report
    return (
        f'{decision}\nmeasure of the argmax {report.before:.4f}; of the decision on the images of the fit '
        f'{report.fitted:.4f}, on images left out of it {report.held_out:.4f}: gain to expect {report.gain:+.4f}'
    )


def main() -> None:
    """Parse the command line, fit and write the file."""
    arguments = parser('Fit a decision on the validation set of a config')
    add_arguments(arguments)
    args = arguments.parse_args()
    cfg = load_config(args)
    cfg.load_from, cfg.resume = args.checkpoint, False
    out = args.out or Path(cfg.work_dir) / f'{args.decision}.json'
    predictions = Predictions(cfg)
    decision = fit(args, predictions)
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        write_decision(decision, out)
        print(f"{told(decision)}\nwritten: {out}\n\nmodel = dict(type='DecidingSegmentor', decision={str(out)!r})")
    del predictions
    leave_processes()


if __name__ == '__main__':
    main()
