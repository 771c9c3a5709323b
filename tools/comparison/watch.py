"""Records of a run during training: IoU of the validation set and predictions at some iterations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, Runner
from torch import Tensor
from whole_file import whole_file, write_whole

from mmseg_nondecomp.functional._averaging import mean_jaccard

CURVE, PICTURES, LAST = 'curve.json', 'pictures.npz', 'last.npz'
N_PICTURES, N_GALLERY = 4, 120
THUMBNAIL = 160
"""Longer side of a stored thumbnail, in pixels."""


class Watch(Hook):
    """Hook that records each validation of a run.

    It writes ``curve.json`` (the IoU at each validation), ``pictures.npz`` (predictions on a few images at each) and,
    from the last validation, ``last.npz``: intersections, unions and labelled pixels of each image and class, and many
    thumbnails.

    Args:
        work_dir: Folder of the files; files of an interrupted run are continued.
        report: Called with the completed share of the run.
    """

    priority = 'LOWEST'

    def __init__(self, work_dir: Path, report: Callable[[float], None]) -> None:
        self.work_dir, self.report = work_dir, report
        curve = work_dir / CURVE
        self.curve: list[dict[str, Any]] = json.loads(curve.read_text()) if curve.exists() else []
        self.pictures = dict(np.load(work_dir / PICTURES)) if (work_dir / PICTURES).exists() else {}

    @property
    def last_iteration(self) -> int:
        """Iteration of the last validation."""
        return self.curve[-1]['iteration'] if self.curve else 0

    def before_train(self, runner: Runner) -> None:
        """Resume from a checkpoint: drop later records, and validate if the interruption came before validation."""
        self.curve = [point for point in self.curve if point['iteration'] <= runner.iter]
        if self.last_iteration < runner.iter and validates_now(runner.train_loop):
            runner.val_loop.run()

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        """Report the progress of the run."""
        self.report((runner.iter + 1) / runner.max_iters)

    def before_val(self, runner: Runner) -> None:
        """Save the random state of training, so that validation does not change it."""
        self.random_state = torch.get_rng_state()
        self.areas: list[Tensor] = []
        self.seen: dict[int, np.ndarray] = {}

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Count the areas of the images of a batch, and store thumbnails of a few."""
        dataset = runner.val_dataloader.dataset
        n_classes = len(dataset.metainfo['classes'])
        wanted = evenly_spaced(len(dataset), N_GALLERY)
        for image, sample in zip(data_batch['inputs'], outputs, strict=True):
            if 'pred_sem_seg' not in sample or 'gt_sem_seg' not in sample:
                raise TypeError(
                    'tools/compare.py compares models of semantic segmentation on labelled images. '
                    f'Found predictions with {sorted(sample.keys())}.'
                )
            label, decided = (data.data[0].cpu().long() for data in (sample.gt_sem_seg, sample.pred_sem_seg))
            areas = image_areas(decided, label, n_classes)
            if len(self.areas) in wanted:
                self.seen[len(self.areas)] = thumbnail(image, label, decided)
            self.areas.append(areas)

    def after_val_epoch(self, runner: Runner, metrics: Any = None) -> None:
        """Add a point to the curve."""
        areas = torch.stack(self.areas).double()
        counts = areas[:, :2]
        index = counts[:, 0].sum(0) / counts[:, 1].sum(0)  # NaN for an absent class
        point = {
            'iteration': runner.iter,
            'data set': 100 * mean_jaccard(counts.sum(0)).item(),
            'image': 100 * mean_jaccard(counts).nanmean().item(),
            'classes': [None if value.isnan() else 100 * value.item() for value in index],
        }
        self.curve = [*(past for past in self.curve if past['iteration'] < runner.iter), point]
        gallery = np.array(sorted(self.seen))
        shown = [i for i in gallery if i in evenly_spaced(len(areas), N_PICTURES)]
        # Images have one size, or are padded to the largest.
        self.pictures[str(runner.iter)] = stacked([self.seen[i][:, :, 4] for i in shown], 255)
        palette = np.array(runner.val_dataloader.dataset.metainfo['palette'], np.uint8)
        with whole_file(self.work_dir / LAST) as path:
            np.savez_compressed(
                path,
                areas=areas.numpy(),
                pixels=areas[:, 2].sum(0).long().numpy(),
                gallery=gallery,
                thumbnails=stacked([self.seen[i] for i in gallery], 255),
                shown=np.array(shown),
                palette=palette,
            )
        with whole_file(self.work_dir / PICTURES) as path:
            np.savez_compressed(path, **self.pictures)
        write_whole(self.work_dir / CURVE, json.dumps(self.curve))

    def after_val(self, runner: Runner) -> None:
        """Restore the random state of training."""
        torch.set_rng_state(self.random_state)


def validates_now(loop: BaseLoop) -> bool:
    """Return whether a loop of training has a validation at its present iteration or epoch."""
    by_epoch = isinstance(loop, EpochBasedTrainLoop)
    done, length = (loop.epoch, loop.max_epochs) if by_epoch else (loop.iter, loop.max_iters)
    return done >= loop.val_begin and (done % loop.val_interval == 0 or done == length)


def evenly_spaced(n: int, n_wanted: int) -> set[int]:
    """Return up to that many of the first n integers, evenly spaced."""
    return {i * n // n_wanted for i in range(n_wanted)} if n > n_wanted else set(range(n))


def image_areas(decided: Tensor, label: Tensor, n_classes: int) -> Tensor:
    """Return intersection, union and labelled pixels of each class [3, C]; labels that are not a class are ignored."""
    valid = label < n_classes
    label, decided = label[valid], decided[valid]
    hits, true, found = (torch.bincount(i, minlength=n_classes) for i in (label[label == decided], label, decided))
    return torch.stack([hits, true + found - hits, true])


def thumbnail(image: Tensor, label: Tensor, decided: Tensor) -> np.ndarray:
    """Return red, green, blue, label and decision [H, W, 5], as bytes."""
    scale = min(1.0, THUMBNAIL / max(label.shape))
    size = [max(1, round(scale * side)) for side in label.shape]
    layers = [image.cpu().flip(0), label[None], decided[None]]  # mmcv loads BGR
    small = [F.interpolate(layer[None].float(), size=size, mode='nearest')[0] for layer in layers]
    return torch.cat(small).permute(1, 2, 0).byte().numpy()


def stacked(pictures: list[np.ndarray], fill: int) -> np.ndarray:
    """Return pictures of different sizes in one array, padded on the right and below."""
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    result = np.full((len(pictures), height, width, *pictures[0].shape[2:]), fill, np.uint8)
    for row, picture in zip(result, pictures, strict=True):
        row[: picture.shape[0], : picture.shape[1]] = picture
    return result
