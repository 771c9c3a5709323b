"""tools/class_stats.py: its counts, the numbers that its suggestions follow from, and the lines that it gives."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import class_advice as rules
import class_report
import class_stats
import cv2
import numpy as np
import pytest

pytest.importorskip('mmseg')

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATA_SAMPLERS, DATASETS, HOOKS, MODELS, init_default_scope

from mmseg_nondecomp.class_index import index_classes
from mmseg_nondecomp.datasets import CLASSES

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs' / 'long_tail_shapes' / 'tiny-unet_ce_lts.py'
NUM_IMAGES = 12


@pytest.fixture(scope='module')
def shapes(scenes, tmp_path_factory):
    """The output of the tool for a few scenes, with a cache for the samplers."""
    folder = tmp_path_factory.mktemp('class_stats')
    options = [f'train_dataloader.dataset.data_root={scenes}', f'train_dataloader.dataset.num_images={NUM_IMAGES}']
    tool = [sys.executable, ROOT / 'tools' / 'class_stats.py', CONFIG, '--out', folder]
    command = [*tool, '--cache-dir', folder / 'cache', '--cfg-options', *options]
    environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder / 'printed.txt').write_text(done.stdout)
    return folder


@pytest.fixture(scope='module')
def numbers(shapes):
    return json.loads((shapes / 'class_stats.json').read_text())


@pytest.fixture(scope='module')
def label_maps(shapes, scenes):
    [folder] = scenes.glob(f'train-{NUM_IMAGES}x*')
    return [cv2.imread(str(file), cv2.IMREAD_UNCHANGED) for file in sorted((folder / 'ann_dir').glob('*.png'))]


@pytest.fixture
def main(tmp_path, monkeypatch):
    """Runs the tool in the process of the tests and gives its numbers."""

    def run_here(*arguments):
        out = tmp_path / 'out'
        given = [*map(str, arguments), '--out', str(out), '--cache-dir', str(tmp_path / 'cache')]
        monkeypatch.setattr(sys, 'argv', ['class_stats.py', *given])
        class_stats.main()
        [numbers] = out.glob('*.json')
        return json.loads(numbers.read_text())

    return run_here


@pytest.fixture
def config_of(tmp_path):
    """Writes label maps to files, and a config whose training data they are."""

    def write(maps, lines='', pipeline=()):
        for part in ('images', 'labels'):
            (tmp_path / part).mkdir()
        for i, labels in enumerate(maps):
            cv2.imwrite(str(tmp_path / 'images' / f'{i:03d}.png'), labels)
            cv2.imwrite(str(tmp_path / 'labels' / f'{i:03d}.png'), labels)
        data = dict(
            type='BaseSegDataset',
            metainfo=dict(classes=tuple('abcdefgh'[: max(labels[labels < 255].max() for labels in maps) + 1])),
            data_root=str(tmp_path),
            data_prefix=dict(img_path='images', seg_map_path='labels'),
            img_suffix='.png',
            seg_map_suffix='.png',
            pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), *pipeline],
        )
        path = tmp_path / 'base.py'
        sampler = dict(type='InfiniteSampler')
        loader = dict(batch_size=2, num_workers=0, sampler=sampler, dataset=data)
        path.write_text(f"default_scope = 'mmseg'\ntrain_dataloader = {loader!r}\n{lines}\n")
        return path

    return write


def advice(numbers, name):
    [item] = [item for item in numbers['suggestion']['advice'] if name in item['title']]
    return item


def config_with(numbers, item, base):
    """Write a config with the suggested lines beside the given one."""
    path = base.with_name('mine.py')
    path.write_text(f'{numbers["suggestion"]["head"]}\n{item["lines"]}\n')
    cfg = Config.fromfile(path)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    return cfg


def test_the_numbers_are_those_of_the_label_files(numbers, label_maps):
    pixels = np.array([[(labels == c).sum() for c in range(len(CLASSES))] for labels in label_maps])
    holds = pixels > 0
    assert numbers['unit'] == 'pixels'
    assert numbers['n_images'] == len(label_maps) == NUM_IMAGES
    assert numbers['n_items'] == sum(labels.size for labels in label_maps)
    assert numbers['labelled_share'] == pytest.approx(np.mean([labels != 255 for labels in label_maps]))
    assert numbers['classes_per_image'] == pytest.approx(holds.sum(1).mean())
    assert numbers['absent'] == [name for name, present in zip(CLASSES, holds.any(0), strict=True) if not present]
    present = holds.any(0)
    totals, images = pixels.sum(0)[present], holds.sum(0)[present]
    assert numbers['imbalance']['items'] == pytest.approx(totals.max() / totals.min())
    assert numbers['imbalance']['images'] == pytest.approx(images.max() / images.min())
    assert len(numbers['classes']) == len(CLASSES)
    for row in numbers['classes']:
        c = row['number']
        assert row['name'] == CLASSES[c]
        assert (row['images'], row['items']) == (holds[:, c].sum(), pixels[:, c].sum())
        assert row['image_share'] == pytest.approx(holds[:, c].mean())
        assert row['item_share'] == pytest.approx(pixels[:, c].sum() / pixels.sum())
        if row['images']:
            assert row['items_per_image'] == pytest.approx(pixels[holds[:, c], c].mean())
    items = [row['items'] for row in numbers['classes']]
    assert items == sorted(items, reverse=True)


def test_leaves_a_table_and_a_picture_and_prints_the_table(shapes, numbers):
    table = (shapes / 'class_stats.md').read_text()
    assert table in (shapes / 'printed.txt').read_text()
    places = [table.index(f'| {row["number"]} | {row["name"]} |') for row in numbers['classes']]
    assert places == sorted(places)
    assert f'- images: {NUM_IMAGES}, with {numbers["classes_per_image"]:.1f} classes' in table
    for item in numbers['suggestion']['advice']:
        assert item['title'] in table
        assert item['why'] in table
        assert item['lines'] in table
    assert (shapes / 'class_stats.png').read_bytes().startswith(b'\x89PNG')


def test_the_sampler_lines_draw_crops_that_hold_the_class(numbers, shapes, scenes, tmp_path):
    item = advice(numbers, 'Sampler')
    assert item['title'] == 'Sampler: EquiBatchSampler'
    base = tmp_path / CONFIG.name
    base.write_text(f'_base_ = [{str(CONFIG)!r}]\n')
    loader = config_with(numbers, item, base).train_dataloader
    assert [step['type'] for step in loader.dataset.pipeline].count('RandomCropOnClass') == 1
    data = DATASETS.build({**loader.dataset, 'data_root': str(scenes), 'num_images': NUM_IMAGES})
    sampler = DATA_SAMPLERS.build({**loader.sampler, 'cache_dir': shapes / 'cache'}, default_args=dict(dataset=data))
    for index, _ in zip(sampler, range(32), strict=False):
        labels = data[index]['data_samples'].gt_sem_seg.data
        assert labels.shape[-2:] == (64, 64)
        assert (labels == index.cls).any()


def test_the_loss_lines_build(numbers, tmp_path):
    base = tmp_path / CONFIG.name
    base.write_text(f'_base_ = [{str(CONFIG)!r}]\n')
    for name in ('MetricLoss', 'LossMaxPooling'):
        head = MODELS.build(config_with(numbers, advice(numbers, name), base).model).decode_head
        assert [type(loss).__name__ for loss in head.loss_decode] == [name]
    assert head.loss_decode[0].p == 1.3


def test_the_shares_of_equibatch_are_those_of_its_turns(numbers, label_maps):
    """A turn of each class, an image of it at random: the mean over turns of how likely that holds the rarest."""
    holds = np.array([[(labels == c).any() for c in range(len(CLASSES))] for labels in label_maps])
    holds = holds[:, holds.any(0)]
    found = advice(numbers, 'Sampler')['numbers']
    rarest = [name for name in CLASSES if name not in numbers['absent']].index(found['rarest'])
    turns = [holds[holds[:, c], rarest].mean() for c in range(holds.shape[1])]
    assert found['in_image'] == pytest.approx(holds[:, rarest].mean())
    assert found['in_image_equi'] == pytest.approx(np.mean(turns))
    assert found['repeats'] == pytest.approx(np.mean(turns) / holds[:, rarest].mean())


@pytest.fixture
def index(shapes, scenes):
    init_default_scope('mmseg')
    data = DATASETS.build(dict(type='LongTailShapes', data_root=str(scenes), num_images=NUM_IMAGES))
    return index_classes(data, shapes / 'cache')


def crop_of(size):
    return dict(pipeline=[dict(type='RandomCrop', crop_size=size)])


@pytest.mark.parametrize('batch_size', [4, 8])
def test_batches_of_crops_show_about_as_many_classes_as_estimated(index, label_maps, batch_size):
    random = np.random.default_rng(0)

    def classes_of_crop():
        top, left = random.integers(0, 65, 2)
        return np.unique(label_maps[random.integers(NUM_IMAGES)][top : top + 64, left : left + 64])

    batches = [np.concatenate([classes_of_crop() for _ in range(batch_size)]) for _ in range(400)]
    found = np.mean([len(set(batch.tolist()) - {255}) for batch in batches])
    seen = rules.sightings(index, rules.find_crop(crop_of((64, 64))))
    assert rules.expected_classes(seen.in_crop, batch_size) == pytest.approx(found, rel=0.05)


def test_a_crop_as_large_as_the_image_shows_its_classes(index):
    whole = rules.sightings(index, rules.find_crop(crop_of(128)))
    np.testing.assert_array_equal(whole.in_crop, whole.in_image)
    np.testing.assert_allclose(whole.in_crop_equi, whole.in_image_equi)
    small = rules.sightings(index, rules.find_crop(crop_of(16)))
    assert (small.in_crop <= whole.in_crop).all()
    assert (small.in_crop_equi >= 1 / len(small.in_crop) - 1e-12).all(), 'a class has its turn, and is in the crop then'


def test_the_expected_classes_are_those_of_the_batch_size(main, config_of):
    shown = np.array([1, 0.5, 0.05])
    assert rules.expected_classes(shown, 4) == pytest.approx(sum(1 - (1 - share) ** 4 for share in shown))
    config = config_of(tailed_maps())
    small, large = (advice(main(config, *given), 'MetricLoss')['numbers'] for given in ((), ('--batch-size', 64)))
    assert small['batch_size'] == 2
    assert small['expected_classes'] < large['expected_classes']


def test_balanced_classes_get_no_suggestion(main, config_of, capsys):
    labels = np.zeros((32, 32), np.uint8)
    labels[:, 16:] = 1
    crop = dict(type='RandomCrop', crop_size=(16, 16))
    found = main(config_of([labels] * 8, pipeline=[crop]))['suggestion']['advice']
    assert [item['title'] for item in found] == ['Sampler: no change', 'Loss: cross-entropy is sufficient']
    assert not any(item['lines'] for item in found)
    printed = capsys.readouterr().out
    assert '1.0 times' in printed
    assert '```' not in printed


def tailed_maps(n_images=40, n_rare=1):
    """Return label maps with a small square of class 1 in the first images and of class 2 in all."""
    maps = np.zeros((n_images, 32, 32), np.uint8)
    maps[:n_rare, :3, :3] = 1
    maps[:, -2:, -2:] = 2
    return maps


def test_images_that_would_come_too_often_are_left_to_the_iou(main, config_of):
    base = config_of(tailed_maps(), "custom_hooks = [dict(type='EMAHook', momentum=0.5)]")
    numbers = main(base)
    item = advice(numbers, 'Sampler')
    assert item['title'] == 'Sampler: IoUAdaptiveSampler'
    # Turns of three classes: a and c are in all images, b is in one of 40.
    assert item['numbers']['in_image_equi'] == pytest.approx((1 / 40 + 1 + 1 / 40) / 3)
    assert 'Samplers have no effect on `c`, in every image' in item['why']
    cfg = config_with(numbers, item, base)
    sampler = dict(cfg.train_dataloader.sampler, cache_dir=base.parent / 'cache')
    data = DATASETS.build(cfg.train_dataloader.dataset)
    assert type(DATA_SAMPLERS.build(sampler, default_args=dict(dataset=data))).__name__ == 'IoUAdaptiveSampler'
    assert [type(HOOKS.build(hook)).__name__ for hook in cfg.custom_hooks] == ['EMAHook', 'TrainIoUHook']


def test_a_pass_over_the_data_has_an_end_where_the_loop_counts_epochs(main, config_of):
    lines = "train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)\ntrain_dataloader.pop('sampler')"
    lines += "\ntrain_dataloader['dataset'] = dict(type='RepeatDataset', times=2, dataset=train_dataloader['dataset'])"
    base = config_of(tailed_maps(n_rare=8), lines, [dict(type='RandomCrop', crop_size=16, cat_max_ratio=0.75)])
    numbers = main(base)
    loader = config_with(numbers, advice(numbers, 'EquiBatchSampler'), base).train_dataloader
    assert loader.sampler == dict(type='EquiBatchSampler', infinite=False), 'and nothing that deletes nothing'
    crop = loader.dataset.dataset.pipeline[-1]
    assert crop == dict(type='RandomCropOnClass', crop_size=16, cat_max_ratio=0.75)
    assert numbers['n_images'] == 40, 'a data set that is repeated as a whole has the same shares'


def test_parts_that_are_joined_are_looked_into(main, config_of):
    lines = "part = train_dataloader['dataset']"
    lines += "\ntrain_dataloader['dataset'] = dict(type='ConcatDataset', datasets=[part, part])"
    base = config_of(tailed_maps(n_rare=8), lines, [dict(type='RandomCrop', crop_size=16)])
    numbers = main(base)
    suggested = advice(numbers, 'EquiBatchSampler')['lines']
    assert "dict(type='RandomCropOnClass', crop_size=16)" in suggested
    assert 'in each data set that is joined' in suggested
    assert numbers['n_images'] == 80
    assert (
        config_with(numbers, advice(numbers, 'EquiBatchSampler'), base).train_dataloader.dataset.type == 'ConcatDataset'
    )


def test_other_splits_get_numbers_alone_in_files_of_their_own(main, config_of, capsys, tmp_path):
    numbers = main(config_of(tailed_maps(), 'val_dataloader = train_dataloader'), '--split', 'val')
    assert numbers['split'] == 'val'
    assert sorted(file.name for file in (tmp_path / 'out').iterdir()) == [
        f'class_stats_val.{suffix}' for suffix in ('json', 'md', 'png')
    ]
    assert numbers['suggestion']['advice'] == []
    assert 'come with `--split train`' in capsys.readouterr().out


def test_labels_that_are_no_class_are_reported_and_not_counted_as_ignored(main, config_of, capsys):
    maps = np.zeros((4, 10, 10), np.uint8)
    maps[:, 5:], maps[0, 0], maps[1:3, 0, 0], maps[3, 9, :8] = 1, 255, 3, 4
    config = config_of(maps, "train_dataloader['dataset']['metainfo'] = dict(classes=('a', 'b', 'c'))")
    for _ in range(2):  # counted, and from the cache
        with pytest.warns(UserWarning, match=r"Label 3 of '.*001\.png' is none of the 3 classes.* labels: 10, in 3"):
            numbers = main(config)
        assert (numbers['invalid_share'], numbers['ignored_share']) == (10 / 400, 10 / 400)
        assert numbers['invalid_labels'] == [3, 4]
        assert numbers['suggestion']['advice'] == []
        printed = capsys.readouterr().out
        assert '**Check the labels.** Label 3 is none of the 3 classes and is not ignored.' in printed
        assert '95.0 % labelled, 2.50 % ignored, 2.50 % with invalid labels (such as 3, 4)' in printed
        assert 'Suggestions come when the labels are right.' in printed


def masks(value, border=0):
    maps = np.zeros((4, 10, 10), np.uint8)
    maps[:, 6:] = value
    maps[:, :border] = 255
    return maps


TWO_CLASSES = "train_dataloader['dataset']['metainfo'] = dict(classes=('background', 'bar'))"


def test_masks_of_0_and_255_are_reported(main, config_of, capsys):
    with pytest.warns(UserWarning, match=r"No pixel is of class 'bar', and 160 pixels are ignored: .* 0 and 255 only"):
        numbers = main(config_of(masks(255), TWO_CLASSES))
    [text] = numbers['mistakes']
    assert 'saved with 255 for the object?' in text
    assert numbers['suggestion']['advice'] == []
    assert f'**Check the labels.** {text}' in capsys.readouterr().out


@pytest.mark.parametrize('maps', [masks(1), masks(1, border=2), masks(0)], ids=['0 and 1', 'and ignored', 'only 0'])
def test_right_masks_are_not_reported(main, config_of, capsys, maps):
    numbers = main(config_of(maps, TWO_CLASSES))
    assert numbers['mistakes'] == []
    assert numbers['invalid_share'] == 0
    assert numbers['ignored_share'] == pytest.approx((maps == 255).mean())
    printed = capsys.readouterr().out
    assert 'Check the labels' not in printed
    assert 'invalid' not in printed


def test_an_index_of_an_earlier_version_does_not_tell_ignored_and_invalid_labels_apart(index):
    of_before = dataclasses.replace(index, foreign=None)
    stats = class_report.statistics(of_before)
    assert (stats['ignored_share'], stats['invalid_share'], stats['mistakes']) == (None, None, [])
    assert '% ignored or with invalid labels;' in class_report.markdown(stats)


class Objects(BaseDataset):
    """Image i of 24 has i objects of class 0; the last one has three of class 2, too."""

    def load_data_list(self):
        return [dict(labels=[0] * i + [2] * 3 * (i == 23)) for i in range(24)]

    def get_cat_ids(self, idx):
        return self.get_data_info(idx)['labels']


class Nothing(BaseDataset):
    METAINFO = dict(classes=('a', 'b'))

    def load_data_list(self):
        return [dict()] * 3

    def get_cat_ids(self, idx):
        return []


class Unlabelled(BaseDataset):
    def load_data_list(self):
        return [dict()] * 3


def test_objects_are_counted_where_there_are_no_label_maps(main, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(DATASETS.module_dict, 'ObjectsOfTest', Objects)
    path = tmp_path / 'base.py'
    data = dict(type='ObjectsOfTest', metainfo=dict(classes=('a', 'b', 'c')))
    path.write_text(f'train_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler"), dataset={data})')
    numbers = main(path)
    assert (numbers['unit'], numbers['labelled_share'], numbers['absent']) == ('objects', None, ['b'])
    assert [(row['name'], row['images'], row['items']) for row in numbers['classes']] == [
        ('a', 23, 276),
        ('c', 1, 3),
        ('b', 0, 0),
    ]
    assert [item['title'] for item in numbers['suggestion']['advice']] == [
        'Sampler: EquiBatchSampler',
        'Loss: no suggestion',
    ]
    assert 'classes in no image: `b`' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('lines', 'arguments', 'message'),
    [
        ('', ['--split', 'val'], 'has no `val_dataloader` with a `dataset`'),
        ("train_dataloader['dataset']['type'] = 'NoDataset'", [], 'NoDataset is not in the mmseg::dataset registry'),
        ("train_dataloader['dataset']['metainfo'] = dict()", [], 'should name its classes'),
        ("train_dataloader['dataset']['data_prefix'] = dict(img_path='images')", [], 'should have label maps'),
        ("train_dataloader['dataset'] = dict(type='Unlabelled')", [], 'should be a segmentation data set'),
        ("train_dataloader['dataset'] = dict(type='Nothing')", [], 'No image of `train_dataloader` holds any of its 2'),
        ('', ['--batch-size', '0'], '--batch-size: should be positive, found 0'),
        ('this is no Python', [], 'invalid syntax'),
    ],
)
def test_mistakes_are_reported_in_one_line(main, config_of, capsys, tmp_path, monkeypatch, lines, arguments, message):
    monkeypatch.setitem(DATASETS.module_dict, 'Unlabelled', Unlabelled)
    monkeypatch.setitem(DATASETS.module_dict, 'Nothing', Nothing)
    config = config_of(tailed_maps(4), lines)
    with pytest.raises(SystemExit) as stopped:
        main(config, *arguments)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith('class_stats.py: error: ')
    assert message in last
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('num_workers', [0, 1])
def test_a_damaged_label_file_is_named_whichever_process_reads_it(main, config_of, capsys, num_workers):
    config = config_of(tailed_maps(4))
    file = config.parent / 'labels' / '002.png'
    file.write_bytes(b'nothing')
    with pytest.raises(SystemExit):
        main(config, '--num-workers', num_workers)
    [*_, last] = capsys.readouterr().err.strip().splitlines()
    assert last.startswith(f"class_stats.py: error: Could not read the label file '{file}'")


def test_a_missing_config_is_reported(main, tmp_path, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(tmp_path / 'nothing.py')
    assert 'nothing.py' in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / 'out').exists()
