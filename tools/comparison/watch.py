"""What a training is like on the way: the IoU of the validation set at some iterations, and how pictures are seen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor
from whole_file import whole_file, write_whole

from mmseg_nondecomp.functional.jaccard_counts import mean_jaccard

CURVE, PICTURES, LAST = 'curve.json', 'pictures.npz', 'last.npz'
N_PICTURES, N_GALLERY = 4, 120
THUMBNAIL = 160
"""The longer side of what is kept of an image, in pixels."""


class Watch(Hook):
    """Notes each validation of a training.

    It leaves ``curve.json`` (the IoU at each validation), ``pictures.npz`` (how a few images are seen at each) and
    ``last.npz``, from the last validation: intersections and unions of each image and class, and many thumbnails.

    Args:
        work_dir: Where the files go; what a stopped training has left there is gone on with.
        report: Told the share of the training that is done.
    """

    priority = 'LOWEST'

    def __init__(self, work_dir: Path, report: Callable[[float], None]) -> None:
        self.work_dir, self.report = work_dir, report
        curve = work_dir / CURVE
        self.curve: list[dict[str, Any]] = json.loads(curve.read_text()) if curve.exists() else []
        self.pictures = dict(np.load(work_dir / PICTURES)) if (work_dir / PICTURES).exists() else {}

    @property
    def last_iteration(self) -> int:
        """The iteration of the last validation."""
        return self.curve[-1]['iteration'] if self.curve else 0

    def before_train(self, runner: Runner) -> None:
        """Go on from a checkpoint: forget what came after it, and validate where the stop came before that."""
        self.curve = [point for point in self.curve if point['iteration'] <= runner.iter]
        if self.last_iteration < runner.iter:
            runner.val_loop.run()

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        """Tell how far the training is."""
        self.report((runner.iter + 1) / runner.max_iters)

    def before_val(self, runner: Runner) -> None:
        """Keep the random numbers of the training: how often one looks does not change it."""
        self.random_state = torch.get_rng_state()
        self.areas: list[Tensor] = []
        self.pixels = torch.zeros(())
        self.seen: dict[int, np.ndarray] = {}

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Count the areas of the images of a batch, and keep a few."""
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
            self.areas.append(areas[:2])
            self.pixels = self.pixels + areas[2]

    def after_val_epoch(self, runner: Runner, metrics: Any = None) -> None:
        """Add a point to the curve."""
        areas = torch.stack(self.areas).double()
        index = areas[:, 0].sum(0) / areas[:, 1].sum(0)  # NaN for a class that does not occur
        point = {
            'iteration': runner.iter,
            'data set': 100 * mean_jaccard(areas.sum(0)).item(),
            'image': 100 * mean_jaccard(areas).nanmean().item(),
            'classes': [None if value.isnan() else 100 * value.item() for value in index],
        }
        self.curve = [*(past for past in self.curve if past['iteration'] < runner.iter), point]
        gallery = np.array(sorted(self.seen))
        shown = [i for i in gallery if i in evenly_spaced(len(areas), N_PICTURES)]
        # Images are of one size, or as large as the largest.
        self.pictures[str(runner.iter)] = stacked([self.seen[i][:, :, 4] for i in shown], 255)
        palette = np.array(runner.val_dataloader.dataset.metainfo['palette'], np.uint8)
        with whole_file(self.work_dir / LAST) as path:
            np.savez_compressed(
                path,
                areas=areas.numpy(),
                pixels=self.pixels.numpy(),
                gallery=gallery,
                thumbnails=stacked([self.seen[i] for i in gallery], 255),
                shown=np.array(shown),
                palette=palette,
            )
        with whole_file(self.work_dir / PICTURES) as path:
            np.savez_compressed(path, **self.pictures)
        write_whole(self.work_dir / CURVE, json.dumps(self.curve))

    def after_val(self, runner: Runner) -> None:
        """The training goes on as if nobody had looked."""
        torch.set_rng_state(self.random_state)


def evenly_spaced(n: int, n_wanted: int) -> set[int]:
    """At most that many of the first n numbers, spread over them."""
    return {i * n // n_wanted for i in range(n_wanted)} if n > n_wanted else set(range(n))


def image_areas(decided: Tensor, label: Tensor, n_classes: int) -> Tensor:
    """Intersection, union and true pixels of each class [3, C]; labels that are no class are ignored."""
    valid = label < n_classes
    label, decided = label[valid], decided[valid]
    hits, true, found = (torch.bincount(i, minlength=n_classes) for i in (label[label == decided], label, decided))
    return torch.stack([hits, true + found - hits, true])


def thumbnail(image: Tensor, label: Tensor, decided: Tensor) -> np.ndarray:
    """Red, green, blue, label and decision [H, W, 5], as bytes."""
    scale = min(1.0, THUMBNAIL / max(label.shape))
    size = [max(1, round(scale * side)) for side in label.shape]
    layers = [image.cpu().flip(0), label[None], decided[None]]  # BGR, as mmcv loads it
    small = [F.interpolate(layer[None].float(), size=size, mode='nearest')[0] for layer in layers]
    return torch.cat(small).permute(1, 2, 0).byte().numpy()


def stacked(pictures: list[np.ndarray], fill: int) -> np.ndarray:
    """Pictures of different sizes in one array, filled up on the right and below."""
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    result = np.full((len(pictures), height, width, *pictures[0].shape[2:]), fill, np.uint8)
    for row, picture in zip(result, pictures, strict=True):
        row[: picture.shape[0], : picture.shape[1]] = picture
    return result
