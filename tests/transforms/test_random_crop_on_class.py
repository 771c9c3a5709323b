import copy

import numpy as np
import pytest
from mmcv.transforms import RandomResize, Resize, TransformBroadcaster
from mmengine.registry import TRANSFORMS
from mmseg.datasets.transforms import RandomCrop
from scipy import stats

from mmseg_nondecomp.samplers.sampled_index import SampledIndex
from mmseg_nondecomp.transforms import RandomCropOnClass

N_CLASSES = 5


def scene(cls=None, place=None, shape=(40, 60), rare=((31, 7),)):
    """An image whose pixels are numbered; class 4 is at the rare pixels only, the first rows are ignored."""
    labels = np.random.default_rng(0).integers(0, 3, shape).astype(np.uint8)
    labels[:5] = 255
    for y, x in rare:
        labels[y, x] = 4
    return dict(
        img=np.arange(labels.size).reshape(*shape, 1).repeat(3, 2),
        gt_seg_map=labels,
        gt_other_map=labels + 100,
        seg_fields=['gt_seg_map', 'gt_other_map'],
        sample_idx=7 if cls is None else SampledIndex(7, cls, place),
    )


@pytest.fixture(autouse=True)
def _seed():
    np.random.seed(0)


class TestWithoutAClass:
    @pytest.mark.parametrize('ratio', [1.0, 0.36, 0.1])
    @pytest.mark.parametrize('size', [(16, 24), (40, 60), (50, 20), (100, 100)])
    def test_is_the_stock_crop(self, size, ratio):
        ours, stock = RandomCropOnClass(size, ratio), RandomCrop(size, ratio)
        for seed in range(20):
            np.random.seed(seed)
            found = ours(scene())
            np.random.seed(seed)
            expected = stock(scene())
            assert found.keys() == expected.keys()
            assert found['img_shape'] == expected['img_shape']
            for key in ('img', 'gt_seg_map', 'gt_other_map'):
                assert np.array_equal(found[key], expected[key])

    def test_image_without_labels_or_index(self):
        for results in (dict(), dict(sample_idx=SampledIndex(7, 4, (0.5, 0.5)))):
            assert RandomCropOnClass(8)(dict(results, img=np.zeros((20, 20, 3))))['img'].shape == (8, 8, 3)


class TestOnClass:
    @pytest.mark.parametrize('size', [(16, 24), (1, 1), (40, 60), (50, 20), (100, 100)])
    @pytest.mark.parametrize('rare', [(31, 7), (39, 59), (5, 0), (39, 0)])
    def test_holds_a_class_of_one_pixel(self, size, rare):
        crop = RandomCropOnClass(size)
        for _ in range(50):
            results = crop(scene(4, rare=[rare]))
            assert (results['gt_seg_map'] == 4).sum() == 1
            assert results['gt_seg_map'].shape == (min(size[0], 40), min(size[1], 60)) == results['img_shape']

    def test_image_and_label_maps_stay_together(self):
        results = RandomCropOnClass((10, 12))(scene(4))
        whole = scene(4)
        y, x = np.divmod(results['img'][..., 0], 60)
        assert np.array_equal(results['gt_seg_map'], whole['gt_seg_map'][y, x])
        assert np.array_equal(results['gt_other_map'], whole['gt_other_map'][y, x])

    def test_all_crops_with_the_pixel_are_equally_likely(self):
        crop = RandomCropOnClass((4, 3))
        corners = [crop(scene(4, rare=[(20, 30)]))['img'][0, 0, 0] for _ in range(3000)]
        y, x = np.divmod(corners, 60)
        counts = np.histogram2d(y, x, (np.arange(17, 22), np.arange(28, 32)))[0]
        assert counts.sum() == 3000
        assert stats.chisquare(counts.ravel()).pvalue > 1e-3

    def test_all_pixels_of_the_class_are_equally_likely(self):
        pixels = [(10, 3), (10, 4), (33, 50), (39, 59)]
        crop = RandomCropOnClass(1)
        found = [crop(scene(4, rare=pixels))['img'][0, 0, 0] for _ in range(2000)]
        values, counts = np.unique(found, return_counts=True)
        assert values.tolist() == [y * 60 + x for y, x in pixels]
        assert stats.chisquare(counts).pvalue > 1e-3

    def of_one_map(self, labels):
        return dict(img=labels[..., None], gt_seg_map=labels, seg_fields=['gt_seg_map'], sample_idx=SampledIndex(0, 1))

    def test_keeps_cat_max_ratio_where_it_can(self):
        labels = np.zeros((40, 40), np.uint8)
        labels[:, 20:] = 1
        crop = RandomCropOnClass((8, 8), cat_max_ratio=0.8)
        shares = np.array([(crop(self.of_one_map(labels))['gt_seg_map'] == 1).mean() for _ in range(200)])
        assert (shares > 0).all()
        assert ((shares > 0.2) & (shares < 0.8)).sum() > 150
        labels = np.full((30, 30), 255, np.uint8)
        labels[17, 3] = 1  # The class comes before the ratio.
        assert (RandomCropOnClass(8, cat_max_ratio=0.5)(self.of_one_map(labels))['gt_seg_map'] == 1).any()


class TestSmallObjects:
    """Of a class that has ever fewer pixels, in images that are made smaller and larger."""

    def results(self, pixel, cls=4, **changes):
        return {
            **scene(cls, tuple((at + 0.5) / size for at, size in zip(pixel, (40, 60), strict=True)), rare=[pixel]),
            'img': np.zeros((40, 60, 3), np.uint8),
            'ori_shape': (40, 60),
            **changes,
        }

    @pytest.mark.parametrize('keep_ratio', [True, False])
    def test_one_pixel_is_in_every_crop_at_any_scale(self, keep_ratio):
        resize = RandomResize((60, 40), (0.3, 2.0), keep_ratio=keep_ratio)
        crop = RandomCropOnClass(6, cat_max_ratio=0.75)
        n_lost = 0
        for i in range(300):
            y, x = divmod(i * 7, 60)
            resized = resize(self.results((y, x)))
            n_lost += not (resized['gt_seg_map'] == 4).any()
            assert (crop(resized)['gt_seg_map'] == 4).any()
        assert n_lost > 30, 'the crops had something to do'

    def test_pixel_is_written_where_it_was(self):
        smaller = Resize(scale=(30, 20))
        lost = [
            (y, x) for y in range(40) for x in range(60) if not (smaller(self.results((y, x)))['gt_seg_map'] == 4).any()
        ]
        assert len(lost) == 40 * 60 * 3 // 4
        for y, x in lost[::50]:
            before = smaller(self.results((y, x)))['gt_seg_map']
            after = RandomCropOnClass((20, 30))(smaller(self.results((y, x))))['gt_seg_map']
            assert np.argwhere(after != before).tolist() == [[y // 2, x // 2]]
            assert after[y // 2, x // 2] == 4

    def test_loaded_labels_stay_as_they_are(self):
        labels = np.zeros((20, 30), np.uint8)
        results = self.results((1, 1), gt_seg_map=labels, img=labels, scale_factor=(0.5, 0.5))
        assert (RandomCropOnClass(50)(results)['gt_seg_map'] == 4).any()
        assert not labels.any()

    @pytest.mark.parametrize(
        'changes',
        [
            dict(flip=True),
            dict(scale_factor=(0.5, 0.7)),
            dict(scale_factor=(0.25, 0.25)),
            dict(ori_shape=(20, 30), scale_factor=(1.0, 1.0)),
            dict(sample_idx=SampledIndex(7, 3)),
            dict(sample_idx=7),
        ],
        ids=['flipped', 'other ratio', 'resized before', 'not resized', 'no place', 'no class'],
    )
    def test_otherwise_it_is_a_plain_crop(self, changes):
        image = np.arange(600).reshape(20, 30)
        given = dict(img=image, gt_seg_map=np.zeros_like(image), seg_fields=['gt_seg_map'], scale_factor=(0.5, 0.5))
        np.random.seed(3)
        found = RandomCropOnClass(8)(self.results((1, 1), 3, **given | changes))
        np.random.seed(3)
        assert np.array_equal(found['img'], RandomCropOnClass(8)(dict(img=image))['img'])
        assert not found['gt_seg_map'].any()


def test_shared_random_numbers_give_the_same_crop():
    both = TransformBroadcaster(
        [RandomCropOnClass(8)], mapping=dict(img=['one', 'two']), auto_remap=True, share_random_params=True
    )
    images = [scene()['img'] for _ in range(2)]
    results = both(dict(one=images[0], two=copy.deepcopy(images[1])))
    assert np.array_equal(results['one'], results['two'])


def test_is_found_by_name():
    assert isinstance(TRANSFORMS.build(dict(type='RandomCropOnClass', crop_size=[4, 6])), RandomCropOnClass)
    assert repr(RandomCropOnClass((4, 6))) == 'RandomCropOnClass(crop_size=(4, 6), cat_max_ratio=1.0)'


@pytest.mark.parametrize(
    ('arguments', 'error', 'name'),
    [
        (dict(crop_size=0), ValueError, 'crop_size'),
        (dict(crop_size=(4, -1)), ValueError, 'crop_size'),
        (dict(crop_size=(4, 5, 6)), ValueError, 'crop_size'),
        (dict(crop_size=(4.0, 5)), TypeError, 'crop_size'),
        (dict(crop_size=4, cat_max_ratio=0), ValueError, 'cat_max_ratio'),
        (dict(crop_size=4, cat_max_ratio=75), ValueError, 'cat_max_ratio'),
    ],
)
def test_mistakes(arguments, error, name):
    with pytest.raises(error, match=f'`{name}`'):
        RandomCropOnClass(**arguments)
