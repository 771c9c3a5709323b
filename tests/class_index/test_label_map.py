import numpy as np
import pytest

from mmseg_nondecomp.class_index._annotations import classes_of_label_map

N_CLASSES, IGNORED = 5, 255


def noise(dtype, shape=(17, 23), values=(0, 1, 2, 4, 255)):
    return np.random.default_rng(0).choice(values, shape).astype(dtype)


def regions():
    labels = np.full((40, 30), 3, np.uint8)
    labels[5:20, 4:25] = 0
    labels[10:12] = IGNORED
    labels[33, 7] = 1
    return labels


CASES = {
    'noise': noise(np.uint8),
    'noise of signed integers': noise(np.int64, values=(-1, 0, 1, 2, 3, 4, 255)),
    'regions': regions(),
    'one class': np.full((6, 4), 2, np.uint8),
    'one pixel': np.array([[4]], np.uint8),
    'one row': noise(np.uint8, (1, 50)),
    'one column': noise(np.uint8, (50, 1)),
    'not contiguous': np.asfortranarray(regions())[::2, ::-1],
    'all ignored': np.full((6, 4), IGNORED, np.uint8),
    'truth values': noise(bool, values=(0, 1)),
}


@pytest.mark.parametrize('labels', CASES.values(), ids=CASES)
class TestAgainstLabels:
    def test_counts(self, labels):
        found = classes_of_label_map(labels, N_CLASSES, IGNORED, 3)
        classes = [c for c in range(N_CLASSES) if (labels == c).any()]
        assert found.classes.tolist() == classes
        assert found.counts.tolist() == [(labels == c).sum() for c in classes]
        assert found.n_items == labels.size

    def test_places_are_pixels_of_the_class(self, labels):
        found = classes_of_label_map(labels, N_CLASSES, IGNORED, 7)
        assert found.places.shape == (len(found.classes), 7, 2)
        y, x = np.moveaxis(found.places * labels.shape, -1, 0)
        assert (labels[y.astype(int), x.astype(int)] == found.classes[:, None]).all()
        assert np.allclose([y % 1, x % 1], 0.5)

    def test_places_are_spread_over_the_class(self, labels):
        found = classes_of_label_map(labels, N_CLASSES, IGNORED, 4)
        for c, count, places in zip(found.classes, found.counts, found.places, strict=True):
            y, x = (places * labels.shape).astype(int).T
            order = np.flatnonzero(labels.ravel() == c)
            ranks = np.searchsorted(order, y * labels.shape[1] + x)
            assert np.abs(ranks - count * np.array([1, 3, 5, 7]) / 8).max() <= 1


def test_labels_that_are_no_class_ignored_classes_and_empty_maps():
    labels = np.array([[0, 1, 7, 255]], np.uint8)
    found = classes_of_label_map(labels, N_CLASSES, IGNORED, 1)
    assert (found.classes.tolist(), found.foreign) == ([0, 1], (7, 1))
    assert classes_of_label_map(labels[:, [0, 1, 3]], N_CLASSES, IGNORED, 1).foreign == (0, 0)
    several = np.array([[0, 9, 9], [255, 7, -1]])
    assert classes_of_label_map(several, N_CLASSES, IGNORED, 1).foreign == (9, 4), 'the first, and all their pixels'
    assert classes_of_label_map(np.array([[0, 1, 1]]), 2, 0, 1).classes.tolist() == [1]
    found = classes_of_label_map(np.zeros((0, 5), np.uint8), N_CLASSES, IGNORED, 2)
    assert (found.classes.tolist(), found.counts.tolist(), found.n_items) == ([], [], 0)


@pytest.mark.parametrize('labels', [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4)), np.zeros(4, np.uint8)])
def test_other_arrays_are_errors(labels):
    with pytest.raises(ValueError, match='label map should hold integers'):
        classes_of_label_map(labels, N_CLASSES, IGNORED, 1)
