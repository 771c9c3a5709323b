"""The experiments with S-measures, in small."""

import math

import pytest
import torch
from reproductions import s_classifiers, s_digits, s_sky
from reproductions.stacked_linear import StackedLinear
from torchmetrics.functional.classification import binary_fbeta_score


def shrunk(module, monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def classifiers(monkeypatch):
    return shrunk(s_classifiers, monkeypatch, N_ITEMS=500, N_STEPS=4, BATCH=100)


@pytest.fixture
def digits(monkeypatch):
    return shrunk(s_digits, monkeypatch, N_EPOCHS=2, BATCH=600)


@pytest.fixture
def sky(monkeypatch):
    module = s_sky
    of_loss = (module.Arm(1e-2), module.Arm(1e-2, module.ALWAYS), module.Arm(1e-2, module.NO_TAU), module.Arm(1.0))
    arms = (module.BASELINE, *of_loss)
    return shrunk(module, monkeypatch, N_EPOCHS=2, N_IMAGES=21, LAST=2, ARMS=arms)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


class TestStackedLinear:
    def test_is_a_linear_layer_for_each_network_and_starts_in_its_range(self):
        stacked = StackedLinear(4, 3, generators(0, 1))
        features = torch.randn(2, 5, 4)
        for i in range(2):
            alone = torch.nn.functional.linear(features[i], stacked.weight[i].T, stacked.bias[i, 0])
            torch.testing.assert_close(stacked(features)[i], alone)
        stacked = StackedLinear(100, 50, generators(0, 1))
        plain = torch.nn.Linear(100, 50)
        assert stacked.weight.abs().max() <= 0.1
        assert stacked.weight.std().item() == pytest.approx(plain.weight.std().item(), rel=0.1)
        assert stacked.bias.abs().max() <= 0.1
        assert not torch.equal(stacked.weight[0], stacked.weight[1])


class TestClassifiers:
    def test_data_are_imbalanced_and_each_seed_has_its_own(self, classifiers, monkeypatch):
        monkeypatch.setattr(classifiers, 'N_ITEMS', 20_000)
        train, test = classifiers.generate([0, 1])
        assert train.features.shape == (2, 20_000, classifiers.N_FEATURES)
        for items in (train, test):
            assert items.labels.float().mean() == pytest.approx(0.05, abs=0.01)
        alone, _ = classifiers.generate([1])
        assert torch.equal(alone.features[0], train.features[1])
        # Positives lie at a distance from the others: farther from the origin.
        norms = train.features.norm(dim=2)
        assert norms[train.labels == 1].mean() > norms[train.labels == 0].mean() + 0.5

    @pytest.mark.parametrize('variant', ['defaults', 'multipliers by bounds', 'a τ for each example'])
    @pytest.mark.parametrize('measure', ['F_1', 'precision at recall 0.9'])
    def test_seeds_trained_at_once_are_independent(self, classifiers, measure, variant):
        settings = {**classifiers.MEASURES[measure].settings, **classifiers.VARIANTS[variant]}

        def trained(seeds):
            loss = classifiers.s_measure(len(seeds), settings)
            train, _ = classifiers.generate(seeds)
            return classifiers.train_all('network', seeds, train, loss), loss.multipliers()

        (both, of_both), (second, of_second) = trained([0, 1]), trained([1])
        for ours, alone in zip(both.parameters(), second.parameters(), strict=True):
            torch.testing.assert_close(ours[1:], alone, rtol=1e-3, atol=1e-4)
        assert of_both[1:] == pytest.approx(of_second)

    def test_other_losses_are_sums_over_the_seeds(self, classifiers):
        scores, labels = torch.randn(2, 6), torch.tensor([[0, 1, 0, 1, 1, 0], [0] * 6])
        pairs = [math.log1p(math.exp(n - p)) for p in scores[0, [1, 3, 4]] for n in scores[0, [0, 2, 5]]]
        assert classifiers.pairwise_logistic(scores, labels, None).item() == pytest.approx(sum(pairs) / 9)
        both = 2 * torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float())
        assert classifiers.cross_entropy(scores, labels, None).item() == pytest.approx(both.item())

    @pytest.mark.parametrize('beta', [0.5, 1, 2])
    def test_the_best_threshold_of_f_is_the_best(self, classifiers, beta):
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(200, generator=generator)
        labels = (torch.rand(200, generator=generator) < 0.2 + 0.3 * scores.sigmoid()).long()
        measure = classifiers.MEASURES[f'F_{beta:g}']
        at = classifiers.best_threshold(scores, labels, measure)
        reached = classifiers.rates_of(scores, labels, at, measure).f
        every = [binary_fbeta_score((scores > z).long(), labels, float(beta)).item() for z in scores]
        assert reached >= max(every) - 1e-6
        assert reached == pytest.approx(binary_fbeta_score((scores > at).long(), labels, float(beta)).item())

    def test_the_best_threshold_takes_no_more_than_it_needs_and_areas_are_the_true_ones(self, classifiers):
        scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0])
        labels = torch.tensor([1, 1, 0, 1, 0, 0, 1, 0])
        recall = classifiers.Measure(dict(target=0.7), 'precision', 'recall')
        assert classifiers.best_threshold(scores, labels, recall) == pytest.approx(1.5)
        precision = classifiers.Measure(dict(target=0.7), 'recall', 'precision')
        assert classifiers.best_threshold(scores, labels, precision) == pytest.approx(1.5)
        assert classifiers.best_threshold(-scores, labels, precision._replace(settings=dict(target=0.9))) == math.inf
        scores, labels = torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([1, 0, 1, 0])
        found = {
            name: classifiers.rates_of(scores, labels, 0.0, classifiers.MEASURES[name]).area
            for name in classifiers.AREAS
        }
        assert found[classifiers.ROC] == pytest.approx(3 / 4)
        assert found[classifiers.PR] == pytest.approx((1 + 2 / 3) / 2)
        assert math.isnan(classifiers.rates_of(scores, labels, 0.0, classifiers.MEASURES['F_1']).area)

    def test_leaves_tables_a_picture_and_a_sentence(self, classifiers, monkeypatch):
        kept = {name: classifiers.VARIANTS[name] for name in ('defaults', 'hinge')}
        monkeypatch.setattr(classifiers, 'VARIANTS', kept)
        monkeypatch.setattr(classifiers, 'MODELS', {'linear': classifiers.MODELS['linear']})
        done = classifiers.reproduce([0, 1])
        losses = {(run['measure'], run['loss']) for run in done.results['runs']}
        assert len(losses) == 7 * 2 + 7 + 3, 'two baselines for each measure, and a variant for three'
        assert len(done.results['runs']) == 2 * len(losses)
        assert done.results['setting']['variants'] == kept
        [run] = [
            r for r in done.results['runs'] if (r['measure'], r['loss'], r['seed']) == (classifiers.PAR, 'hinge', 1)
        ]
        assert run['tuned_train']['recall'] >= 0.9
        assert 'area' not in run['train']
        assert 'within 0.01 of its target or above in ' in done.found
        assert 'area under ROC ' in done.found
        assert len(done.figure.axes) == 2

    def test_a_violated_constraint_is_reported(self, classifiers):
        rates = classifiers.Rates(0.5, 0.8, 0.6, 0.7)
        run = classifiers.Run(rates, rates, rates, rates, rates, 1.0)
        kept = run._replace(train=rates._replace(recall=0.9, precision=0.6))
        names = [*classifiers.VARIANTS, classifiers.CROSS_ENTROPY, classifiers.PAIRWISE]
        runs = {
            (model, measure, name): [kept, run if model == 'linear' else kept]
            for model in classifiers.MODELS
            for measure in classifiers.MEASURES
            for name in names
        }
        said = classifiers.found(runs)
        assert 'linear: the recall on the training set is within 0.01 of its target or above in 1 of 2 seeds' in said
        assert '(mean -0.0500, from -0.1000 to +0.0000)' in said
        assert 'network: the precision on the training set is within 0.01 of its target or above in 2 of 2' in said
        assert 'defaults 0.1 and 0.6' in said


class TestDigits:
    def test_sizes_have_two_modes_which_s_separates_and_no_image_is_on_both_sides(self, digits):
        given, test = digits.generate([0, 1])
        for items in (given, test):
            sizes = (items.images > 0).sum(2)
            small, large = sizes[:, ::2], sizes[:, 1::2]
            assert torch.equal(large, 4 * small)
            assert not items.large[:, ::2].any()
            assert items.large[:, 1::2].float().mean() > 0.99, 'all but a few thin ones'
            assert torch.equal(items.digits[:, ::2], items.digits[:, 1::2])
        assert given.digits.shape[1] + test.digits.shape[1] == 2 * 1797
        seen = {tuple(image.tolist()) for image in given.images[0]}
        again = sum(tuple(image.tolist()) in seen for image in test.images[0])
        assert again == 0

    def test_a_node_beside_the_digits_leaves_them_alone(self, digits):
        given, test = digits.generate([0, 1])
        plain, *others = (
            digits.train(digits.Arm(digits.PIXELS, alpha, schedule), given, test, [0, 1])
            for alpha, schedule in ((0.0, digits.ONCE), (1.0, digits.ONCE), (1.0, digits.FULL))
        )
        for runs in others:
            for ours, theirs in zip(runs, plain, strict=True):
                assert [epoch.accuracy for epoch in ours.curve] == [epoch.accuracy for epoch in theirs.curve]

    def test_both_schedules_project_and_the_steps_of_the_paper_leave_the_multiplier(self, digits):
        given, test = digits.generate([0])
        arms = {schedule: digits.Arm(digits.SHARED, 1e-2, schedule) for schedule in (digits.ONCE, digits.FULL)}
        counted = {schedule: digits.train(arm, given, test, [0])[0] for schedule, arm in arms.items()}
        n_batches = -(-given.digits.shape[1] // digits.BATCH)
        assert counted[digits.ONCE].projections == digits.N_EPOCHS
        assert counted[digits.FULL].projections == digits.N_EPOCHS * n_batches
        assert all(run.seconds > 0 for run in counted.values())
        own, paper = (
            digits.furthest_mu(digits.train(digits.Arm(digits.SHARED, 1e-2, digits.FULL, steps), given, test, [0])[0])
            for steps in (digits.OWN, digits.PAPER)
        )
        assert paper < 1e-3
        assert own > 20 * paper

    def test_leaves_tables_a_picture_and_a_sentence(self, digits):
        done = digits.reproduce([0, 1])
        assert len(done.rows) == len(digits.arms()) == 19
        assert len(done.results['runs']) == 2 * 19
        assert {len(run['accuracy']) for run in done.results['runs']} == {digits.N_EPOCHS}
        assert 'their accuracy is that of α = 0 in all epochs' in done.found
        assert 'On the logits, ' in done.found
        assert f'of {digits.N_EPOCHS} epochs at α = 0.01' in done.found
        assert len(done.figure.axes) == 6


class TestSky:
    def test_the_sky_is_above_and_its_size_has_two_modes(self, sky, monkeypatch):
        monkeypatch.setattr(sky, 'N_IMAGES', 300)
        given, test = sky.generate(0)
        for scenes in (given, test):
            heights = scenes.sky.sum(1)
            assert torch.equal(scenes.sky, torch.arange(sky.SIDE)[:, None] < heights[:, None])
            assert scenes.sky.any((1, 2)).all()
        sizes = given.sky.float().mean((1, 2))
        assert torch.equal(given.large, sizes > sizes.mean())
        between = ((sizes > 0.3) & (sizes < 0.4)).float().mean()
        assert (sizes < 0.25).float().mean() > 0.4
        assert (sizes > 0.45).float().mean() > 0.2
        assert between < 0.1

    def test_the_score_of_the_size_reaches_all_of_the_network_and_the_iou_is_one_where_all_is_right(self, sky):
        network = sky.SegNet()
        logits, score = network(torch.randn(2, 3, sky.SIDE, sky.SIDE))
        assert (logits.shape, score.shape) == ((2, 1, sky.SIDE, sky.SIDE), (2, 1))
        score.sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())
        assert network.down1[0].weight.grad.abs().sum() > 0
        _, test = sky.generate(0)

        class Right(torch.nn.Module):
            def forward(self, images):
                return torch.where(test.sky, 9.0, -9.0).unsqueeze(1), torch.where(test.large, 1.0, -1.0).unsqueeze(1)

        assert sky.measure(Right(), test) == (100, 100, 100, 1)

    def test_the_projections_of_both_schedules(self, sky):
        given, test = sky.generate(0)
        plain, once, always, no_tau, strong = (sky.train(arm, given, test, 0) for arm in sky.ARMS)
        assert (plain.ascents, once.ascents, always.ascents, no_tau.ascents) == (0, 2, 2 * 3, 2 * 3)
        assert all(run.finite for run in (plain, once, always, no_tau, strong))

    def test_leaves_tables_a_picture_and_a_sentence(self, sky):
        done = sky.reproduce([0])
        assert [row['α'] for row in done.rows] == [0, 1e-2, 1e-2, 1e-2, 1]
        assert len(done.results['runs']) == 5
        assert 'A loss that is no number: none.' in done.found
        assert 'α = 0.01, projected in each iteration: ' in done.found
        assert len(done.figure.axes) == 6
