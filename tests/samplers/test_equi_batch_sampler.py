from collections import Counter
from itertools import islice

import pytest
from numbered import Numbered

from mmseg_nondecomp import EquiBatchSampler

DATA = Numbered([0], [0, 1], [0], [], [0, 2], [1], [0])


def test_each_class_is_drawn_once_in_any_window():
    classes = [index.cls for index in islice(EquiBatchSampler(DATA, seed=0), 300)]
    for start in range(298):
        assert sorted(classes[start : start + 3]) == [0, 1, 2]


def test_each_class_goes_through_its_images():
    stream = list(islice(EquiBatchSampler(DATA, seed=0), 3 * 5 * 20))
    seen = Counter((index.cls, int(index)) for index in stream)
    assert {image: n for (c, image), n in seen.items() if c == 0} == dict.fromkeys([0, 1, 2, 4, 6], 20)
    assert {image: n for (c, image), n in seen.items() if c == 1} == dict.fromkeys([1, 5], 50)
    assert {image: n for (c, image), n in seen.items() if c == 2} == {4: 100}


def test_no_image_comes_again_before_the_others_of_its_class():
    images = [int(index) for index in islice(EquiBatchSampler(DATA, seed=0), 300) if index.cls == 0]
    for start in range(0, 100, 5):
        assert sorted(images[start : start + 5]) == [0, 1, 2, 4, 6]


def test_order_of_the_classes_that_are_in_images_is_shuffled():
    assert sorted(EquiBatchSampler(Numbered([0], [2]), seed=0).order) == [0, 2]
    data = Numbered(list(range(3)))
    assert len({tuple(EquiBatchSampler(data, seed=seed).order) for seed in range(50)}) == 6


@pytest.mark.parametrize('n', [1, 2])
def test_one_class(n):
    data = Numbered(*[[1]] * n)
    drawn = [(int(i), i.cls) for i in islice(EquiBatchSampler(data, seed=0), 2 * n)]
    assert sorted(drawn) == [(i, 1) for i in range(n) for _ in range(2)]
