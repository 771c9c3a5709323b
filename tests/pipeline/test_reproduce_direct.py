"""The synthetic experiments of the direct loss paper, in small."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from reproductions import direct_loss as direct
from torch import nn

from mmseg_nondecomp.functional import direct_ap_loss, direct_zero_one_loss

METHODS = ['pos-AP', 'neg-AP', 'hinge-AP', 'per-AP', 'pos-01', 'neg-01', 'hinge-01', 'per-01', 'logistic']


@pytest.fixture
def small(monkeypatch):
    sizes = dict(N_ITEMS=400, BATCH=100, N_STEPS=30, MEASURE_EVERY=10, LEARNING_RATES=(0.01, 0.1), EPSILONS=(1.0, 10.0))
    for name, value in sizes.items():
        monkeypatch.setattr(direct, name, value)
    return direct


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def made_run(ap, learning_rate=0.01):
    best = direct.Parameters(learning_rate, None)
    return direct.Run(best, [direct.Point(0, 0.3, 0.4), direct.Point(5, ap, ap)], {best: 0.5})


def trained(problem, data, seed, name, learning_rate, epsilon=1.0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, 'LEARNING_RATES', (learning_rate,))
        patch.setattr(direct, 'EPSILONS', (epsilon,))
        return direct.search(problem, data, seed, name)


class TestData:
    def test_the_highest_fifth_is_positive_and_the_halves_are_random(self):
        train, test = direct.generate(direct.SYNTHETIC, 0)
        assert train.features.shape == test.features.shape == (10_000, 10)
        features, labels, truth = (torch.cat(pair) for pair in zip(train, test, strict=True))
        assert labels.sum() == 4000
        assert truth[labels == 1].min() > truth[labels == 0].max()
        assert features.mean() == pytest.approx(0, abs=0.01)
        assert features.std() == pytest.approx(1, abs=0.01)
        assert train.labels.sum() != test.labels.sum(), 'sorted or stratified'
        assert train.labels.double().mean() == pytest.approx(0.2, abs=0.02)
        assert len(features.unique(dim=0)) == 20_000, 'a point in both'

    def test_linear_labels_are_the_sign_of_the_sum_and_a_fifth_of_the_noisy_ones_is_wrong(self):
        for items in direct.generate(direct.LINEAR, 0):
            assert torch.equal(items.labels == 1, items.features.sum(1) > 0)
            assert direct.average_precision(items.features.sum(1), items.labels) == 1
        halves = direct.generate(direct.LINEAR_NOISE, 0)
        wrong = [(items.labels == 1) != (items.features.sum(1) > 0) for items in halves]
        assert torch.cat(wrong).sum() == 4000
        assert wrong[0].double().mean() == pytest.approx(0.2, abs=0.02)
        assert all(0.7 < direct.average_precision(items.truth, items.labels) < 0.9 for items in halves)

    def test_a_seed_draws_the_points_and_the_target(self, small):
        first, again, other = (small.generate(small.SYNTHETIC, seed)[0] for seed in (0, 0, 1))
        assert all(map(torch.equal, first, again))
        assert not torch.equal(first.features, other.features)
        networks = [small.target_network(small.SYNTHETIC, generator(seed)) for seed in (0, 1)]
        assert not torch.equal(*(small.scores_of(network, first.features) for network in networks))


class TestNetworks:
    def test_a_learner_has_the_structure_of_the_target_and_only_a_large_start_its_normal_numbers(self):
        target = direct.target_network(direct.SYNTHETIC, generator())
        assert [type(layer) for layer in target] == [nn.Linear, nn.ReLU] * 3 + [nn.Linear]
        parameters = torch.cat([parameter.detach().flatten() for parameter in target.parameters()])
        assert parameters.mean() == pytest.approx(0, abs=0.1)
        assert parameters.std() == pytest.approx(1, abs=0.1)
        networks = [make(direct.SYNTHETIC, generator()) for make in (direct.target_network, direct.untrained_network)]
        shapes = [[parameter.shape for parameter in network.parameters()] for network in networks]
        assert shapes[0] == shapes[1]
        features = direct.generate(direct.SYNTHETIC, 0)[0].features
        scores = [direct.scores_of(network, features) for network in networks]
        assert 0.1 < scores[1].std() < 3
        assert scores[0].std() > 10
        [weight] = direct.untrained_network(direct.LINEAR, generator()).parameters()
        assert weight.shape == (1, 10), 'no bias'
        same, other = (direct.untrained_network(direct.SYNTHETIC_LARGE, generator(seed)) for seed in (0, 1))
        target = direct.target_network(direct.SYNTHETIC, generator())
        assert all(map(torch.equal, same.parameters(), target.parameters()))
        features, labels, _ = direct.generate(direct.SYNTHETIC_LARGE, 0)[0]
        assert torch.equal(labels, direct.generate(direct.SYNTHETIC, 0)[0].labels)
        assert direct.scores_of(other, features).std() > 10


class TestMethods:
    def test_are_those_of_the_paper(self):
        assert list(direct.METHODS) == METHODS
        assert METHODS[:4] == direct.AP_METHODS
        with_epsilon = [name for name in METHODS if direct.METHODS[name].has_epsilon]
        assert with_epsilon == ['pos-AP', 'neg-AP', 'pos-01', 'neg-01']

    @pytest.mark.parametrize('name', METHODS[:8])
    def test_take_the_losses_of_the_package(self, name):
        scores = torch.randn(30, generator=generator()).requires_grad_()
        labels = (torch.arange(30) % 3 == 0).long()
        mode, task = name.split('-')
        loss = {'AP': direct_ap_loss, '01': direct_zero_one_loss}[task]
        mode = {'pos': 'positive', 'neg': 'negative', 'hinge': 'hinge', 'per': 'perceptron'}[mode]
        found = direct.METHODS[name](torch.stack([scores, 2 * scores]), labels, torch.tensor([0.3, 3.0]))
        expected = [loss(x, labels, epsilon=e, mode=mode) for x, e in ((scores, 0.3), (2 * scores, 3.0))]
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
            gradients = [torch.autograd.grad(value, scores, retain_graph=True)[0] for value in (ours, theirs)]
            torch.testing.assert_close(*gradients)
            assert gradients[0].any()

    def test_logistic_is_cross_entropy(self):
        scores, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 0, 0])
        expected = [F.binary_cross_entropy_with_logits(each, labels.float()) for each in (scores, -scores)]
        found = direct.METHODS['logistic'](torch.stack([scores, -scores]), labels, torch.full((2,), torch.nan))
        torch.testing.assert_close(found, torch.stack(expected))

    @pytest.mark.parametrize('name', METHODS)
    def test_learn_a_line(self, small, name):
        run = trained(small.LINEAR, small.generate(small.LINEAR, 3), 3, name, 0.1, 10.0)
        assert run.curve[0].ap < 0.8
        assert run.ap > run.curve[0].ap + 0.1
        assert run.train_ap > 0.85
        assert run.accuracy > run.curve[0].accuracy

    @pytest.mark.parametrize('name', ['pos-AP', 'hinge-AP', 'hinge-01', 'logistic'])
    def test_learn_a_network(self, small, name, monkeypatch):
        monkeypatch.setattr(small, 'N_STEPS', 100)
        run = trained(small.SYNTHETIC, small.generate(small.SYNTHETIC, 0), 0, name, 0.01, 10.0)
        assert run.train_ap > 0.8
        assert run.ap > run.curve[0].ap + 0.1


class TestTraining:
    def test_each_round_contains_all_items(self, small):
        steps = list(small.batches(350, generator()))
        assert len(steps) == 30
        assert [len(step) for step in steps[:4]] == [100, 100, 100, 50]
        first, second = torch.cat(steps[:4]), torch.cat(steps[4:8])
        assert torch.equal(first.sort().values, torch.arange(350))
        assert torch.equal(second.sort().values, torch.arange(350))
        assert not torch.equal(first, second)

    def test_curves_start_from_the_same_scores_and_end_with_the_last_step(self, small, monkeypatch):
        monkeypatch.setattr(small, 'MEASURE_EVERY', 20)
        data = small.generate(small.SYNTHETIC, 0)
        runs = [trained(small.SYNTHETIC, data, 0, name, 0.01) for name in ('pos-AP', 'neg-01')]
        assert runs[0].curve[0].ap == runs[1].curve[0].ap
        assert runs[0].ap != runs[1].ap
        for run in runs:
            assert [point.step for point in run.curve] == [0, 20, 30]
            assert (run.ap, run.accuracy) == run.curve[-1][1:]

    def test_ap_methods_count_their_positives_and_others_start_at_0(self):
        features = torch.tensor([[5.0], [4.0], [3.0], [2.0]])
        given = direct.Items(features, torch.tensor([0, 1, 0, 0]), features[:, 0])
        test = direct.Items(features, torch.tensor([1, 0, 0, 0]), features[:, 0])

        def score(features):
            return features[:, 0]

        assert direct.measure(score, given, test, 'neg-AP', 7) == direct.Point(7, 1.0, 1.0)
        assert direct.measure(score, given, test, 'neg-01', 7) == direct.Point(7, 1.0, 0.25)
        assert direct.measure(score, given, test, 'logistic', 7).accuracy == 0.25
        scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 1])
        assert direct.average_precision(scores, labels) == pytest.approx((1 + 2 / 3) / 2)
        assert direct.average_precision(scores * torch.nan, labels) == 0

    @pytest.mark.parametrize('name', ['pos-AP', 'neg-01', 'hinge-AP', 'logistic'])
    def test_parameters_trained_at_once_equal_those_trained_alone(self, small, name):
        given, _ = small.generate(small.SYNTHETIC, 0)
        grid = [small.Parameters(rate, epsilon) for rate in (0.003, 0.03) for epsilon in (0.3, 3.0)]
        together = small.train(small.SYNTHETIC, given, 0, name, grid)
        assert list(together.states) == [0, 10, 20, 30]
        for i, parameters in enumerate(grid):
            alone = small.train(small.SYNTHETIC, given, 0, name, [parameters])
            both = ((together, i), (alone, 0))
            scores = [each.scores_of_one(each.states[10], index, given.features) for each, index in both]
            torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)

    def test_divergence_of_one_does_not_reach_the_others(self, small):
        given, _ = small.generate(small.SYNTHETIC, 0)
        grid = [small.Parameters(1e30, None), small.Parameters(0.01, None)]
        training = small.train(small.SYNTHETIC, given, 0, 'hinge-01', grid)
        found = training.scores(training.states[30], given.features)
        assert not found[0].isfinite().all()
        assert found[1].isfinite().all()
        assert small.average_precision(found[1].detach(), given.labels) > 0.5

    def test_the_optimiser_is_adam_with_a_learning_rate_for_each(self):
        start, target = torch.randn(2, 3, 4, generator=generator())
        ours = start.clone().requires_grad_()
        theirs = [row.clone().requires_grad_() for row in start]
        rates = torch.tensor([0.1, 0.01, 1.0])
        optimizer = direct.Adam([ours], rates)
        stock = [torch.optim.Adam([row], rate) for row, rate in zip(theirs, rates.tolist(), strict=True)]
        for factor in (1.0, 0.7, 0.4, 0.1):
            optimizer.step(torch.autograd.grad((ours - target).pow(4).sum(), ours), factor)
            for row, wanted, each, rate in zip(theirs, target, stock, rates.tolist(), strict=True):
                each.zero_grad()
                (row - wanted).pow(4).sum().backward()
                each.param_groups[0]['lr'] = rate * factor
                each.step()
        torch.testing.assert_close(ours.detach(), torch.stack(theirs).detach(), rtol=1e-5, atol=1e-6)


class TestGridSearch:
    @pytest.fixture
    def asked(self, small, monkeypatch):
        """Replace trainings: the network scores by the feature at its place in the grid."""
        asked = []

        def train(problem, given, seed, name, grid):
            asked.append((problem, given, seed, name, grid))
            picks = torch.eye(10)[: len(grid)].unsqueeze(1)
            return small.Training(nn.Linear(10, 1, bias=False), {0: {'weight': -picks}, 30: {'weight': picks}})

        monkeypatch.setattr(small, 'train', train)
        return asked

    def items(self, *aps):
        """Return items whose features have the average precisions 1/2 or 1."""
        labels = torch.tensor([1, 0])
        ordered = torch.tensor([[1.0, 0.0] if ap == 1 else [0.0, 1.0] for ap in aps] + [[0.0, 1.0]] * (10 - len(aps)))
        return direct.Items(ordered.t(), labels, labels)

    def test_takes_the_best_on_the_training_set(self, small, asked):
        data = self.items(0.5, 0.5, 1, 1), self.items(1, 1, 0.5, 1)
        run = small.search(small.LINEAR, data, 4, 'pos-AP')
        grid = list(itertools.product((0.01, 0.1), (1.0, 10.0)))
        assert asked == [(small.LINEAR, data[0], 4, 'pos-AP', grid)]
        assert run.parameters == small.Parameters(0.1, 1.0), 'the first of equals'
        assert run.grid == dict(zip(grid, [0.5, 0.5, 1.0, 1.0], strict=True))
        assert (run.train_ap, run.ap) == (1, 0.5), 'the test set decides nothing'
        assert [(point.step, point.ap) for point in run.curve] == [(0, 1.0), (30, 0.5)]

    @pytest.mark.parametrize(('name', 'size'), [('neg-01', 4), ('hinge-AP', 2), ('per-01', 2), ('logistic', 2)])
    def test_only_direct_updates_have_an_epsilon(self, small, asked, name, size):
        run = small.search(small.LINEAR, (self.items(), self.items()), 4, name)
        assert len(run.grid) == size
        assert (run.parameters.epsilon is None) == (size == 2)

    def test_the_edges_of_the_grid(self):
        for parameters in ((1e-3, 1.0), (1.0, None), (0.01, 0.01), (0.01, 100.0)):
            assert direct.Parameters(*parameters).is_at_an_edge
        for parameters in ((3e-3, 1.0), (0.1, None), (0.01, 0.03)):
            assert not direct.Parameters(*parameters).is_at_an_edge


def outcomes(*names):
    """Return outcomes of two seeds with a high AP for the given methods, in this order."""
    aps = {name: 0.9 - names.index(name) / 100 if name in names else 0.5 for name in METHODS}
    return {name: [made_run(ap), made_run(ap - 0.2)] for name, ap in aps.items()}


class TestReproduction:
    def test_leaves_numbers_a_table_a_sentence_and_a_picture(self, small):
        done = small.linear_noise([0, 1])
        assert [row['method'] for row in done.rows] == METHODS
        for row in done.rows:
            runs = [run for run in done.results['runs'] if run['method'] == row['method']]
            assert [run['seed'] for run in runs] == [0, 1]
            assert row['test AP']['mean'] == pytest.approx(sum(run['AP'] for run in runs) / 2)
            assert row['test 1 - AP']['mean'] == pytest.approx(1 - row['test AP']['mean'])
            grid = done.results['grid'][row['method']]
            size = len(grid) // 2
            best = [max(of_seed, key=lambda tried: tried['training AP']) for of_seed in (grid[:size], grid[size:])]
            for run, tried in zip(runs, best, strict=True):
                names = ('learning_rate', 'epsilon', 'training AP')
                assert [run[name] for name in names] == [tried[name] for name in names]
            assert row['learning rate'] == ', '.join(f'{tried["learning_rate"]:g}' for tried in best)
            assert row['ε'] == ', '.join(f'{tried["epsilon"]:g}' for tried in best if tried['epsilon'])
            curve = done.results['curves'][row['method']]
            assert curve['step'] == [0, 10, 20, 30]
            assert curve['ap'][-1] == pytest.approx(row['test AP']['mean'])
        assert done.results['setting']['label noise'] == 0.2
        ap, accuracy = done.figure.axes
        assert [line.get_label() for line in accuracy.lines] == METHODS
        for name, *lines in zip(METHODS, ap.lines, accuracy.lines, strict=False):
            for line, measure in zip(lines, ('ap', 'accuracy'), strict=True):
                assert list(line.get_ydata()) == done.results['curves'][name][measure]

    def test_the_axes_stretch_the_range_near_one_and_labels_of_ticks_do_not_overlap(self):
        for axis in direct.draw(outcomes(*METHODS), [0.7, 0.9]).axes:
            low, high = axis.get_ylim()
            assert axis.get_yscale() == 'logit'
            assert low < 0.4 < 0.8 < high < 0.9, 'from the starts to the ends of the lines'
            assert [f'{tick:g}' for tick in axis.get_yticks()] == [label.get_text() for label in axis.get_yticklabels()]
            assert set(axis.get_yticks()) >= {0.5, 0.6, 0.7, 0.8}
        axis = direct.Figure().subplots()
        axis.plot([0.45, 0.9999999])
        direct.stretch_near_one(axis)
        ticks = axis.get_yticks()
        assert {0.9, 0.999, 0.9999, 0.99999} <= set(ticks)
        places = axis.transAxes.inverted().transform(axis.transData.transform([(0, tick) for tick in ticks]))[:, 1]
        assert min(high - low for low, high in itertools.pairwise(places)) >= 0.04

    @pytest.mark.parametrize(('possible', 'more'), [(1.0, []), (0.7, ['scores behind the labels'])])
    def test_the_highest_possible_ap_is_a_line_if_it_is_less_than_one(self, possible, more):
        lines = direct.draw(outcomes(), [possible]).axes[0].lines
        assert [line.get_label() for line in lines] == [*METHODS, *more]

    def test_each_experiment_has_its_problem(self, monkeypatch):
        monkeypatch.setattr(direct, 'reproduce', lambda problem, seeds: (problem, seeds))
        for name in ('synthetic', 'synthetic_large', 'linear', 'linear_noise'):
            assert getattr(direct, name)([1]) == (getattr(direct, name.upper()), [1])

    @pytest.mark.parametrize(
        ('names', 'sentences'),
        [
            (
                ('pos-AP', 'logistic', 'neg-AP'),
                [
                    'pos-AP 0.2, logistic 0.21, neg-AP 0.22',
                    'of the scores that made the labels 0.05.',
                    'number 1 of the 4 AP methods in the mean (first in 2 of 2 seeds) and number 1 of all 9',
                    'pos-AP +0.01 to logistic (ahead in 2 of 2)',
                    'neg-AP -0.02 to pos-AP (ahead in 0 of 2)',
                ],
            ),
            (
                ('neg-AP', 'logistic', 'hinge-AP', 'pos-AP'),
                [
                    'number 3 of the 4 AP methods in the mean (first in 0 of 2 seeds) and number 4 of all 9',
                    'pos-AP -0.02 to logistic (ahead in 0 of 2)',
                    'neg-AP +0.03 to pos-AP (ahead in 2 of 2)',
                ],
            ),
            ((), ['first in 0 of 2 seeds']),
        ],
        ids=['a win', 'a loss', 'equals'],
    )
    def test_the_sentence_names_ranks_and_differences(self, names, sentences):
        said = direct.found(outcomes(*names), [1.0, 0.9], [0.5, 0.5])
        assert [sentence for sentence in sentences if sentence not in said] == []

    def test_methods_with_one_label_for_all_and_methods_at_an_edge_of_the_grid_are_named(self):
        made = outcomes('pos-AP', 'hinge-01')
        said = direct.found(made, [1.0, 1.0], [0.1, 0.1])
        assert 'one label for all: none.' in said
        assert 'in some seed: none.' in said
        made['neg-01'][1] = made_run(0.5, learning_rate=1.0)
        assert 'in some seed: neg-01.' in direct.found(made, [1.0, 1.0], [0.1, 0.1])
        assert 'one label for all: pos-AP.' in direct.found(outcomes(*METHODS[1:]), [1.0, 1.0], [0.4, 0.4])
