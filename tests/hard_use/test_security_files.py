"""Files of data sets and caches decide about nothing but their content: no memory, no time, no other file."""

import io
import json
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('mmseg')

from hard_use.load_or_die import outcomes
from hard_use.test_security_checkpoints import fuzzed
from mmseg.datasets import BaseSegDataset

from mmseg_nondecomp.class_index import ClassIndex, index_classes
from mmseg_nondecomp.class_index._annotations import annotations_of
from mmseg_nondecomp.class_index._index import ImageClasses
from mmseg_nondecomp.datasets.voc_actions import ACTIONS, VOCActions

N_DAMAGED = 2000
LAUGHS = ''.join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip('abcdefgh', 'bcdefghi', strict=True)
)


def index():
    """Return a class index of 50 images with up to six classes."""
    rng = np.random.default_rng(0)
    images = []
    for size in rng.integers(0, 7, 50):
        classes = np.sort(rng.choice(9, size, replace=False))
        images.append(ImageClasses(classes, rng.integers(1, 99, size), 999, rng.random((size, 2, 2))))
    return ClassIndex.from_images(images, tuple('abcdefghi'), 2)


def test_no_damage_to_a_class_index_is_taken_for_an_index(tmp_path):
    stream = io.BytesIO()
    index().save(stream)
    whole, found = fuzzed(tmp_path, stream.getvalue(), N_DAMAGED, 'npz')
    assert not [one for one in found.values() if 'orders' in one or one['status'] == 'died']
    assert {one['digest'] for one in found.values() if one['status'] == 'loaded'} == {whole['digest']}


def test_a_class_index_with_a_forged_size_is_refused(tmp_path):
    arrays = io.BytesIO()
    index().save(arrays)
    shapes = [(1 << 40,), (1 << 62,), (1 << 32, 1 << 32), (-1,)]
    for number, shape in enumerate(shapes):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, dict(descr='<u2', fortran_order=False, shape=shape))
        with zipfile.ZipFile(arrays) as source, zipfile.ZipFile(tmp_path / f'{number}.npz', 'w') as archive:
            for name in source.namelist():
                archive.writestr(name, header.getvalue() if name == 'classes.npy' else source.read(name))
    for found in outcomes(sorted(tmp_path.iterdir()), alone=True).values():
        assert found['status'] in ('MemoryError', 'ValueError')
        assert found['memory'] < 100


def png(path, width, height):
    """Write a uniform gray picture of any size in a small file."""
    packer = zlib.compressobj(9)
    row = bytes(1 + width)
    data = b''.join(packer.compress(row) for _ in range(height)) + packer.flush()

    def chunk(kind, content):
        return struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))

    header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    path.write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', data) + chunk(b'IEND', b''))


class Animals(BaseSegDataset):
    METAINFO = dict(classes=('cat', 'dog'), palette=[[0, 0, 0], [1, 1, 1]])

    @classmethod
    def get_label_map(cls, new_classes=None):
        """Return no label map, whatever the names of the classes."""


def animals(folder, **settings):
    settings |= dict(data_prefix=dict(img_path='images', seg_map_path='labels'), pipeline=[])
    return Animals(data_root=str(folder), img_suffix='.png', seg_map_suffix='.png', **settings)


def of_files(folder, *files, classes=('cat', 'dog')):
    data = animals(folder, lazy_init=True, serialize_data=False, metainfo=dict(classes=classes))
    common = dict(img_path='a', label_map=None, reduce_zero_label=False, seg_fields=[])
    data.data_list, data._fully_initialized = [dict(seg_map_path=file, **common) for file in files], True
    return data


@pytest.fixture
def folders(tmp_path):
    for name in ('images', 'labels'):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_label_map_larger_than_pictures_are_is_named(folders):
    """A file of less than 100 bytes says that it holds 4.9 billion pixels."""
    png(folders / 'images' / 'a.png', 2, 2)
    png(folders / 'labels' / 'a.png', 1, 1)
    content = (folders / 'labels' / 'a.png').read_bytes()
    header = struct.pack('>IIBBBBB', 70_000, 70_000, 8, 0, 0, 0, 0)
    bomb = content[:16] + header + struct.pack('>I', zlib.crc32(b'IHDR' + header)) + content[33:]
    (folders / 'labels' / 'a.png').write_bytes(bomb)
    with pytest.raises(OSError, match=r'label file .*a\.png'):
        index_classes(animals(folders), folders / 'cache', num_workers=0)


@pytest.mark.parametrize('content', [b'', b'\x89PNG', b'GIF89a', b'<svg/>', b'%!PS', b'P5 9999999 9999999 255\n'])
def test_a_label_map_that_is_none_is_named(folders, content):
    png(folders / 'images' / 'a.png', 2, 2)
    (folders / 'labels' / 'a.png').write_bytes(content)
    with pytest.raises(OSError, match=r'label file .*a\.png'):
        index_classes(animals(folders), folders / 'cache', num_workers=0)


NAMES = [
    *('../../a', '..', 'a\nb', "'; touch canary; '", '$(touch canary)'),
    *('%s', '~', '-rf', 'a*b?[c]', '\udcff', 'ä' * 80),
]


def test_names_decide_about_no_file_of_the_cache_and_lists_of_files_differ(folders):
    """Names of images and of classes are in the content of an index; its own name is made of two sums."""
    made = []
    for name in NAMES:
        file = folders / 'labels' / f'{name}.png'
        png(file.resolve(), 2, 2)
        data = of_files(folders, str(file), classes=(name, 'b'))
        made.append(annotations_of(data, 2).identity())
        assert index_classes(data, folders / 'cache', num_workers=0).class_names == (name, 'b')
    assert len(set(made)) == len(NAMES)
    files = sorted(path.name for path in (folders / 'cache').iterdir())
    assert sum(name.endswith('.npz') for name in files) == len(NAMES)
    assert all(set(name.rpartition('.')[0]) <= set('abcdefghijklmnopqrstuvwxyz0123456789-') for name in files)
    assert not Path('canary').exists()
    one, two = (annotations_of(of_files(folders, *files), 2) for files in (['/a\n/b'], ['/a', '/b']))
    assert one.identity() != two.identity()


@pytest.mark.parametrize(
    'entities', [LAUGHS, '<!ENTITY i SYSTEM "file:///etc/passwd">'], ids=['laughs', 'another file']
)
def test_annotations_define_nothing(tmp_path, entities):
    (tmp_path / 'ImageSets' / 'Action').mkdir(parents=True)
    (tmp_path / 'Annotations').mkdir()
    for action in ACTIONS:
        (tmp_path / 'ImageSets' / 'Action' / f'{action}_trainval.txt').write_text('a 1 1\n')
    text = (
        f'<!DOCTYPE annotation [<!ENTITY a "ha">{entities}]><annotation><object><name>&i;</name></object></annotation>'
    )
    (tmp_path / 'Annotations' / 'a.xml').write_text(text)
    with pytest.raises(ValueError, match=r'a\.xml should be XML. Found: a document type'):
        [VOCActions(tmp_path, split=split) for split in ('train', 'val', 'test')]


def test_results_of_a_comparison_are_data(tmp_path):
    """Files of a stopped training are never run."""
    from comparison.results import Trained
    from comparison.watch import LAST, PICTURES

    class Runs:
        def __reduce__(self):
            return open, (str(tmp_path / 'canary'), 'w')

    trained = Trained(json.loads('{"name": "a"}'), tmp_path)
    for name, read in ((LAST, lambda: trained.last), (PICTURES, lambda: trained.pictures)):
        np.savez(tmp_path / name, **{'1': np.array([Runs()], object)})
        (tmp_path / 'canary').unlink(missing_ok=True)
        with pytest.raises(ValueError, match='allow_pickle'):
            read()
        (tmp_path / name).write_bytes(pickle.dumps(Runs()))
        with pytest.raises(ValueError, match='allow_pickle'):
            read()
    assert not (tmp_path / 'canary').exists()
