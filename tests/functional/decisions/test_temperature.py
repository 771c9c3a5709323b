"""The temperature is that of an optimiser on all data. This file is also the program of the processes that fit."""

import math

import pytest
import torch
import torch.nn.functional as F
from processes import find_as_a_process, found_by_ranks
from scipy.optimize import minimize_scalar

from mmseg_nondecomp.functional.decisions.temperature import HIGHEST, LOWEST, Temperature
from mmseg_nondecomp.losses._distributed import sum_over


def calibrated(n=4000, n_classes=4, seed=0, shape=()):
    """Logits [n, C, *], and labels that are drawn from their softmax, or their sigmoid."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, n_classes, *shape, generator=generator)
    if n_classes == 1:
        return logits, torch.bernoulli(logits.sigmoid(), generator=generator).squeeze(1).long()
    rows = logits.movedim(1, -1).softmax(-1)
    labels = torch.multinomial(rows.reshape(-1, n_classes), 1, generator=generator)
    return logits, labels.view(n, *shape)


def optimum(logits, target):
    """Minimise the cross-entropy of all items in float64; the target is an index, or 0 and 1 for a sigmoid."""

    def loss(log_temperature):
        scores = logits.double() / math.exp(log_temperature)
        if target.is_floating_point():
            return F.binary_cross_entropy_with_logits(scores, target.double()).item()
        return F.cross_entropy(scores, target).item()

    found = minimize_scalar(
        loss, bounds=(math.log(LOWEST), math.log(HIGHEST)), method='bounded', options={'xatol': 1e-9}
    )
    return math.exp(found.x)


@pytest.mark.parametrize('scale', [0.1, 0.7, 1.0, 3.0, 15.0])
def test_is_that_of_an_optimiser(scale):
    for shape in ((), (2, 3)):
        logits, labels = calibrated(600, shape=shape)
        assert Temperature.fit([(scale * logits, labels)]).value == pytest.approx(
            optimum(scale * logits, labels), rel=0.005
        )
    logits, labels = calibrated(2000, 1)
    expected = optimum(scale * logits, labels.unsqueeze(1).float())
    for target in (labels, labels.unsqueeze(1).float()):
        assert Temperature.fit([(scale * logits, target)]).value == pytest.approx(expected, rel=0.001)


def test_several_labels_have_a_sigmoid_each():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(800, 3, generator=generator)
    labels = torch.bernoulli(logits.sigmoid(), generator=generator)
    found = Temperature.fit([(4 * logits, labels)], mode='multilabel').value
    assert found == pytest.approx(optimum(4 * logits, labels), rel=0.001)
    assert found == pytest.approx(4, rel=0.1)


def test_labels_of_the_softmax_give_1_and_scaled_logits_their_scale():
    logits, labels = calibrated(40_000)
    temperature = Temperature.fit([(logits, labels)]).value
    assert temperature == pytest.approx(1, abs=0.02)
    assert Temperature.fit([(3 * logits, labels)]).value == pytest.approx(3 * temperature, rel=0.001)


def test_each_pass_refines_the_grid():
    logits, labels = calibrated()
    expected = optimum(logits, labels)
    for passes, error in ((1, 0.2), (2, 0.005), (3, 1e-4), (4, 1e-5)):
        assert abs(math.log(Temperature.fit([(logits, labels)], passes=passes).value / expected)) < error


def test_one_hot_labels_are_class_indices_and_shares_are_their_mean():
    logits, labels = calibrated(500)
    others = labels.roll(1)
    one_hot, other = F.one_hot(labels, 4).float(), F.one_hot(others, 4).float()
    expected = Temperature.fit([(logits, labels)]).value
    assert Temperature.fit([(logits, one_hot)]).value == pytest.approx(expected, rel=1e-7)
    both = Temperature.fit([(logits, labels), (logits, others)]).value
    assert Temperature.fit([(logits, (one_hot + other) / 2)]).value == pytest.approx(both, rel=1e-6)


def test_batches_may_be_a_loader_or_a_function():
    logits, labels = calibrated(300)
    expected = Temperature.fit([(logits, labels)]).value
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(logits, labels), batch_size=64)
    pairs = list(zip(logits.split(64), labels.split(64), strict=True))
    for batches in (loader, pairs, lambda: iter(pairs)):
        assert Temperature.fit(batches).value == pytest.approx(expected, rel=1e-7)
    with pytest.raises(TypeError, match=r'passes several times\. Found generator'):
        Temperature.fit(pair for pair in pairs)


def test_ignored_items_do_not_count_not_even_nan():
    logits, labels = calibrated(300)
    more = torch.cat([logits, torch.full_like(logits, torch.nan)])
    for ignored in (255, 7):
        given = torch.cat([labels, torch.full_like(labels, ignored)])
        found = Temperature.fit([(more, given)], ignore_index=None if ignored == 255 else ignored)
        assert found.value == pytest.approx(Temperature.fit([(logits, labels)]).value, rel=1e-7)


def test_minus_infinity_rules_a_class_out():
    logits, labels = calibrated(300)
    ruled_out = torch.cat([logits, torch.full((300, 1), -torch.inf)], 1)
    expected = Temperature.fit([(logits, labels)]).value
    for target in (labels, F.one_hot(labels, 5).float()):
        assert Temperature.fit([(ruled_out, target)]).value == pytest.approx(expected, rel=1e-7)
    with pytest.raises(ValueError, match='that of a label is -infinity'):
        Temperature.fit([(ruled_out, torch.full_like(labels, 4))])


def test_separated_data_give_the_lowest_temperature_and_wrong_labels_the_highest():
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    assert Temperature.fit([(logits, torch.tensor([0, 1]))]).value == pytest.approx(LOWEST)
    assert Temperature.fit([(logits, torch.tensor([1, 0]))]).value == pytest.approx(HIGHEST)


def test_constant_logits_give_1():
    labels = torch.tensor([0, 1, 2])
    assert Temperature.fit([(torch.full((3, 3), 7.3), labels)]).value == 1
    assert Temperature.fit([(torch.zeros(3, 1), labels.clamp(max=1))]).value == 1


def test_half_precision_is_computed_in_float32():
    logits, labels = calibrated(300)
    half = logits.half()
    assert Temperature.fit([(half, labels)]) == Temperature.fit([(half.float(), labels)])


def test_what_tells_nothing_is_refused():
    logits, labels = calibrated(10)
    with pytest.raises(ValueError, match='an item that is not ignored'):
        Temperature.fit([(logits, torch.full_like(labels, 255))])
    with pytest.raises(ValueError, match='a pair of logits and targets'):
        Temperature.fit([])
    for value in (torch.nan, torch.inf):
        logits[0, 0] = value
        with pytest.raises(ValueError, match='a finite cross-entropy'):
            Temperature.fit([(logits, labels)])


def test_divides_logits():
    logits = torch.randn(2, 3, 4, 5)
    assert torch.equal(Temperature(2.5)(logits), logits / 2.5)
    assert Temperature(2)(logits.half()).dtype == torch.float16
    for wrong in (torch.ones(2, dtype=torch.long), [1.0]):
        with pytest.raises(TypeError, match='`logits`'):
            Temperature(2.0)(wrong)


@pytest.mark.parametrize(
    ('value', 'error'), [(0, ValueError), (-1.0, ValueError), (math.nan, ValueError), ('1', TypeError)]
)
def test_value_is_checked(value, error):
    with pytest.raises(error, match='`value`'):
        Temperature(value)
    with pytest.raises(ValueError, match='`value`'):
        Temperature(math.inf)


@pytest.mark.parametrize(
    ('settings', 'error'),
    [(dict(passes=0), ValueError), (dict(mode='soft'), ValueError), (dict(ignore_index='255'), TypeError)],
)
def test_settings_are_checked(settings, error):
    with pytest.raises(error, match='Parameter `'):
        Temperature.fit([calibrated(10)], **settings)
    with pytest.raises(TypeError, match='`batches`'):
        Temperature.fit(7)


def find(rank):
    """Fit to every second item, with nothing that counts in a further batch."""
    logits, labels = calibrated(501)
    batches = [(logits[rank::2], labels[rank::2]), (logits[:1], torch.full_like(labels[:1], 255))]
    return Temperature.fit(batches, reduce=sum_over('world')).value


def test_processes_fit_as_one(tmp_path):
    first, second = found_by_ranks(__file__, tmp_path)
    assert first == second == pytest.approx(Temperature.fit([calibrated(501)]).value, rel=1e-7)


if __name__ == '__main__':
    find_as_a_process(find)
