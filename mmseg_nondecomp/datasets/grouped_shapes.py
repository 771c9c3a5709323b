"""Generated data set of classification."""

from __future__ import annotations

from typing import Any, ClassVar

from mmengine.registry import DATASETS

from ._drawn import DrawnDataset, check_split
from ._striped_shape import CLASSES, draw_striped_shape

IMAGES_PER_CLASS = {'train': 50, 'val': 20}


@DATASETS.register_module()
class GroupedShapes(DrawnDataset):
    """Images of 100 classes in 20 groups of five that are easily confused.

    A group is a colour and a direction of thin stripes; its five classes are outlines. The group is learned sooner than
    the class, as in the noise experiment of the smooth top-k paper on CIFAR-100, which takes two minutes here. Classes
    ``5 * i`` to ``5 * i + 4`` form group ``i``.

    Nothing is downloaded or stored: the images, 32 x 32 RGB, are drawn in memory (5000 of them in a second or two) and
    are the same bytes on every machine. An item has ``img`` and ``gt_label``.

    Flips change the direction of the stripes and turn triangles over, and so change the class: do not augment with
    them.

    Args:
        split: 'train' or 'val'.
        images_per_class: Number of images of each class; 50 for 'train' and 20 for 'val' by default.
        seed: Seed of the images, at least 0.
        **kwargs: Arguments of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Example:
        >>> dataset = GroupedShapes(split='val', images_per_class=1)
        >>> len(dataset), dataset[7]['img'].shape, dataset[7]['gt_label'], dataset.metainfo['classes'][7]
        (100, (32, 32, 3), 7, 'amber diamond striped at 36')

        In a config::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'])
            train_dataloader = dict(dataset=dict(
                type='GroupedShapes', split='train', pipeline=[dict(type='PackInputs')]))
    """

    METAINFO: ClassVar[dict] = dict(classes=CLASSES)

    def __init__(self, split: str = 'train', images_per_class: int | None = None, seed: int = 0, **kwargs: Any) -> None:
        check_split(split)
        self.images_per_class = IMAGES_PER_CLASS[split] if images_per_class is None else images_per_class
        super().__init__(split, seed, ('images_per_class', self.images_per_class), kwargs)

    def load_data_list(self) -> list[dict]:
        """Draw the images, one class after the other in turn."""
        labels = list(range(len(CLASSES))) * self.images_per_class
        return [
            dict(img=draw_striped_shape(self.seed, self.split, index, label), gt_label=label)
            for index, label in enumerate(labels)
        ]

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the class of an image, in a list."""
        return [self.get_data_info(idx)['gt_label']]
