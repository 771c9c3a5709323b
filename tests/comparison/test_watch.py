from types import SimpleNamespace

import numpy as np
import pytest
import torch
from comparison.watch import Watch, evenly_spaced, image_areas, stacked, thumbnail, validates_now
from hard_use.hindrances import full_disk
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from torch import nn
from torch.utils.data import DataLoader


class OneImage:
    metainfo = dict(classes=('a', 'b'))

    def __len__(self):
        return 1


def test_areas_of_an_image_by_definition():
    generator = torch.Generator().manual_seed(0)
    decided, label = (torch.randint(0, 4, (30, 20), generator=generator) for _ in range(2))
    label[:3] = 255
    areas = image_areas(decided, label, 4)
    valid = label != 255
    for c in range(4):
        true, found = (label == c) & valid, (decided == c) & valid
        assert areas[:, c].tolist() == [(true & found).sum(), (true | found).sum(), true.sum()]


def test_an_image_that_is_ignored_has_no_areas():
    assert image_areas(torch.zeros(3, 3).long(), torch.full((3, 3), 255), 2).sum() == 0


def test_images_are_spread_over_the_set():
    assert evenly_spaced(100, 4) == {0, 25, 50, 75}
    assert evenly_spaced(3, 4) == {0, 1, 2}
    assert len(evenly_spaced(500, 120)) == 120


def test_thumbnails_are_small_in_rgb_and_keep_their_labels():
    image = torch.zeros(3, 300, 640, dtype=torch.uint8)
    image[0] = 200  # blue, as mmcv loads it
    label = torch.full((300, 640), 255)
    small = thumbnail(image, label, torch.full((300, 640), 7))
    assert small.shape == (75, 160, 5)
    assert small[0, 0].tolist() == [0, 0, 200, 255, 7]


def test_pictures_of_different_sizes_are_filled_up():
    together = stacked([np.zeros((2, 3), np.uint8), np.ones((4, 1), np.uint8)], 255)
    assert together.shape == (2, 4, 3)
    assert together[0].tolist() == [[0, 0, 0], [0, 0, 0], [255] * 3, [255] * 3]
    assert together[1].tolist() == [[1, 255, 255]] * 4


def test_other_predictions_than_maps_are_refused_by_name(tmp_path):
    from mmengine.structures import BaseDataElement

    watch = Watch(tmp_path, print)
    runner = SimpleNamespace(val_dataloader=SimpleNamespace(dataset=OneImage()))
    watch.before_val(runner)
    boxes = BaseDataElement(pred_instances=BaseDataElement())
    with pytest.raises(TypeError, match=r"semantic segmentation.*\['pred_instances'\]"):
        watch.after_val_iter(runner, 0, {'inputs': [torch.zeros(3, 4, 4)]}, [boxes])


@pytest.mark.parametrize('most', [0, 100, 500])
def test_a_training_resumes_after_a_full_disk(tmp_path, most):
    watch = Watch(tmp_path, print)
    dataset = OneImage()
    dataset.metainfo = dict(classes=('a', 'b'), palette=[[0] * 3] * 2)
    runner = SimpleNamespace(iter=5, val_dataloader=SimpleNamespace(dataset=dataset))
    watch.before_val(runner)
    watch.areas = [torch.ones(3, 2)]
    watch.seen = {0: np.random.default_rng(0).integers(0, 255, (20, 20, 5), np.uint8)}
    watch.after_val_epoch(runner)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    runner.iter = 10
    with full_disk(most), pytest.raises(OSError, match='Could not write'):
        watch.after_val_epoch(runner)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert left.keys() == before.keys()
    assert left['curve.json'] == before['curve.json']
    again = Watch(tmp_path, print)
    assert again.last_iteration == 5
    assert again.pictures.keys() == {'5'}


def test_a_resumed_training_drops_points_after_its_checkpoint(tmp_path):
    (tmp_path / 'curve.json').write_text('[{"iteration": 5}, {"iteration": 10}, {"iteration": 15}]')
    watch = Watch(tmp_path, print)
    assert watch.last_iteration == 15
    watch.before_train(SimpleNamespace(iter=10))
    assert watch.last_iteration == 10


def loop_at(done, length, interval):
    return SimpleNamespace(iter=done, max_iters=length, val_interval=interval, val_begin=1)


def test_a_training_that_was_stopped_before_a_validation_begins_with_it(tmp_path):
    watch, ran = Watch(tmp_path, print), []
    watch.before_train(SimpleNamespace(iter=0))
    loop = SimpleNamespace(run=lambda: ran.append(5))
    watch.before_train(SimpleNamespace(iter=5, val_loop=loop, train_loop=loop_at(5, 20, 5)))
    assert ran == [5]


def test_a_training_that_was_stopped_between_two_validations_does_not_begin_with_one(tmp_path):
    Watch(tmp_path, print).before_train(SimpleNamespace(iter=4, train_loop=loop_at(4, 20, 5)))


@pytest.mark.parametrize(('interval', 'begin'), [(3, 1), (5, 1), (5, 11), (20, 1)])
def test_it_knows_when_mmengine_validates(interval, begin):
    """By the validations of a whole training, of iterations and of epochs."""
    for loop_type, length in ((IterBasedTrainLoop, dict(max_iters=20)), (EpochBasedTrainLoop, dict(max_epochs=20))):
        validated, expected, done = [], [], []
        run = SimpleNamespace(run=lambda v=validated, d=done: v.append(len(d)))
        runner = SimpleNamespace(model=nn.Identity(), val_loop=run, call_hook=lambda *_: None)
        loop = loop_type(runner, DataLoader(range(20)), **length, val_interval=interval, val_begin=begin)

        def step(*_, loop=loop, done=done, expected=expected):
            done.append(1)
            loop._iter = loop._epoch = len(done)
            expected.extend([len(done)] * validates_now(loop))

        loop.run_iter = loop.run_epoch = step
        loop.run()
        assert validated == expected
        assert validated[-1] == 20
