"""The figures and the tilings of the loss max-pooling paper, in small."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import pool
from mmengine.registry import DefaultScope
from reference import max_pooling as reference
from reproductions import lmp_tiling, lmp_weights

from mmseg_nondecomp import TiledSegmentor

ROOT = Path(__file__).parents[2]


class TestLmpWeights:
    def test_the_panels_are_the_papers_with_the_weights_of_algorithm_1(self):
        for seed in (0, 1):
            losses = lmp_weights.generate(seed)
            assert torch.equal(losses, losses.sort().values)
            for setting in (*lmp_weights.LEFT, *lmp_weights.RIGHT):
                expected, _ = reference.sorted_weights(losses.numpy(), setting.p, setting.m)
                assert setting.tau == pytest.approx(float(reference.radii(lmp_weights.N, setting.p, setting.m)[1]))
                found = lmp_weights.weights(losses, setting).numpy()
                np.testing.assert_allclose(found, expected.astype(float), rtol=1e-9, atol=1e-15)
        assert [(s.p, 3 * s.share) for s in lmp_weights.LEFT] == [
            (p, 1) for p in (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf)
        ]
        assert [(s.p, s.share) for s in lmp_weights.RIGHT] == [(1.7, share) for share in (0, 0.1, 0.2, 0.4, 0.8, 1)]

    def test_no_support_is_the_limit_that_one_item_reaches_and_the_ends_are_uniform(self):
        """Without a bound on the largest weight, Hölder's inequality says which weights are the best."""
        losses, free = lmp_weights.generate(0), lmp_weights.RIGHT[0]
        q = free.p / (free.p - 1)
        gamma = lmp_weights.N ** (-1 / q)
        best = gamma * (losses / torch.linalg.vector_norm(losses, q)) ** (q - 1)
        found = lmp_weights.weights(losses, free)
        torch.testing.assert_close(found, best, rtol=1e-10, atol=0)
        assert found.max() < free.tau == pytest.approx(gamma)
        losses = lmp_weights.generate(0)
        for setting in (lmp_weights.LEFT[-1], lmp_weights.RIGHT[-1]):
            torch.testing.assert_close(lmp_weights.weights(losses, setting), torch.full_like(losses, 0.01))

    def test_figure_1_shows_the_best_weights_of_the_set(self):
        told = lmp_weights.set_of_two()
        losses, weights = (rows.tolist() for rows in lmp_weights.best_of_two())
        gamma, tau, p = told['γ'], told['τ'], told['p']
        # 1 / n lies on the sphere, the corner on it and on the box.
        for point in ([0.5, 0.5], told['corner']):
            assert np.linalg.norm(point, p) == pytest.approx(gamma)
        grid = np.stack(np.meshgrid(*[np.linspace(0, tau, 601)] * 2), -1).reshape(-1, 2)
        allowed = grid[(grid**p).sum(1) <= gamma**p]
        for loss, weight in zip(losses, weights, strict=True):
            assert np.linalg.norm(weight, p) <= gamma + 1e-9
            assert max(weight) <= tau + 1e-9
            best = (allowed @ loss).max()
            assert best <= np.dot(weight, loss) + 1e-9
            assert np.dot(weight, loss) < best + 2e-3
        assert weights[0] == pytest.approx(told['corner'])
        assert weights[44] == pytest.approx([0.5, 0.5])

    def test_the_sentence_reports_measured_values(self):
        done = lmp_weights.reproduce([0, 1])
        left, right = (done.results[f'figure 2, {side}'] for side in ('left', 'right'))
        assert done.rows == [*left, *right]
        effective = [row['effective items']['mean'] for row in left]
        assert f'those of {effective[0]:.3g}, ' in done.found
        assert effective == sorted(effective)
        assert 'always more as p grows' in done.found
        assert all(row['items with weight']['mean'] >= 100 / 3 for row in left)
        assert all(row['items at full weight']['mean'] <= 100 / 3 for row in left[:-1])
        turned = lmp_weights.found(left[::-1], right)
        assert 'not always more as p grows' in turned
        assert len(done.figure.axes) == 4 + 2


class TestLmpTiling:
    @pytest.fixture
    def module(self, monkeypatch, tmp_path):
        """One loss, a training of one step, and two images to predict."""
        module = lmp_tiling
        monkeypatch.setattr(module, 'OUT', tmp_path / 'work_dirs')
        monkeypatch.chdir(ROOT)
        options = {'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1, 'default_hooks.checkpoint.interval': 1}
        for part, number in (('train', 8), ('val', 2), ('test', 2)):
            options |= {
                f'{part}_dataloader.dataset.data_root': str(tmp_path / 'data'),
                f'{part}_dataloader.dataset.num_images': number,
                f'{part}_dataloader.num_workers': 0,
                f'{part}_dataloader.persistent_workers': False,
            }
        monkeypatch.setattr(module, 'OPTIONS', options)
        monkeypatch.setattr(module, 'CONFIGS', {'cross-entropy': module.CONFIGS['cross-entropy']})
        return module

    def test_leaves_tables_a_picture_and_a_sentence_and_trains_once(self, module, monkeypatch):
        monkeypatch.setattr(module, 'OVERLAPS', {64: (0, 32)})
        monkeypatch.setattr(module, 'WAYS', [way for way in module.WAYS if way.size != 32 and way.overlap != 16])
        done = module.reproduce([0])
        whole, *tiled = done.rows
        assert [(row['overlap'], row['decided']) for row in tiled] == [(0, 'cut'), (32, 'averaged'), (32, 'cut')]
        assert (whole['decided'], whole['pixels as whole']['mean'], whole['time / whole']) == ('whole', 100, 1)
        assert all(row['pixels as whole']['mean'] <= 100 for row in tiled)
        assert all(0 <= run['miou'] <= 100 for run in done.results['runs'])
        assert 'cross-entropy, tiles of 64: side by side ' in done.found
        assert len(done.figure.axes) == 2
        monkeypatch.setattr(pool, 'train', None)
        [training] = module.trained([0])
        assert training.checkpoint.exists()
        with pytest.raises(TypeError):
            module.trained([1])

    def test_ways_are_models_of_the_same_weights(self, module, tmp_path):
        config = Path(module.CONFIGS['cross-entropy'])
        with DefaultScope.overwrite_default_scope('mmseg'):
            torch.manual_seed(0)
            stock = module.MODELS.build(module.Config.fromfile(config).model)
            torch.save(stock.state_dict(), tmp_path / 'weights.pth')
            built = {way: module.predictor(config, way, tmp_path / 'weights.pth') for way in module.WAYS}
        for way, model in built.items():
            assert isinstance(model, TiledSegmentor) == (way.decided == module.CUT)
            assert model.test_cfg.mode == ('whole' if way == module.Way() else 'slide')
            for mine, theirs in zip(model.parameters(), stock.parameters(), strict=True):
                assert torch.equal(mine, theirs)

    def test_the_sentence_reports_differences(self, module):
        gain = {module.CUT: 2, module.AVERAGED: 1, module.WHOLE: 3}
        scores = {
            ('cross-entropy', way): [
                module.Score(40.0 + gain[way.decided] * way.overlap / 8, 99.0, 10.0 + (way.decided == module.CUT))
                for _ in range(2)
            ]
            for way in module.WAYS
        }
        said = module.found(scores)
        assert 'tiles of 32: side by side +0.00 (0 of 2) to the whole image' in said
        assert (
            'to side by side +2.00 (2 of 2), +4.00 (2 of 2); cut, to averaged +1.00 (2 of 2), +2.00 (2 of 2).' in said
        )
        assert 'cut, take 1.1 times as long as the whole image, 1 times averaged' in said
