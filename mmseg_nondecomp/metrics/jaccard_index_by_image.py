"""The Jaccard index image by image, and the other averages that are called mIoU."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from mmseg_nondecomp.metrics._base import UnitMetric
from mmseg_nondecomp.metrics.functional import _image_jaccard as functional
from mmseg_nondecomp.metrics.functional._inputs import layout_of


class JaccardIndexByImage(UnitMetric):
    r"""Five averages of the Jaccard index of the same decisions, side by side.

    - ``image``: the mean over classes in each image, those true or decided there, then the mean over images.
    - ``class``: the mean over the images in which a class is true or decided, then the mean over classes.
    - ``dataset``: intersections and unions summed over all images, then the mean over classes: the mIoU of Pascal VOC,
      Cityscapes and MMSegmentation's ``IoUMetric``, ``MulticlassJaccardIndex`` of torchmetrics.
    - ``batch``: the same over the images of one update, over the classes that are true there, then the mean over
      updates: what a loss with ``scope='batch'`` and ``classes='present'`` optimises.
    - ``worst``: the mean over the share ``worst`` of the images, those with the lowest mean over classes.

    Rare and small objects weigh more the further up this list an average is; an image in which a class is decided on a
    single pixel and true on none has the index 0 for it. Images without a valid pixel do not count, nor, of a single
    class, do those where it is neither true nor decided. ``zero_division`` changes the latter. A value is NaN where
    nothing counts. The metric is not differentiable.

    As input to ``forward`` and ``update`` the metric accepts:

    - ``preds``: scores of shape [N, C, *], of which the highest decides, or decided classes, integers of shape [N, *].
    - ``target``: class indices, of shape [N, *] or [N, 1, *], or one-hot labels, of shape [N, C, *].

    The first dimension is that of the images, also of a single one: classes of shape [H, W] are H images of W pixels,
    and those of one dimension are a single image.

    Args:
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        ignore_index: The label of the pixels to ignore. By default 255, where it cannot be a class. A class that is
            ignored counts in no average.
        worst: The share of the images in ``worst``, in (0, 1].
        mode: As in :class:`LovaszJaccardIndex`. With ``'multilabel'`` a probability above 0.5 decides for a class,
            and images without a true or decided class do not count unless ``zero_division`` is set.
        from_logits: As in :class:`LovaszJaccardIndex`. It matters for a single class and several labels: logits that
            may all lie in [0, 1] need ``True``.
        zero_division: The index of a class that is neither true nor decided, 0 / 0, in [0, 1]. By default such a class
            does not count. With a number, all classes count in all averages, except for an ignored class: in each image
            and each batch with a valid pixel, and in the data set. ``batch`` is then over all classes, as for a loss
            with ``classes='all'``, and ``class`` equals ``image``. 1 is the convention of the Lovász-Softmax paper
            (https://arxiv.org/abs/1705.08790, equation 3).
        kwargs: The arguments of any torchmetrics metric.

    Example:
        >>> metric = JaccardIndexByImage(num_classes=2)
        >>> decided = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1]])
        >>> true = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
        >>> {name: round(value.item(), 3) for name, value in metric(decided, true).items()}
        {'image': 0.479, 'class': 0.479, 'dataset': 0.583, 'batch': 0.583, 'worst': 0.375}

        Of two images, the first does not contain the class, and no pixel is decided for it:

        >>> decided, true = torch.tensor([[0, 0, 0], [0, 1, 1]]), torch.tensor([[0, 0, 0], [0, 0, 1]])
        >>> JaccardIndexByImage(num_classes=1)(decided, true)['image']
        tensor(0.5000)
        >>> JaccardIndexByImage(num_classes=1, zero_division=1)(decided, true)['image']
        tensor(0.7500)
    """

    is_differentiable = False

    counts: list[Tensor]
    batches: Tensor

    def __init__(
        self,
        num_classes: int,
        ignore_index: int | None = None,
        worst: float = 0.05,
        mode: str | None = None,
        from_logits: bool | None = None,
        zero_division: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.layout = layout_of(num_classes, mode, from_logits, ignore_index, self.checked)
        functional.check_averages(worst, zero_division)
        self.num_classes, self.ignore_index, self.worst = num_classes, ignore_index, worst
        self.zero_division = zero_division
        settings = dict(ignore_index=ignore_index, mode=self.layout.mode, from_logits=from_logits)
        self.add_settings_state(**settings, zero_division=zero_division)
        self.add_state('counts', [], dist_reduce_fx='cat')
        self.add_state('batches', torch.zeros(2, dtype=torch.float64), dist_reduce_fx='sum')

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add the images of one batch."""
        counts, batch = functional.counts_of_images(preds, target, self.layout, self.zero_division)
        self.counts += [counts.flatten().float()]
        self.batches = self.batches + batch

    def compute(self) -> dict[str, Tensor]:
        """Return the five averages."""
        counts = dim_zero_cat(self.counts) if len(self.counts) else self.batches.new_zeros(0)
        counts = counts.view(-1, 2 if self.zero_division is None else 3, self.num_classes)
        return functional.averages(counts, self.batches, self.worst, self.zero_division)
