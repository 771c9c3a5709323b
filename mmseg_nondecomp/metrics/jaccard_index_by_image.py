"""The Jaccard index image by image, and the other averages that go by the name of mIoU."""

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from mmseg_nondecomp.functional.jaccard_counts import jaccard_counts, mean_jaccard
from mmseg_nondecomp.metrics.plotted import PlottedMetric
from mmseg_nondecomp.metrics.segmentation import (
    check_ignore_index,
    check_num_classes,
    decided_classes,
    probability_items,
)


class JaccardIndexByImage(PlottedMetric):
    r"""Five averages of the Jaccard index of the same decisions, side by side.

    - ``image``: the mean over classes in each image, those true or decided there, then the mean over images.
    - ``class``: the mean over the images in which a class is true or decided, then the mean over classes.
    - ``dataset``: intersections and unions summed over all images, then the mean over classes: the mIoU of Pascal VOC,
      Cityscapes and MMSegmentation's ``IoUMetric``, ``MulticlassJaccardIndex`` of torchmetrics.
    - ``batch``: the same over the images of one update, over the classes that are true there, then the mean over
    updates: what a
      loss with ``scope='batch'`` and ``classes='present'`` optimises.
    - ``worst``: the mean over the share ``worst`` of the images, those with the lowest mean over classes.

    Rare and small objects weigh more the further up this list an average is; an image in which a class is decided on a
    single pixel and true on none has the index 0 for it. Images without a valid pixel do not count. A value is NaN
    where nothing counts. The metric is not differentiable.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores of shape [N, C, *], of which the highest decides, or decided classes, integers of shape [N, *].
    - ``target``: class indices, of shape [N, *].

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        ignore_index: The label that takes a pixel out. By default 255, where it cannot be a class.
        worst: Which share of the images ``worst`` is about, in (0, 1].
        kwargs: What any torchmetrics metric takes.

    Raises:
        TypeError: If an argument or an input is of a wrong type.
        ValueError: If an argument or an input is out of range.

    Example:
        >>> metric = JaccardIndexByImage(num_classes=2)
        >>> decided = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1]])
        >>> true = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
        >>> {name: round(value.item(), 3) for name, value in metric(decided, true).items()}
        {'image': 0.479, 'class': 0.479, 'dataset': 0.583, 'batch': 0.583, 'worst': 0.375}

    Reference:
        M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, section 3.1.
        Z. Wang et al.: Revisiting evaluation metrics for semantic segmentation. NeurIPS 2023.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    counts: list[Tensor]
    batches: Tensor

    def __init__(self, num_classes: int, ignore_index: int | None = None, worst: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_num_classes(num_classes)
        check_ignore_index(ignore_index)
        if not isinstance(worst, (int, float)) or isinstance(worst, bool):
            raise TypeError(f'Parameter `worst` should be a number. Found {worst!r}.')
        if not 0 < worst <= 1:
            raise ValueError(f'Parameter `worst` should be in (0, 1]. Found {worst}.')
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.worst = worst
        self.add_state('counts', [], dist_reduce_fx='cat')
        self.add_state('batches', torch.zeros(2, dtype=torch.float64), dist_reduce_fx='sum')

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add images, which are one batch."""
        if target.is_floating_point():
            raise TypeError(f'Parameter `target` should hold class indices. Found {target.dtype}.')
        items = probability_items(preds, target, self.num_classes, self.ignore_index)
        counts = jaccard_counts(decided_classes(items), items.target, items.mass, self.num_classes)
        self.counts.append(counts[(items.mass > 0).any(1)])
        true = torch.zeros(self.num_classes + 1, device=target.device)
        true.scatter_add_(0, items.target.flatten(), items.mass.flatten().float())
        of_batch = counts.sum(0)
        # A class that is not true in the batch does not count in its average.
        index = mean_jaccard(of_batch * (true[:-1] > 0))
        self.batches = self.batches + torch.stack([index.nan_to_num(), (~index.isnan()).double()])

    def compute(self) -> dict[str, Tensor]:
        """The five averages."""
        counts = dim_zero_cat(self.counts) if len(self.counts) else self.batches.new_zeros(0, 2, self.num_classes)
        counts = counts.double()
        of_images = mean_jaccard(counts)
        seen = counts[:, 1] > 0
        index = torch.where(seen, counts[:, 0] / counts[:, 1].clamp(min=1), 0)
        of_classes = index.sum(0) / seen.sum(0)
        # In decimals as written: 0.28 of 25 images are 7, where floating-point numbers make it 7 and a little.
        n_worst = math.ceil(Fraction(str(self.worst)) * len(counts))
        total, number = self.batches.unbind()
        values = {
            'image': of_images.mean(),
            'class': of_classes.nanmean(),
            'dataset': mean_jaccard(counts.sum(0)),
            'batch': total / number,
            'worst': of_images.sort().values[:n_worst].mean(),
        }
        return {name: value.float() for name, value in values.items()}
