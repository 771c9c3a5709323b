"""Evaluators on label maps: MMSegmentation's, the package's with torchmetrics metrics, and torchmetrics alone."""

import itertools
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks import Case, Row, Step
from benchmarks.scenes import shape_label, sizes

COUNT = dict(num_classes=19, ignore_index=255)


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for one image at a time, of three sizes."""
    for side in sizes(quick, 128, 256, 512):
        yield evaluating((side, 2 * side))


def settings() -> dict[str, dict[str, Any]]:
    """Return sets of metrics by their contents."""
    accuracy, f_score = (
        {'type': f'torchmetrics.classification.Multiclass{x}', **COUNT} for x in ('Accuracy', 'F1Score')
    )
    iou = dict(mIoU=dict(type='torchmetrics.classification.MulticlassJaccardIndex', **COUNT))
    three = dict(**iou, mAcc=accuracy, aAcc=dict(average='micro', **accuracy))
    five = dict(**three, mDice=f_score, mFscore=f_score)
    return {'mIoU': iou, 'mIoU, mAcc, aAcc': three, 'mIoU, mAcc, aAcc, mDice, mFscore': five}


def evaluating(size: tuple[int, int]) -> Case:
    """Return the case of one image for each evaluator."""
    from mmseg.evaluation import IoUMetric
    from torchmetrics import MetricCollection

    from mmseg_nondecomp.evaluation import TorchMetricsEvaluator
    from mmseg_nondecomp.evaluation._metrics_from_config import build_metrics

    evaluators: dict[str, Any] = {'IoUMetric of mmsegmentation (mIoU, mAcc, aAcc)': IoUMetric(prefix='stock')}
    for name, metrics in settings().items():
        evaluators[f'TorchMetricsEvaluator: {name}'] = TorchMetricsEvaluator(metrics)
    collection = MetricCollection(build_metrics(settings()['mIoU, mAcc, aAcc']))
    samples = [label_map(size, seed) for seed in range(20)]
    seen: Counter[str] = Counter()

    def process(name: str, evaluator: Any) -> Step:
        images = itertools.cycle(samples)
        evaluator.dataset_meta = dict(classes=[str(c) for c in range(19)])

        def step() -> None:
            seen[name] += 1
            evaluator.process(None, [next(images)])

        return step

    steps = {name: process(name, evaluator) for name, evaluator in evaluators.items()}
    pairs = itertools.cycle((sample['pred_sem_seg']['data'], sample['gt_sem_seg']['data']) for sample in samples)
    steps['MetricCollection of torchmetrics: mIoU, mAcc, aAcc'] = lambda: collection.update(*next(pairs))
    for step in [*steps.values()] * 2:  # the first batch is validated
        step()
    before, seen_before = held(evaluators), seen.copy()

    def also(row: Row) -> Row:
        candidate = row['candidate']
        if candidate not in evaluators:
            return {'more bytes an image': ''}
        more = held(evaluators)[candidate] - before[candidate]
        return {'more bytes an image': round(more / (seen[candidate] - seen_before[candidate]))}

    return Case('an image of an evaluation', shape_label(size), size[0] * size[1], 'pixels', steps, also=also)


def held(evaluators: dict[str, Any]) -> dict[str, int]:
    """Return the number of bytes that each evaluator stores."""
    states = {
        name: evaluator.metric_set.state() if hasattr(evaluator, 'metric_set') else evaluator.results
        for name, evaluator in evaluators.items()
    }
    return {name: len(pickle.dumps(state)) for name, state in states.items()}


def label_map(size: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return blocks of classes, and slightly shifted predictions."""
    generator = torch.Generator().manual_seed(seed)
    height, width = (-(-side // 32) for side in size)
    blocks = torch.randint(19, (1, height, width), generator=generator)
    target = blocks.repeat_interleave(32, 1).repeat_interleave(32, 2)[:, : size[0], : size[1]]
    sample = dict(pred_sem_seg=dict(data=target.roll((5, 9), (1, 2))), gt_sem_seg=dict(data=target.clone()))
    sample['gt_sem_seg']['data'][:, :20] = 255
    return sample
