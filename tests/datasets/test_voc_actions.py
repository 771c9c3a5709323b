"""People of Pascal VOC: the division, boxes and labels, and errors for wrong files."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mmengine.registry import DATASETS
from voc_tree import Drawn, write_list, write_voc

from mmseg_nondecomp.datasets import VOCActions
from mmseg_nondecomp.datasets.voc_actions import ACTIONS, PARTS, divided

PEOPLE = (3, 1, 2, 1, 1, 4, 1, 1, 2, 1, 1, 1, 2, 1)
KEY = ('2011_000003', 2)
"""A person who is alone in a picture."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / 'VOC2012'


@pytest.fixture
def drawn(root: Path) -> dict[tuple[str, int], Drawn]:
    return {(person.image, person.number): person for person in write_voc(root, PEOPLE)}


def parts(root: Path, **settings: Any) -> list[VOCActions]:
    return [VOCActions(root, split, **settings) for split in PARTS]


def infos(dataset: VOCActions) -> list[dict]:
    return [dataset.get_data_info(index) for index in range(len(dataset))]


def keys(dataset: VOCActions) -> list[tuple[str, int]]:
    return [(info['img_id'], info['person']) for info in infos(dataset)]


def annotation(root: Path) -> Path:
    return root / 'Annotations' / f'{KEY[0]}.xml'


def rewrite(root: Path, old: str, new: str) -> None:
    """Change the last occurrence in the annotation of this person."""
    before, found, after = annotation(root).read_text().rpartition(old)
    assert found
    annotation(root).write_text(before + new + after)


def action_list(root: Path, action: str) -> Path:
    return root / 'ImageSets' / 'Action' / f'{action}_trainval.txt'


@pytest.mark.parametrize('split', PARTS)
def test_an_item_is_a_person_with_box_and_labels(root: Path, drawn: dict, split: str):
    dataset = DATASETS.build(dict(type='VOCActions', data_root=str(root), split=split))
    assert isinstance(dataset, VOCActions)
    assert dataset.metainfo['classes'] == ACTIONS
    for index, info in enumerate(infos(dataset)):
        person = drawn[info['img_id'], info['person']]
        assert Path(info['img_path']) == root / 'JPEGImages' / f'{person.image}.jpg'
        assert Path(info['img_path']).is_file()
        xmin, ymin, xmax, ymax = person.box
        assert info['bbox'] == [xmin - 1, ymin - 1, xmax, ymax]
        assert info['gt_score'] == [float(action in person.actions) for action in ACTIONS]
        assert [ACTIONS[label] for label in dataset.get_cat_ids(index)] == sorted(person.actions)


@pytest.mark.parametrize('seed', range(5))
def test_parts_are_equal_share_no_image_and_hold_everyone(root: Path, drawn: dict, seed: int):
    found = [keys(dataset) for dataset in parts(root, seed=seed)]
    assert sorted(key for part in found for key in part) == sorted(drawn)
    sizes = [len(part) for part in found]
    assert sum(sizes) == sum(PEOPLE)
    assert max(sizes) - min(sizes) <= 1
    images = [{image for image, _ in part} for part in found]
    assert sum(map(len, images)) == len(set.union(*images)) == len(PEOPLE)


def test_the_paper_has_as_many_people_in_each_part():
    """Of 6278 in 4588 pictures."""
    extra = random.Random(0).choices(range(4588), k=6278 - 4588)
    images = [f'{image:04d}' for image in [*range(4588), *extra]]
    part_of = divided(images, seed=0)
    assert Counter(part_of[image] for image in images) == {0: 2093, 1: 2093, 2: 2092}


def test_seed_decides_and_the_order_of_the_lists_does_not(root: Path, drawn: dict):
    first = [sorted(keys(dataset)) for dataset in parts(root)]
    for action in ACTIONS:
        path = action_list(root, action)
        path.write_text('\n'.join(reversed(path.read_text().splitlines())))
    assert [sorted(keys(dataset)) for dataset in parts(root)] == first
    assert [sorted(keys(dataset)) for dataset in parts(root, seed=1)] != first


def test_division_is_fixed_by_the_seed():
    """When this fails, the same seed divides otherwise than before."""
    images = [f'{image:02d}' for image, count in enumerate(PEOPLE) for _ in range(count)]
    assert ''.join(str(part) for _, part in sorted(divided(images, 0).items())) == '11221020202010'
    assert divided(images, 0) != divided(images, 1)


def test_one_action_alone_has_the_same_people(root: Path, drawn: dict):
    for everything, alone in zip(parts(root), parts(root, metainfo=dict(classes=('running',))), strict=True):
        assert keys(alone) == keys(everything)
        column = ACTIONS.index('running')
        assert [info['gt_score'] for info in infos(alone)] == [[info['gt_score'][column]] for info in infos(everything)]


def test_labels_of_0_take_people_out_and_move_no_one(root: Path, drawn: dict):
    before = [keys(dataset) for dataset in parts(root)]
    labels = {key: 1 if 'reading' in person.actions else -1 for key, person in drawn.items()}
    write_list(root, 'reading', labels | {KEY: 0})
    after = [keys(dataset) for dataset in parts(root)]
    assert after == [[key for key in part if key != KEY] for part in before]
    assert sum(map(len, after)) == len(drawn) - 1


@pytest.mark.parametrize(
    ('wrong', 'error', 'found'),
    [
        (dict(split='trainval'), ValueError, "`split`.*'train', 'val', 'test'.*Found 'trainval'"),
        (dict(seed=-1), ValueError, '`seed`.*Found -1'),
        (dict(ann_file='a.txt'), TypeError, "`ann_file`.*Found 'a.txt'"),
        (dict(data_prefix=dict(img_path='a')), TypeError, '`data_prefix`.*Found'),
        (dict(metainfo=dict(classes=('running', 'flying'))), ValueError, "`classes`.*Found \\('running', 'flying'\\)"),
        (dict(metainfo=dict(classes=('running', 'running'))), ValueError, '`classes`.*different'),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(root: Path, drawn: dict, wrong: dict, error: type[Exception], found: str):
    with pytest.raises(error, match=found):
        VOCActions(**dict(data_root=root) | wrong)


DOWNLOAD = 'Download VOCtrainval_11-May-2012.tar .* VOCdevkit/VOC2012, with ImageSets/Action'


@pytest.mark.parametrize(
    ('damage', 'error', 'message'),
    [
        (shutil.rmtree, FileNotFoundError, f'jumping_trainval.txt is missing. {DOWNLOAD}'),
        (lambda root: action_list(root, 'phoning').unlink(), FileNotFoundError, f'phoning_trainval.*{DOWNLOAD}'),
        (lambda root: annotation(root).unlink(), FileNotFoundError, f'{KEY[0]}.xml is missing. {DOWNLOAD}'),
        (lambda root: action_list(root, 'walking').write_text('\n'), ValueError, 'walking_.* name people. Found none'),
    ],
    ids=['folder', 'list', 'annotation', 'people'],
)
def test_missing_files_are_named(root: Path, drawn: dict, damage: Callable, error: type[Exception], message: str):
    damage(root)
    with pytest.raises(error, match=message):
        parts(root)


@pytest.mark.parametrize(
    'line', ['2011_000001', '2011_000001 1', '2011_000001 x 1', '2011_000001 1 2', '1 1 1 1', '../a 1 1', '/a 1 1']
)
def test_wrong_lines_are_named(root: Path, drawn: dict, line: str):
    path = action_list(root, 'walking')
    row = len(path.read_text().splitlines()) + 1
    path.write_text(path.read_text() + line + '\n')
    with pytest.raises(ValueError, match=f'walking_trainval.txt, line {row}, .* Found {line!r}'):
        VOCActions(root)


def test_lists_of_different_people_are_refused(root: Path, drawn: dict):
    write_list(root, 'walking', {key: -1 for key in drawn if key != KEY})
    with pytest.raises(ValueError, match=f"'walking' and 'jumping'.*only one of them has object 2 of {KEY[0]}"):
        VOCActions(root)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ([('<name>person</name>', '<name>sheep</name>')], "person with a box as object 2. Found 'sheep' with a box"),
        (  # the box of a part of the body does not count
            [
                ('</part><bndbox>', '</part><point>'),
                ('</bndbox></object></annotation>', '</point></object></annotation>'),
            ],
            "person with a box as object 2. Found 'person' without",
        ),
        (
            [('<object><name>person', '<shape><name>person'), ('</object></annotation>', '</shape></annotation>')],
            'should have an object 2. Found 1 objects',
        ),
        (
            [('</part><bndbox><xmax>', '</part><bndbox><width>'), ('</xmax><xmin>', '</width><xmin>')],
            'box of object 2 as xmin <= xmax and ymin <= ymax. Found .*, nan and',
        ),
        ([('</annotation>', '')], 'should be XML. Found: no element found'),
    ],
    ids=['no person', 'no box', 'no object', 'no edge', 'damaged'],
)
def test_wrong_annotations_are_named(root: Path, drawn: dict, changes: list, message: str):
    for old, new in changes:
        rewrite(root, old, new)
    with pytest.raises(ValueError, match=f'{KEY[0]}.xml .*{message}'):
        parts(root)


ENTITIES = '<!ENTITY a "ha"><!ENTITY b "&a;&a;">'


@pytest.mark.parametrize('doctype', ['<!DOCTYPE annotation SYSTEM "a.dtd">', f'<!DOCTYPE annotation [{ENTITIES}]>'])
def test_document_types_are_refused_unread(root: Path, drawn: dict, doctype: str):
    path = annotation(root)
    path.write_text(doctype + path.read_text())
    with pytest.raises(ValueError, match=f'{KEY[0]}.xml should be XML. Found: a document type, where .* have none'):
        parts(root)
