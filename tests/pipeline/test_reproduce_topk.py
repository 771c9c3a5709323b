"""The algorithms of the smooth top-k paper and the experiments on them, in small."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from reference import smooth_topk as reference
from reproductions import topk_algorithms as algorithms
from reproductions import topk_speed, topk_stability

from mmseg_nondecomp.functional import log_elementary_symmetric, smooth_topk_loss, topk_marginals


@pytest.fixture
def stability(monkeypatch):
    module = topk_stability
    monkeypatch.setattr(module, 'N_LABELS', 30)
    monkeypatch.setattr(module, 'ROWS', 3)
    monkeypatch.setattr(module, 'TAUS', (1, 0.01, 1e-36))
    return module


@pytest.fixture
def speed(monkeypatch):
    module = topk_speed
    for name, value in dict(BATCH=4, TABLE_SIZES=(20, 30), SIZES=(20, 40), DEGREES=(1, 2), SIZE_OF_DEGREES=20).items():
        monkeypatch.setattr(module, name, value)
    return module


def draw(*shape, spread=2.0):
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def oracle(x, k):
    """Return values and gradients of log σ_k for each row."""
    losses = [reference.log_elementary_symmetric(row, k) for row in x.detach().numpy()]
    return [torch.from_numpy(np.array(part, dtype=np.float64)) for part in zip(*losses, strict=True)]


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize('n', [6, 7, 11])
@pytest.mark.parametrize('name', ['summation', 'log_summation', 'divide_and_conquer'])
def test_each_forward_pass_gives_the_polynomials(name, n):
    x = draw(3, n)
    found = getattr(algorithms, name)(x.exp() if name == 'summation' else x, 5)
    found = found.log() if name == 'summation' else found
    assert found.shape == (3, 6)
    for j in range(6):
        close(found[:, j], oracle(x, j)[0])


@pytest.mark.parametrize('k', [1, 2, 5])
def test_algorithm_2_gives_the_derivatives_where_it_is_stable(k):
    x = draw(3, 9, spread=0.5)
    found = algorithms.marginals(x, algorithms.divide_and_conquer(x, k), k)
    assert sorted(found) == [k - 1, k]
    for degree, values in found.items():
        close(values, oracle(x, degree)[1])


@pytest.mark.parametrize('order', [0, 1, 3])
def test_the_error_of_the_approximation_is_that_of_proposition_6(order):
    k, (x,) = 2, draw(1, 7)
    e = x.exp().numpy()
    log_sigma = algorithms.log_summation(x, k + order)
    found = algorithms.approximation(x, log_sigma, k, order)
    # δ is off by σ_k+p of the others over e_i^(p + 1), and the marginal is e_i δ / σ_k.
    others = [reference.elementary_symmetric(np.delete(e, i), k + order) for i in range(len(e))]
    off = others / e**order / reference.elementary_symmetric(e, k)
    close((found - oracle(x[None], k)[1][0]).abs(), torch.from_numpy(off), 1e-10)


def test_algorithm_2_loses_its_digits_beside_one_large_number_and_only_there_is_approximated():
    x = torch.tensor([[3.0, 0.0, 0.5, -1.0, 1.0]], dtype=torch.float64)
    log_sigma = algorithms.log_summation(x, 3)
    alone = algorithms.marginals(x, log_sigma, 2)[2]
    left = 1 - x.exp() / x.exp().sum()  # of the only subtraction, σ_1 - e_i
    threshold = left.sort().values[:, :2].mean().item()
    mixed = algorithms.marginals(x, log_sigma, 2, order=1, unstable=threshold)[2]
    assert torch.equal(mixed[:, 1:], alone[:, 1:])
    assert mixed[0, 0] == algorithms.approximation(x[0, :1], log_sigma[0], 2, 1)
    assert mixed[0, 0] != alone[0, 0]
    x = torch.cat([torch.full((1, 1), 12.0, dtype=torch.float64), draw(1, 9)], 1)
    k, truth = 5, oracle(x, 5)[1]
    alone = algorithms.marginals(x, algorithms.divide_and_conquer(x, k), k)[k]
    helped = algorithms.marginals(x, algorithms.divide_and_conquer(x, k + 1), k, order=1)[k]
    assert (alone - truth).abs().max() > 0.9
    assert 1e-14 < (helped - truth).abs().max() < 1e-6
    close(topk_marginals(x, k, normalize=False), truth, 1e-14)
    x = torch.cat([torch.full((1, 1), 12.0, dtype=torch.float64), draw(1, 9)], 1).requires_grad_()
    for degree, row in enumerate(algorithms.with_custom_backward(x, 5)[0], 4):
        (gradient,) = torch.autograd.grad(row, x, retain_graph=True)
        close(gradient, oracle(x, degree)[1], 1e-7)
    assert [algorithms.default_order(k) for k in (1, 5, 10, 20)] == [1, 1, 2, 4]


@pytest.mark.parametrize('k', [1, 2, 5])
@pytest.mark.parametrize('name', ['log_summation', 'divide_and_conquer', 'with_custom_backward'])
def test_the_loss_by_each_algorithm_is_the_loss(name, k):
    scores, target = draw(3, 9).requires_grad_(), torch.tensor([0, 4, 8])
    loss = algorithms.loss_by(getattr(algorithms, name), scores, target, k)
    loss.backward()
    rows = [reference.smooth_topk_loss(s, y, k, 1) for s, y in zip(scores.detach().numpy(), target, strict=True)]
    close(loss.detach(), torch.tensor(float(np.mean([row.value for row in rows])), dtype=torch.float64))
    close(scores.grad, torch.from_numpy(np.array([row.gradient / 3 for row in rows], np.float64)), 1e-9)


class TestTopkStability:
    def test_many_digits_give_the_marginals_without_numbers_that_change_no_digit(self, stability):
        mpmath = stability.mpmath
        x = draw(1, 9)
        with mpmath.workdps(stability.DIGITS):
            found = stability.exact([mpmath.mpf(value) for value in x[0].tolist()], 3)
        values, gradients = oracle(x, 3)
        assert float(mpmath.log(found.sigma[3])) == pytest.approx(values.item(), rel=1e-15)
        close(stability.as_tensor([found.marginals]), gradients, 1e-15)
        close(stability.as_tensor([found.below]), oracle(x, 2)[1], 1e-15)
        with mpmath.workdps(stability.DIGITS):
            near, far = (stability.exact([mpmath.mpf(v) for v in (2, 1, 0, low)], 2) for low in (-130, -150))
        assert near.marginals[3] > far.marginals[3] == 0
        assert abs(near.sigma[2] - far.sigma[2]) < 1e-50

    @pytest.mark.parametrize('tau', [1, 0.1])
    def test_many_digits_give_the_gradient_of_the_loss(self, stability, tau):
        (scores,) = draw(1, 9)
        with stability.mpmath.workdps(stability.DIGITS):
            found = stability.exact_gradient(scores.tolist(), 4, 3, tau)
        expected = 3 * reference.smooth_topk_loss(scores.numpy(), 4, 3, tau).gradient
        close(stability.as_tensor([found])[0], torch.from_numpy(expected.astype(np.float64)), 1e-13)

    def test_scores_have_outliers_and_labels_are_among_the_highest(self):
        stability = topk_stability
        scores, target = stability.generate(0)
        assert scores.shape == (stability.ROWS, stability.N_LABELS)
        assert scores.median() == pytest.approx(0, abs=0.1)
        assert scores.std() == pytest.approx(2, abs=0.3)
        assert (scores.topk(5).values.mean(1) > 8).float().mean() > 0.5, 'higher than 1000 normal numbers'
        assert ((scores > scores.gather(1, target[:, None])).sum(1) < 10).all()
        assert torch.equal(stability.generate(0).scores, scores)
        assert not torch.equal(stability.generate(1).scores, scores)

    def test_overflow_occurs_as_in_the_paper(self, stability):
        batch = stability.generate(0)
        plain, logarithms, own = stability.FORWARD.values()
        for dtype, overflow in ((torch.float32, 0.1), (torch.float64, 0.01)):
            assert stability.is_finite(plain, batch, 10 * overflow, dtype)
            assert not stability.is_finite(plain, batch, overflow, dtype)
            assert stability.is_finite(logarithms, batch, 1e-36, dtype)
            assert stability.is_finite(own, batch, 1e-36, dtype)

    def test_only_sums_of_logarithms_survive(self, stability):
        done = stability.reproduce([0, 1])
        rows = {(row['gradient'], row['precision'], row['τ']): row for row in done.results['gradients']}
        assert len(rows) == 8 * 2 * 3
        rounding = {'float32': 3e-7, 'float64': 1e-14}
        for precision, tiny in rounding.items():
            for tau in stability.TAUS:
                own = rows[stability.OWN, precision, tau]
                assert own['share that is not finite'] == 0
                assert max(own['largest error'], own['largest deviation of a sum'] / 5) < tiny
                assert not stability.is_wrong(rows[stability.LOSS, precision, tau])
            assert rows[stability.LOSS, precision, 1e-36]['from that of the hard loss'] < tiny
            assert rows[stability.LOSS, precision, 1]['from that of the hard loss'] > 0.01
            for name in ('Algorithm 2', 'Algorithm 3, differentiated'):
                assert not stability.is_wrong(rows[name, precision, 1])
                assert stability.is_wrong(rows[name, precision, 0.01])

    def test_failures_are_reported_and_drawn_and_one_of_the_package_would_be(self, stability, monkeypatch):
        done = stability.reproduce([0])
        assert 'overflows with SA (Algorithm 3) from τ = 0.01 | 0.01' in done.found
        assert 'Algorithm 2 from τ = 0.01 | 0.01' in done.found
        assert f'{stability.OWN} (at most ' in done.found
        [overflow] = [row for row in done.rows if row.get('no overflow') == 'SA (Algorithm 3)'][:1]
        assert [overflow[f'τ = {tau:g}'] for tau in stability.TAUS] == ['✓', '✗', '✗']
        lines = {line.get_label(): line.get_ydata() for line in done.figure.axes[0].lines}
        assert set(lines) == {*stability.MARGINALS, stability.LOSS}
        assert lines['Algorithm 3, differentiated'][0] < 1e-4
        assert min(lines['Algorithm 3, differentiated'][1:]) >= stability.NOT_FINITE
        assert max(lines[stability.OWN]) < 1e-4
        broken = {**stability.MARGINALS, stability.OWN: lambda x, k: (x.topk(k).values[:, -1:] <= x).to(x.dtype)}
        monkeypatch.setattr(stability, 'MARGINALS', broken)
        said = stability.reproduce([0]).found
        assert f'{stability.OWN} from τ = 1 | 1' in said
        assert f'{stability.OWN} (at most ' not in said


class TestTopkSpeed:
    def test_all_compute_the_same_loss(self, speed):
        scores, target = speed.data(20, 0)
        values = {name: loss(scores, target).item() for name, loss in speed.losses(20).items()}
        expected = smooth_topk_loss(scores, target).item()
        for name in (speed.OWN, speed.CUSTOM, speed.DIFFERENTIATED, speed.SUMMATION):
            assert values[name] == pytest.approx(expected, rel=1e-5)
        assert values[speed.CROSS_ENTROPY] != pytest.approx(expected, rel=1e-2)

    def test_leaves_tables_with_powers_a_picture_and_a_sentence(self, speed):
        done = speed.reproduce([0])
        assert [row['n'] for row in done.results['passes'] if row['algorithm'] == speed.SUMMATION] == [20, 30]
        assert [row['n'] for row in done.results['over n'] if row['step'] == speed.OWN] == [20, 40]
        assert [row['k'] for row in done.results['over k'] if row['step'] == speed.OWN] == [1, 2]
        for row in done.results['passes']:
            assert row['backward / forward'] == pytest.approx(row['backward ms'] / row['forward ms'])
        assert all(row['peak memory / input'] > 1 for row in done.results['over n'])
        assert len(done.rows) == sum(map(len, done.results.values()))
        assert 'At n = 30 the backward pass' in done.found
        [forward, backward, over_n, over_k] = done.figure.axes
        assert len(forward.lines) == len(backward.lines) == len(speed.losses(20))
        assert len(over_n.lines) == len(over_k.lines) == 3
        low, high = over_n.lines[-1].get_ydata()
        assert high / low == pytest.approx(2), 'the line of slope 1'
        rows = [{'step': speed.OWN, 'n': n, 'median ms': 3 * n**1.5} for n in (10, 100, 1000)]
        assert speed.growth(rows, 'n') == 'n^1.50 from 100 to 1000'

    def test_a_peer_that_is_installed_takes_part(self, speed, monkeypatch):
        module = ModuleType('difftopk')
        module.__spec__ = ModuleSpec('difftopk', None)
        asked = {}

        def build(**settings):
            asked.update(settings)
            return lambda scores, target: scores.sum()

        module.TopKCrossEntropyLoss = build
        monkeypatch.setitem(sys.modules, 'difftopk', module)
        assert speed.DIFFTOPK in [row['algorithm'] for row in speed.passes(20, 0)]
        assert (asked['n'], asked['m'], sum(asked['p_k']), len(asked['p_k'])) == (20, 16, 1, 5)


def test_the_package_needs_no_inversion():
    """Algorithm 1 multiplies by all numbers in the end, and loses digits by it."""
    x = draw(4, 1000).float()
    truth = algorithms.log_summation(x.double(), 5)[:, -1]
    off = {f: (f(x, 5)[:, -1] - truth).abs().max() for f in (algorithms.divide_and_conquer, log_elementary_symmetric)}
    assert off[log_elementary_symmetric] < 5e-6
    assert off[algorithms.divide_and_conquer] > 2 * off[log_elementary_symmetric]
