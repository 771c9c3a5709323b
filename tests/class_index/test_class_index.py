import dataclasses
import io
import zipfile

import numpy as np
import pytest

from mmseg_nondecomp.class_index import ClassIndex
from mmseg_nondecomp.class_index._annotations import classes_of_label_map
from mmseg_nondecomp.class_index._index import ImageClasses

MAPS = [
    np.array([[0, 0, 2], [255, 2, 2]], np.uint8),
    np.full((2, 3), 255, np.uint8),
    np.array([[2, 3, 3], [3, 3, 3]], np.uint8),
]
NAMES = ('a', 'b', 'c', 'd')


def index_of(maps, n_places=2):
    return ClassIndex.from_images([classes_of_label_map(m, 4, 255, n_places) for m in maps], NAMES, n_places)


def written(index):
    stream = io.BytesIO()
    index.save(stream)
    return stream.getvalue()


def arrays_of(index):
    with np.load(io.BytesIO(written(index))) as file:
        return dict(file)


def load(save=np.savez, **arrays):
    stream = io.BytesIO()
    save(stream, **arrays)
    return ClassIndex.load(io.BytesIO(stream.getvalue()))


def same(one, other):
    names = ('starts', 'classes', 'counts', 'n_items', 'places', 'dataset_indices')
    return one.class_names == other.class_names and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def test_counts_images_and_places():
    index = index_of(MAPS)
    assert len(index) == 3
    assert index.n_classes == 4
    assert index.items_per_class.tolist() == [2, 0, 4, 5]
    assert index.images_per_class.tolist() == [1, 0, 2, 1]
    assert index.present_classes.tolist() == [0, 2, 3]
    assert index.n_items.tolist() == [6, 6, 6]
    assert [index.images_of(c).tolist() for c in range(4)] == [[0], [], [0, 2], [2]]
    assert [[index.image_of(e) for e in index.entries_of(c)] for c in range(4)] == [[0], [], [0, 2], [2]]


def test_places_are_exact_up_to_the_largest_images():
    for size in (1, 2, 3, 641, 4096, 32767):
        labels = np.zeros((1, size), np.uint8)
        labels[0, -1] = 3
        index = index_of([labels], n_places=1)
        _, x = index.place_of(index.entries_of(3)[0], 0)
        assert int(x * size) == size - 1


def test_places_in_turn():
    index = index_of(MAPS)
    (entry,) = index.entries_of(0)
    places = [index.place_of(entry, number) for number in range(4)]
    assert places[0] != places[1]
    assert places[:2] == places[2:]
    image = ImageClasses(np.array([1]), np.array([4]), 4)
    assert ClassIndex.from_images([image], NAMES, 0).place_of(0, 3) is None


def test_nothing_in_any_image():
    index = index_of([MAPS[1]])
    assert index.present_classes.tolist() == []
    assert same(ClassIndex.load(io.BytesIO(written(index))), index)


def test_more_classes_than_fit():
    with pytest.raises(ValueError, match=r'65536 classes\. Found 70000'):
        ClassIndex.from_images([], [str(c) for c in range(70_000)], 0)


def test_one_of_several():
    first, second = index_of(MAPS[:2]), index_of(MAPS[2:])
    index = ClassIndex.joined([(first, 1, 0), (second, 2, 2)])
    assert index.images_of(2).tolist() == [0, 2, 2]
    assert index.items_per_class.tolist() == [2, 0, 5, 10]
    assert index.foreign.tolist() == [[0, 0]] * 4
    of_before = dataclasses.replace(second, foreign=None)
    assert ClassIndex.joined([(first, 1, 0), (of_before, 2, 2)]).foreign is None, 'not known of all'
    with pytest.raises(ValueError, match='same classes'):
        ClassIndex.joined([(first, 1, 0), (ClassIndex.from_images([], ('a',), 2), 1, 2)])


class TestForeignLabels:
    LABELS = np.array([[0, 9, 9], [7, 255, 2]], np.uint8)

    def test_are_kept_in_the_file(self):
        index = index_of([MAPS[0], self.LABELS])
        assert index.foreign.tolist() == [[0, 0], [9, 3]]
        assert ClassIndex.load(io.BytesIO(written(index))).foreign.tolist() == index.foreign.tolist()

    def test_are_not_known_of_the_file_of_an_earlier_version(self):
        arrays = arrays_of(index_of(MAPS))
        del arrays['foreign']
        index = load(**arrays)
        assert index.foreign is None
        assert 'foreign' not in arrays_of(index)


class TestFile:
    def test_every_truncation_is_an_error(self):
        content = written(index_of(MAPS))
        for length in range(0, len(content), 7):
            with pytest.raises(Exception):  # noqa: B017, PT011  (NumPy and zipfile raise many kinds)
                ClassIndex.load(io.BytesIO(content[:length]))

    def test_every_damage_is_an_error_or_harmless(self):
        index = index_of(MAPS)
        content = written(index)
        harmless = 0
        for place in range(0, len(content), 11):
            damaged = bytearray(content)
            damaged[place] ^= 0x5A
            try:
                found = ClassIndex.load(io.BytesIO(damaged))
            except Exception:
                continue
            assert same(found, index)
            harmless += 1
        assert harmless < len(content) / 11 / 2

    @pytest.mark.parametrize(
        'change',
        [
            lambda a: a.update(starts=a['starts'][:-1]),
            lambda a: a.update(starts=a['starts'][::-1]),
            lambda a: a.update(starts=a['starts'].astype(np.float64)),
            lambda a: a.update(classes=a['classes'] + np.uint16(4)),
            lambda a: a.update(counts=a['counts'][1:]),
            lambda a: a.update(places=a['places'][..., :1]),
            lambda a: a.update(dataset_indices=a['dataset_indices'][1:]),
            lambda a: a.update(dataset_indices=-1 - a['dataset_indices']),
            lambda a: a.update(foreign=a['foreign'][1:]),
            lambda a: a.update(foreign=a['foreign'].astype(np.uint8)),
            lambda a: a.update(class_names=np.frombuffer(b'[1, 2, 3, 4]', np.uint8)),
        ],
        ids=[
            *('missing start', 'starts fall', 'starts of floats', 'no such class', 'count', 'places', 'indices'),
            *('images before the first', 'foreign labels', 'foreign labels of bytes', 'names are numbers'),
        ],
    )
    def test_arrays_that_do_not_fit_are_errors(self, change):
        arrays = arrays_of(index_of(MAPS))
        change(arrays)
        with pytest.raises(ValueError, match='class index'):
            load(**arrays)

    def test_starts_that_fall_by_more_than_a_number_holds(self):
        """2⁶³ - 1 and then -2⁶³ + 1 differ by 2, as computers subtract."""
        arrays = arrays_of(index_of(MAPS * 2))
        most, end = np.iinfo(np.int64).max, len(arrays['classes'])
        arrays['starts'] = np.array([0, most, -most, 0, end, end, end])
        assert (np.diff(arrays['starts']) >= 0).all()
        with pytest.raises(ValueError, match='should belong to its images'):
            load(**arrays)

    def test_what_is_compressed_is_not_read(self):
        """A file of 100 kB would hold 100 MB."""
        arrays = arrays_of(index_of(MAPS)) | dict(classes=np.zeros(50_000_000, np.uint16))
        with pytest.raises(ValueError, match='should not be compressed'):
            load(np.savez_compressed, **arrays)

    def test_an_array_that_would_be_read_in_part_is_an_error(self):
        """Then the rest of it would not be compared with its checksum: here all places."""
        content = written(index_of(MAPS))
        damaged = content.replace(b', 2, 2)', b', 0, 2)')
        assert damaged != content
        with pytest.raises(zipfile.BadZipFile, match=r'checksum of places\.npy'):
            ClassIndex.load(io.BytesIO(damaged))

    def test_pickles_are_not_read(self):
        with pytest.raises(ValueError, match='allow_pickle'):
            load(**arrays_of(index_of(MAPS)) | dict(counts=np.array([print, print], object)))
