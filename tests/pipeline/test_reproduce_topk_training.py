"""The trainings with top-k losses in small: noisy labels, hold-out, early stopping, temperatures."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reproductions import fashion_mnist, topk_noise, topk_temperature
from reproductions import topk_training as training

SIZES = training.Sizes(4, 3, 2)


@pytest.fixture(scope='module')
def images():
    """Return images of ten classes whose pixels hold the class and the number of the image."""
    return [np.stack([np.full((28, 28), 20 * label + i, np.uint8) for i in range(12)]) for label in range(10)]


@pytest.fixture
def few_items(monkeypatch):
    generated, fashion = (partial(f, sizes=SIZES) for f in (training.generated, training.fashion))
    for module in (topk_noise, topk_temperature):
        monkeypatch.setattr(module, 'generated', generated)
        monkeypatch.setattr(module, 'N_RESAMPLES', 20)
    monkeypatch.setattr(topk_noise, 'fashion', fashion)
    monkeypatch.setattr(topk_noise, 'train', partial(training.train, epochs=2))


class TestData:
    @pytest.mark.parametrize('noise', [0.0, 0.4, 1.0])
    def test_labels_are_replaced_within_their_group(self, noise):
        data = training.generated(0, noise, training.Sizes(40, 40, 1))
        assert torch.equal(data.train.labels // training.GROUP, data.clean // training.GROUP)
        for items in (data.train, data.held_out):
            # One in five of the labels that are replaced is replaced by itself.
            assert (items.labels != data.clean).float().mean() == pytest.approx(0.8 * noise, abs=0.02)
        assert not torch.equal(data.train.labels, data.held_out.labels) or noise == 0
        assert torch.equal(data.test.labels, torch.arange(100))

    def test_sets_of_images_are_disjoint_and_labels_stay_in_their_pair(self, images):
        data = training.fashion(images, 0, 1.0, SIZES)
        assert (data.n_classes, data.k) == (10, 2)
        levels = [
            items.features[:, 0] * training.SPREAD + training.MEAN for items in (data.train, data.held_out, data.test)
        ]
        levels = [part.round().long() for part in levels]
        assert len(torch.cat(levels).unique()) == 10 * sum(SIZES)
        for part, labels in zip(levels[:2], (data.train.labels, data.held_out.labels), strict=True):
            for label, correct in zip(labels.tolist(), (part // 20).tolist(), strict=True):
                assert any({label, correct} <= set(pair) for pair in training.FASHION_GROUPS)
        assert (data.train.labels != levels[0] // 20).any()
        assert torch.equal(levels[2] // 20, data.test.labels)
        assert torch.equal(levels[1] // 20, data.clean)

    def test_groups_have_each_class_of_fashion_mnist_once(self):
        assert sorted(sum(training.FASHION_GROUPS, ())) == list(range(len(fashion_mnist.CLASSES)))


class TestTrain:
    def test_the_best_epoch_is_that_of_the_hold_out(self):
        data = training.generated(0, 0.6, training.Sizes(5, 5, 5))
        seen = []

        def watch(network):
            scores = network(data.held_out.features)
            held_out = [training.top_k(training.ranks(scores, y), 5) for y in (data.held_out.labels, data.clean)]
            seen.append((*held_out, training.ranks(network(data.test.features), data.test.labels)))

        stops = training.train(data, 0, F.cross_entropy, torch.optim.Adam, 1e-2, epochs=12, watch=watch)
        seen = seen[1:]
        assert len(seen) == 12
        assert np.array_equal(stops[training.LAST].ranks, seen[-1][2])
        assert stops[training.LAST].held_out == seen[-1][0]
        for column, name in enumerate((training.NOISY, training.CLEAN)):
            values = [row[column] for row in seen]
            assert stops[name].held_out == max(values) > 20
            assert np.array_equal(stops[name].ranks, seen[values.index(max(values))][2])

    def test_ranks_count_ties_and_nan_against_the_label(self):
        scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [torch.nan, 2.0, 1.0], [torch.nan] * 3])
        assert training.ranks(scores, torch.tensor([0, 1, 1, 2])).tolist() == [1, 2, 2, 3]
        assert training.top_k(np.array([1, 2, 2, 3]), 2) == 75


class TestTopkNoise:
    def test_settings_are_as_many_for_both_losses_and_chosen_on_the_hold_out(self):
        assert len({len(grid) for grid in topk_noise.GRIDS.values()}) == 1
        first, second = topk_noise.GRIDS[topk_noise.SMOOTH][:2]
        tried = {first: {training.LAST: 60, training.NOISY: 80}, second: {training.LAST: 70, training.NOISY: 75}}
        assert topk_noise.best_setting(tried, training.LAST) == second
        assert topk_noise.best_setting(tried, training.NOISY) == first

    def test_accuracies_are_those_of_the_ranks(self):
        weights = np.array([[1, 1, 1, 1], [4, 0, 0, 0]], np.float32)
        stop = training.Stop(0, np.array([2, 1, 3, 2]))
        found = topk_noise.accuracies(stop, 2, weights)
        assert topk_noise.values_of(found) == {'top-1': 25, 'top-k': 75}
        assert found.topk.resampled.tolist() == [100]
        assert found.top1.resampled.tolist() == [0]

    def test_leaves_rows_for_each_epoch_a_sentence_and_a_picture(self, few_items, images, monkeypatch):
        monkeypatch.setattr(topk_noise, 'NOISE', (0.0, 1.0))
        grids = {loss: grid[:2] for loss, grid in topk_noise.GRIDS.items()}
        monkeypatch.setattr(topk_noise, 'GRIDS', grids)
        monkeypatch.setattr(fashion_mnist, 'load', lambda: images)
        done = topk_noise.reproduce([0, 1])
        assert len(done.rows) == 2 * 2 * 3
        assert len(done.results['search']) == 2 * 2 * 2 * 2
        assert len(done.results['early stopping']) == 2 * 2
        assert len(done.results['runs']) == len(done.rows) * 2 * 2
        by_row = {(row['data'], row['noise'], row['stop']): row for row in done.rows}
        for data in (topk_noise.GENERATED, topk_noise.FASHION):
            noisy, clean = (dict(by_row[data, 0.0, stop], stop='') for stop in (training.NOISY, training.CLEAN))
            assert noisy == clean, 'without noise both hold-outs are the same'
        for row in done.rows:
            ours, theirs = (
                [
                    r['top-k']
                    for r in done.results['runs']
                    if all(r[name] == row[name] for name in ('data', 'noise', 'stop')) and r['loss'] == loss
                ]
                for loss in (topk_noise.SMOOTH, topk_noise.CROSS_ENTROPY)
            )
            assert row['top-k: gain'].startswith(f'{np.mean(ours) - np.mean(theirs):+.1f} [')
        assert f'{topk_noise.FASHION}, {training.NOISY}: ' in done.found
        assert [len(axis.lines) for axis in done.figure.axes] == [6] * 4


class TestTopkTemperature:
    def test_shares_are_those_of_the_gradient_of_the_loss(self):
        torch.manual_seed(0)
        network = torch.nn.Linear(4, 100)
        items = training.Items(torch.randn(6, 4), torch.arange(6))
        hard, cold, warm, ce = (
            topk_temperature.nonzero_shares(network, items, loss)
            for loss in ('0 (hard)', '0.001', '1', 'cross-entropy')
        )
        assert hard == pytest.approx((2, 2)), 'two scores of an item'
        assert warm == ce == pytest.approx((100, 100))
        assert 2 < cold.above_precision < cold.other_than_0 <= 100
        sure = training.Items(torch.zeros(1, 4), torch.tensor([7]))
        network.bias.data = 100 * F.one_hot(torch.tensor(7), 100).float()
        assert topk_temperature.nonzero_shares(network, sure, '0 (hard)') == (0, 0)

    def test_leaves_a_row_for_each_temperature_curves_and_a_picture(self, few_items, monkeypatch):
        monkeypatch.setattr(topk_temperature, 'RATES', (0.1, 0.3))
        monkeypatch.setattr(topk_temperature.run, '__defaults__', (2,))
        done = topk_temperature.reproduce([0, 1])
        assert [row['τ'] for row in done.rows] == 2 * list(topk_temperature.LOSSES)
        assert len(topk_temperature.LOSSES) == 8
        assert done.rows[0]['test top-5: gain over the hard loss'] == ''
        assert len(done.results['search']) == len(done.rows) * 2
        for run in done.results['runs']:
            assert len(run['training top-5 by epoch']) == 3
            assert list(run['shares']) == ['start', 'halfway', 'end']
        assert len(done.results['runs']) == len(done.rows) * 2
        assert '10 hidden layers: ' in done.found
        assert [len(axis.lines) for axis in done.figure.axes] == [8, 3, 2, 8, 3, 2]
