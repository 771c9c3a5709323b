"""The table of the recipe for mIoU, from trainings that have ended, and its measurement of gradients."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison.training import RESULT
from reproductions import land_cover, recipe, recipe_gradients
from written_training import write_training

from mmseg_nondecomp.datasets import CLASSES, draw_scene
from mmseg_nondecomp.datasets.land_cover import LEGEND, PIXELS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(land_cover, 'OUT', tmp_path / 'land-cover')
    monkeypatch.setattr(recipe, 'OUT', tmp_path / 'recipe')


def test_the_rarest_classes_have_up_to_a_share_of_the_pixels():
    assert recipe.rare_classes([90, 1, 2, 7], ['sea', 'islet', 'reef', 'ship'], 0.03) == ('islet', 'reef')
    assert recipe.rare_classes([90, 7, 2, 1], ['sea', 'ship', 'reef', 'islet'], 0.02) == ('islet',)


def test_one_class_has_97_percent_of_the_pixels_in_the_settings_of_rare_classes():
    labels = np.concatenate([draw_scene(0, 'train', i).label.ravel() for i in range(60)])
    pixels = dict(zip(CLASSES, np.bincount(labels[labels < 255], minlength=len(CLASSES)).tolist(), strict=True))
    on_earth = dict(zip(LEGEND, PIXELS['train'], strict=False))
    settings = ('LongTailShapes, rare', pixels), ('LandCover, rare', on_earth), ('LandCover, snow', on_earth)
    for name, counts in settings:
        share = sum(counts[c] for c in recipe.SETTINGS[name].rare) / sum(counts.values())
        assert 0.02 < share < 0.04


def test_runs_have_the_classes_of_the_setting_and_are_measured_on_test_images():
    for name, setting in recipe.SETTINGS.items():
        cfg = setting.job(recipe.RECIPE, 0).settings()
        assert cfg.val_dataloader.dataset.split == 'test'
        if setting.rare:
            for loader in (cfg.train_dataloader, cfg.val_dataloader):
                assert loader.dataset.metainfo.classes == ('rest', *setting.rare)
            assert cfg.model.decode_head.num_classes == 1 + len(setting.rare)
        is_of_the_main_table = name in ('LandCover, short', 'LandCover, long')
        assert setting.job('ce', 0).work_dir.is_relative_to(land_cover.OUT) == is_of_the_main_table
    assert cfg.model.decode_head.loss_decode.type == 'MetricLoss'


def test_the_recipe_is_compared_with_the_best_other_row(monkeypatch):
    settings = ['LongTailShapes, short', 'LandCover, rare']
    monkeypatch.setattr(recipe, 'SETTINGS', {name: recipe.SETTINGS[name] for name in settings})
    searched = {land_cover.Setting('tiny-unet', 'short', way): 3e-2 for way in recipe.WAYS}
    monkeypatch.setattr(land_cover, 'search', lambda settings: {s: SearchedRate(searched[s]) for s in settings})
    scores = {settings[0]: dict(ce=40, metric=50, lovasz=45), settings[1]: dict(ce=20, metric=30, lovasz=34)}
    jobs = []

    def train(some_jobs, n_at_a_time):
        jobs.extend(some_jobs)
        return [result_of(job) for job in some_jobs]

    def result_of(job):
        way = next(way for way in recipe.WAYS if f'tiny-unet_{way}_' in job.config)
        score = scores[settings['_lc' in job.config]].get(way, 10) + job.seed
        areas = [[[score, score], [100, 100], [80, 90]]] * 3
        result = dict(config='a.py', schedule=job.schedule, seed=job.seed, lr=job.lr)
        made = write_training(job.work_dir, areas, ('sky', 'bird'), result, '# a config')
        (job.work_dir / RESULT).write_text(json.dumps(made.result))
        return made.result

    monkeypatch.setattr(recipe, 'train_missing', train)
    done = recipe.reproduce([0, 1])
    assert [job.lr for job in jobs] == 2 * (len(recipe.WAYS) * [None] + len(recipe.WAYS) * [3e-2])
    first, second = done.rows
    assert first['recipe - best other'] == '+5.0 [+5.0, +5.0], 2 of 2 (Lovász-Softmax)'
    assert second['recipe - best other'] == '-4.0 [-4.0, -4.0], 0 of 2 (Lovász-Softmax)'
    assert second["metric_loss('miou')"]['mean'] == pytest.approx(30.5)
    assert "Lovász-Softmax 1, metric_loss('miou') 1." in done.found
    assert 'The recipe is further behind in: LandCover, rare.' in done.found
    assert [axis.get_title() for axis in done.figure.axes] == settings
    assert list(done.results['IoU']) == settings[1:]
    assert done.results['IoU'][settings[1]]['cross-entropy'] == {'sky': 20.5, 'bird': 20.5}


class SearchedRate:
    def __init__(self, rate):
        self.rate = rate


def test_gradients_at_rare_pixels_are_those_of_the_logits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 4, 4, generator=generator)
    label = torch.zeros(1, 4, 4, dtype=torch.long)
    label[0, 0], label[0, 1] = 1, 255
    probability, lovasz, cross_entropy = recipe_gradients.of_rare_pixels(logits, label)
    probs = logits.softmax(1)
    assert probability == pytest.approx(probs[0, 1, 0].mean().item())
    of_pixel = probs - torch.nn.functional.one_hot(label.clamp(max=2), 3).movedim(-1, 1)
    assert cross_entropy == pytest.approx(of_pixel[0, :, 0].norm(dim=0).sum().item() / 12, rel=1e-5)
    assert lovasz > 0
    assert all(np.isnan(recipe_gradients.of_rare_pixels(logits, label * 0)))


def test_gradients_of_a_short_training(monkeypatch, tmp_path):
    monkeypatch.setattr(recipe_gradients, 'ITERATIONS', 4)
    monkeypatch.setattr(recipe_gradients, 'EVERY', 2)
    monkeypatch.setattr(recipe_gradients, 'WAIT', 2)
    setting = recipe.SETTINGS['LongTailShapes, rare']
    options = {'train_dataloader.batch_size': 2, 'train_dataloader.num_workers': 0}
    options |= {'train_dataloader.persistent_workers': False, 'train_dataloader.dataset.num_images': 8}
    options['train_dataloader.dataset.data_root'] = str(tmp_path)
    monkeypatch.setattr(recipe, 'one_frequent_class', lambda rare, made=recipe.one_frequent_class: made(rare) | options)
    assert setting.job('ce', 0).settings().train_dataloader.batch_size == 2
    done = recipe_gradients.reproduce([0])
    assert [row['iterations'] for row in done.rows][:4] == ['0 to 1', '2 to 3', '2 to 3', '2 to 3']
    assert np.isfinite([list(row.values())[2:] for row in done.rows]).all()
    assert 'cross-entropy has a gradient of' in done.found
