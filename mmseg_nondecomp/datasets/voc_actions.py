"""People of Pascal VOC 2012 with labels of ten actions."""

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from mmseg_nondecomp.functional._inputs import check_absent, check_integer, check_option

ACTIONS: tuple[str, ...] = (
    *('jumping', 'phoning', 'playinginstrument', 'reading', 'ridingbike'),
    *('ridinghorse', 'running', 'takingphoto', 'usingcomputer', 'walking'),
)
PARTS = ('train', 'val', 'test')
LABELS = ('-1', '0', '1')
UNDECIDED = 0  # Label of people who do not count for an action

LAYOUT = (
    'Download VOCtrainval_11-May-2012.tar from http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ and unpack it; '
    '`data_root` is its folder VOCdevkit/VOC2012, with ImageSets/Action/<action>_trainval.txt, Annotations/<image>.xml '
    'and JPEGImages/<image>.jpg.'
)


class Person(NamedTuple):
    """A person in the lists of actions."""

    image: str  # Name of the image, without folder and extension
    number: int  # Position among the objects of the annotation, from 1


@DATASETS.register_module()
class VOCActions(BaseDataset):
    """People of Pascal VOC 2012, each with a box and any number of ten actions.

    As in the paper on direct loss minimisation (https://arxiv.org/abs/1511.06411, section 4.2), "trainval" is divided
    into three equal parts, for training, for the choice of hyper-parameters, and for the report; the labels of the
    official test set are not public. The parts have no image in common, since people in one picture often do the same.
    Images with the most people come first, each goes to the part with the fewest people so far; the seed orders the
    others, alike in every process. The division is the same for all actions; the paper makes a new one for each action.

    An item is one person: ``img_path``; ``bbox``, the edges left, top, right, bottom of the box in pixels, from 0;
    ``gt_score``, for each action 1 if the person does it and 0 if not; ``img_id`` and ``person``, a number from 1.
    People who do none of the actions ("other" in the annotations) have only zeros. People with a label of 0 for any
    action, whom the official evaluation does not count for it, are left out.

    With ``metainfo=dict(classes=('jumping',))`` the items are the same, with a score for that action only: the paper
    trains one network for each action.

    Args:
        data_root: The folder VOC2012 of the official archive.
        split: 'train', 'val' or 'test', a third of "trainval" each.
        seed: Seed of the division, at least 0. Parts that are used together need the same seed.
        **kwargs: Arguments of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Example:
        In a config, people in their surroundings as MMPretrain's multi-label heads take them::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'])
            train_dataloader = dict(dataset=dict(
                type='VOCActions', data_root='data/VOCdevkit/VOC2012', split='train', pipeline=[
                    dict(type='LoadImageFromFile'), dict(type='CropBox', context=227 / 195),
                    dict(type='Resize', scale=(227, 227)), dict(type='PackInputs')]))
    """

    METAINFO: ClassVar[dict] = dict(classes=ACTIONS)

    def __init__(
        self, data_root: str | Path = 'data/VOCdevkit/VOC2012', split: str = 'train', seed: int = 0, **kwargs: Any
    ) -> None:
        check_option('split', split, PARTS)
        check_integer('seed', seed, 0)
        given = {name: value for name, value in kwargs.items() if value}
        check_absent('VOCActions determines the layout of its files', given, ('ann_file', 'data_prefix'))
        self.split, self.seed, self.folder = split, seed, Path(data_root)
        super().__init__(data_root=str(data_root), **kwargs)

    def load_data_list(self) -> list[dict]:
        """List the people of the part."""
        classes = self.metainfo['classes']
        if not classes or not set(classes) <= set(ACTIONS) or len(set(classes)) < len(classes):
            raise ValueError(f'`classes` of `metainfo` should be different ones of {ACTIONS}. Found {tuple(classes)}.')
        labels = {action: self._labels(action) for action in classes}
        first = labels[classes[0]]
        for action, of_people in labels.items():
            if different := of_people.keys() ^ first.keys():
                person = min(different)
                raise ValueError(
                    f'The lists of all actions should name the same people. Those of {action!r} and {classes[0]!r} in '
                    f'{self._list(action).parent} do not: only one of them has object {person.number} of '
                    f'{person.image}. {LAYOUT}'
                )
        counted = [person for person in first if all(one[person] != UNDECIDED for one in labels.values())]
        part_of = divided([person.image for person in first], self.seed)
        return [
            dict(
                img_path=str(self.folder / 'JPEGImages' / f'{person.image}.jpg'),
                img_id=person.image,
                person=person.number,
                bbox=self._box(person),
                gt_score=[float(one[person] > 0) for one in labels.values()],
            )
            for person in counted
            if PARTS[part_of[person.image]] == self.split
        ]

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the actions of a person."""
        return np.flatnonzero(self.get_data_info(idx)['gt_score']).tolist()

    def _list(self, action: str) -> Path:
        return self.folder / 'ImageSets' / 'Action' / f'{action}_trainval.txt'

    def _labels(self, action: str) -> dict[Person, int]:
        """Return the label of each person for an action: 1 (does it), -1 (does not) or 0 (undecided)."""
        path = self._list(action)
        if not path.is_file():
            raise FileNotFoundError(f'{path} is missing. {LAYOUT}')
        labels: dict[Person, int] = {}
        for row, line in enumerate(path.read_text().splitlines(), 1):
            words = line.split()
            if not words:
                continue
            # A name, not a path: an image of the archive.
            if len(words) != 3 or not (words[0] == Path(words[0]).name and words[1].isdecimal() and words[2] in LABELS):
                raise ValueError(
                    f'{path}, line {row}, should hold an image, the number of an object, and a label of -1, 0 or 1. '
                    f'Found {line!r}.'
                )
            labels[Person(words[0], int(words[1]))] = int(words[2])
        if not labels:
            raise ValueError(f'{path} should name people. Found none. {LAYOUT}')
        return labels

    def _box(self, person: Person) -> list[float]:
        """Return the edges of the box of a person."""
        path = self.folder / 'Annotations' / f'{person.image}.xml'
        if not path.is_file():
            raise FileNotFoundError(f'{path} is missing. {LAYOUT}')
        try:
            # Entities are refused: they could expand to any size.
            objects = ET.parse(path, ET.XMLParser(target=_WithoutDoctype())).getroot().findall('object')  # noqa: S314
        except ET.ParseError as error:
            raise ValueError(f'{path} should be XML. Found: {error}.') from error
        if not 1 <= person.number <= len(objects):
            raise ValueError(f'{path} should have an object {person.number}. Found {len(objects)} objects.')
        element = objects[person.number - 1]
        name, box = element.findtext('name'), element.find('bndbox')
        if name != 'person' or box is None:
            raise ValueError(
                f'{path} should have a person with a box as object {person.number}. '
                f'Found {name!r} {"without" if box is None else "with"} a box.'
            )
        left, top, right, bottom = (float(box.findtext(side, 'nan')) for side in ('xmin', 'ymin', 'xmax', 'ymax'))
        if not (left <= right and top <= bottom):  # written so that NaN is refused
            raise ValueError(
                f'{path} should give the box of object {person.number} as xmin <= xmax and ymin <= ymax. '
                f'Found {left}, {right} and {top}, {bottom}.'
            )
        # Pascal VOC gives the first and the last pixel, from 1.
        return [left - 1, top - 1, right, bottom]


class _WithoutDoctype(ET.TreeBuilder):
    """XML builder that refuses a document type before reading it."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ET.ParseError('a document type, where annotations have none')


def divided(images: list[str], seed: int) -> dict[str, int]:
    """Return the part of each image, 0, 1 or 2, from the image of each person."""
    people = Counter(images)
    names = sorted(people)
    # Uniform variates, whose stream NumPy keeps stable; that of its permutations may change.
    order = np.random.Generator(np.random.PCG64(seed)).random(len(names)).argsort(kind='stable')
    sizes, part_of = [0] * len(PARTS), {}
    for name in sorted((names[index] for index in order), key=lambda name: -people[name]):
        part_of[name] = sizes.index(min(sizes))
        sizes[part_of[name]] += people[name]
    return part_of
