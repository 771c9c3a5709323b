"""One training of a comparison, and what it scored."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

import mmseg_nondecomp  # noqa: F401  registers the losses, and lets checkpoints load

RESULT = 'result.json'


def train_and_score(config: str, work_dir: Path, options: dict[str, Any], n_pictures: int = 0) -> dict[str, Any]:
    """Train a config and score the last weights on its validation set.

    Args:
        config: Path of the config.
        work_dir: Where logs, checkpoints and the result go.
        options: Settings that override the config.
        n_pictures: How many validation images to keep with their labels and predictions.

    Returns:
        The options, the IoU of each class and their mean, in percent; also saved as JSON.
    """
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(options)
    cfg.work_dir = str(work_dir)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    runner = Runner.from_cfg(cfg)
    runner.train()
    pictures: list[np.ndarray] = []
    confusion = confusion_matrix(runner, pictures, n_pictures)
    classes = runner.val_dataloader.dataset.metainfo['classes']
    result = {
        'config': config,
        'options': options,
        **scores(confusion, classes),
        'pixels': dict(zip(classes, confusion.sum(1).tolist(), strict=True)),
    }
    if pictures:
        palette = np.array(runner.val_dataloader.dataset.metainfo['palette'], np.uint8)
        np.savez_compressed(work_dir / 'pictures.npz', palette=palette, pictures=np.stack(pictures))
    partial = work_dir / f'{RESULT}.{os.getpid()}'
    partial.write_text(json.dumps(result, indent=1))
    partial.replace(work_dir / RESULT)
    return result


def scores(confusion: np.ndarray, classes: Iterable[str]) -> dict[str, Any]:
    """IoU in percent from a matrix [label, prediction] of pixel counts; None for classes that do not occur."""
    hits = np.diag(confusion)
    union = confusion.sum(0) + confusion.sum(1) - hits
    iou = [100 * h / u if u else None for h, u in zip(hits, union, strict=True)]
    return {
        'IoU': dict(zip(classes, iou, strict=True)),
        'mIoU': float(np.mean([value for value in iou if value is not None])),
        'pixel accuracy': float(100 * hits.sum() / confusion.sum()),
    }


@torch.no_grad()
def confusion_matrix(runner: Runner, pictures: list[np.ndarray], n_pictures: int) -> np.ndarray:
    """Counts [label, prediction] of the validation pixels that are not ignored; fills ``pictures`` on the way."""
    model = runner.model.eval()
    dataset = runner.val_dataloader.dataset
    n_classes = len(dataset.metainfo['classes'])
    counts = torch.zeros(n_classes * n_classes, dtype=torch.long)
    for batch in runner.val_dataloader:
        for inputs, sample in zip(batch['inputs'], model.test_step(batch), strict=True):
            label = sample.gt_sem_seg.data[0].cpu().long()
            predicted = sample.pred_sem_seg.data[0].cpu().long()
            valid = label < n_classes
            counts += torch.bincount(label[valid] * n_classes + predicted[valid], minlength=n_classes**2)
            if len(pictures) < n_pictures:
                image = inputs.flip(0).cpu().long()  # BGR, as mmcv loads it
                pictures.append(torch.cat([image, label[None], predicted[None]]).byte().numpy())
    return counts.view(n_classes, n_classes).numpy()
