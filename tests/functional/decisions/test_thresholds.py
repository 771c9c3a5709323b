"""Promises of thresholds hold in simulations. This file is also the program of the processes that fit."""

import copy
import json
import math
import pickle

import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from reference import promises as reference

from mmseg_nondecomp.functional._inputs import in_one_process
from mmseg_nondecomp.functional.decisions._promises import allowed_misses, required_mean
from mmseg_nondecomp.functional.decisions._threshold_counts import (
    ONE,
    ThresholdCounts,
    probabilities,
    read_logits,
    threshold_grid,
)
from mmseg_nondecomp.functional.decisions.thresholds import Thresholds
from mmseg_nondecomp.losses._distributed import sum_over

N_PROCESSES = 2


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def items(n=400, n_classes=1, seed=0, shape=()):
    """Logits [n, C, *] that are higher for the label, and labels [n, *]."""
    g = generator(seed)
    labels = torch.randint(0, max(2, n_classes), (n, *shape), generator=g)
    logits = torch.randn(n, n_classes, *shape, generator=g)
    of_class = labels.unsqueeze(1) == (1 if n_classes == 1 else torch.arange(n_classes).view(-1, *[1] * len(shape)))
    return logits + 2 * of_class, labels


def alike_images(n, n_pixels, seed=0, n_classes=1):
    """Logits [n, C, 1, P] of positives and negatives: the pixels of an image share most of their difficulty."""
    g = generator(seed)
    difficulty = 1.5 * torch.randn(n, n_classes, 1, 1, generator=g)
    own = 0.7 * torch.randn(n, n_classes, 1, n_pixels, generator=g)
    labels = torch.rand(n, n_classes, 1, n_pixels, generator=g).lt(0.4).long()
    labels[..., 0] = 1
    return (2 * labels - 1) * (1.5 - difficulty) + own, labels


def curves(logits, labels):
    """Return the counts above each threshold and the recalls, for each image."""
    rows = []
    for image, label in zip(logits, labels, strict=True):
        counts = ThresholdCounts([0], 2048, logits.device)
        counts.add(read_logits(image[None], label[None], None, None, {}), None)
        rows.append((counts.above[0], counts.reached[0]))
    above, reached = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return above.double(), reached.double() / 2**ONE


def last(mask):
    """Return the place of the last True of each row; the first is True."""
    return mask.long().cumprod(1).sum(1) - 1


def halves(n, repeats=1000, seed=0):
    """Return random halves of n units, as rows of 0 and 1 in float64."""
    return torch.rand(repeats, n, generator=generator(seed)).argsort(1).lt(n // 2).double()


# Promises


@pytest.mark.parametrize('n', [50, 200, 1000])
def test_promised_recall_of_items_holds_and_is_not_wasteful(n):
    """Each channel is a repetition: all items are positives with scores from one distribution."""
    repeats, recall, confidence = 4000, 0.9, 0.95
    g = generator(n)
    parts = []
    for _ in range(4):
        fitted, new = (torch.rand(n, repeats // 4, generator=g).logit() for _ in range(2))
        thresholds = Thresholds.fit(
            [(fitted, torch.ones_like(fitted))], recall=recall, confidence=confidence, mode='multilabel'
        )
        parts.append(thresholds(new).double().mean(0))
    kept = (torch.cat(parts) >= recall).double().mean().item()
    k = allowed_misses(n, recall, confidence)
    exact = 1 - reference.error_of_items(n, k, n, recall)
    print(f'\nn = {n}: recall kept in {kept:.4f}, exactly {exact:.4f} without a grid, {k} misses allowed')
    assert confidence <= exact
    assert exact - 4 * math.sqrt(0.05 / repeats) <= kept <= exact + 0.02
    assert n < 1000 or exact < 0.965


def test_promised_recall_of_the_population_holds():
    n, repeats = 300, 2000
    fitted = torch.rand(n, repeats, generator=generator()).logit()
    thresholds = Thresholds.fit(
        [(fitted, torch.ones_like(fitted))], recall=0.9, n_new=math.inf, mode='multilabel', bins=1024
    )
    kept = (1 - torch.tensor(thresholds.values) >= 0.9).double().mean().item()
    print(f'\nrecall of the population kept in {kept:.4f}')
    assert 0.95 - 3 * math.sqrt(0.0475 / repeats) <= kept < 0.975


@pytest.mark.parametrize('n', [50, 100, 300])
def test_promised_recall_of_images_holds(n):
    repeats = 400
    kept = []
    for seed in range(2):
        fitted, labels = alike_images(n, 12, seed, repeats // 2)
        new, new_labels = alike_images(n, 12, 100 + seed, repeats // 2)
        thresholds = Thresholds.fit([(fitted, labels)], recall=0.9, mode='multilabel', bins=512)
        hits = (thresholds(new) * new_labels).sum((2, 3)) / new_labels.sum((2, 3))
        kept.append(hits.double().mean(0) >= 0.9)
    share = torch.cat(kept).double().mean().item()
    print(f'\n{n} images: mean recall kept in {share:.4f}; bound {required_mean(n, 0.9, 0.95):.4f}')
    assert share >= 0.95 - 3 * math.sqrt(0.0475 / repeats)


def test_pixels_as_items_break_the_promise_that_images_keep():
    repeats, n = 300, 60
    fitted, labels = alike_images(n, 40, 0, repeats)
    new, new_labels = alike_images(n, 40, 1, repeats)
    kept = {}
    for unit in ('item', 'image'):
        thresholds = Thresholds.fit([(fitted, labels)], recall=0.9, unit=unit, mode='multilabel', bins=512)
        hits = thresholds(new) * new_labels
        of_images = (hits.sum((2, 3)) / new_labels.sum((2, 3))).mean(0)
        recalls = of_images if unit == 'image' else hits.sum((0, 2, 3)) / new_labels.sum((0, 2, 3))
        kept[unit] = (recalls >= 0.9).double().mean().item()
    print(f'\npromise of 0.95 kept: {kept}')
    assert kept['item'] < 0.75
    assert kept['image'] >= 0.95


@pytest.mark.parametrize('n_images', [120, 400])
def test_promised_recall_holds_in_resampled_splits(n_images):
    """Fit on random halves of a pool of images and measure on the others; the same with positives as items."""
    above, recalls = curves(*alike_images(n_images, 60))
    half = n_images // 2
    fitted = halves(n_images)
    place = last(fitted @ recalls >= half * required_mean(half, 0.9, 0.95))[:, None]
    found = ((1 - fitted) @ recalls / half).gather(1, place)
    hits, wrong = (((1 - fitted) @ above[:, label]).gather(1, place) for label in (1, 0))
    kept, precision = (found >= 0.9).double().mean().item(), (hits / (hits + wrong)).mean().item()
    print(f'\n{n_images} images: promise kept in {kept:.3f} of 1000 splits, recall {found.mean():.4f}, ', end='')
    print(f'precision {precision:.4f}')
    assert kept >= 0.95


def test_promised_recall_of_items_holds_in_resampled_splits():
    logits, labels = items(2000)
    positives, negatives = (logits[labels == label].sigmoid() for label in (1, 0))
    n = len(positives) // 2
    thresholds = threshold_grid(4096)
    reached, wrong = (
        (scores >= thresholds).double() for scores in (positives[: 2 * n], negatives[: len(negatives) // 2 * 2])
    )
    fitted, fitted_wrong = halves(2 * n), halves(len(wrong), seed=1)
    place = last(n - fitted @ reached <= allowed_misses(n, 0.9, 0.95))[:, None]
    found = ((1 - fitted) @ reached).gather(1, place)
    precision = found / (found + ((1 - fitted_wrong) @ wrong).gather(1, place))
    kept = (found / n >= 0.9).double().mean().item()
    print(f'\n{n} positives: promise kept in {kept:.3f} of 1000 splits, recall {(found / n).mean():.4f}, ', end='')
    print(f'precision {precision.mean():.4f}')
    assert kept >= 0.95 - 0.5 * math.sqrt(0.0475 / 1000)


def test_promised_precision_holds():
    """The precision of a threshold t is (1 + t) / 2: scores are uniform, and probabilities that they are right."""
    repeats, n = 600, 3000
    g = generator()
    scores = torch.rand(n, repeats, generator=g, dtype=torch.float64)
    labels = (torch.rand(n, repeats, generator=g) < scores).double()
    thresholds = Thresholds.fit([(scores.logit(), labels)], precision=0.8, mode='multilabel', bins=1024)
    true = (1 + torch.tensor(thresholds.values, dtype=torch.float64)) / 2
    error = (true < 0.8).double().mean().item()
    print(f'\nprecision too low in {error:.4f}; on average {true.mean():.4f} for 0.8')
    assert error <= 0.05
    assert true.mean() < 0.84


def test_largest_threshold_is_that_of_the_order_statistic():
    logits, labels = items(500)
    scores = logits[labels == 1, 0].double().sigmoid().sort()[0]
    for n_new in (None, math.inf, 1000):
        row = Thresholds.fit([(logits, labels)], recall=0.8, confidence=0.9, n_new=n_new).report[0]
        k = allowed_misses(len(scores), 0.8, 0.9, n_new)
        assert row.threshold <= scores[k] < row.threshold * 1.05
        assert row.n_units == len(scores)
        assert row.recall == (scores >= row.threshold).double().mean()
        decided = logits[:, 0].sigmoid() >= row.threshold
        assert row.precision == pytest.approx((labels[decided] == 1).double().mean().item())


def test_threshold_of_images_is_the_largest_with_the_required_mean():
    logits, labels = alike_images(80, 30)
    thresholds = Thresholds.fit([(logits, labels)], recall=0.8)
    (row,) = thresholds.report
    assert thresholds.criterion.unit == 'image'
    assert row.n_units == 80
    required = required_mean(80, 0.8, 0.95)
    grid = threshold_grid(4096)
    higher = grid[grid > row.threshold][0].item()

    def mean_recall(threshold):
        hits = (logits.sigmoid() >= threshold) & (labels == 1)
        return (hits.sum((1, 2, 3)) / (labels == 1).sum((1, 2, 3))).double().mean().item()

    assert mean_recall(higher) < required <= mean_recall(row.threshold)
    assert row.recall == pytest.approx(mean_recall(row.threshold), abs=1e-8)


@pytest.mark.parametrize('beta', [0.5, 1.0, 2.0])
def test_f_beta_is_the_largest_of_all_thresholds(beta):
    logits, labels = items(300, seed=3)
    thresholds = Thresholds.fit([(logits, labels)], f_beta=beta)
    probs, positive = logits[:, 0].sigmoid(), labels == 1

    def f(threshold):
        decided = probs >= threshold
        hits = (decided & positive).sum()
        return ((1 + beta**2) * hits / (beta**2 * positive.sum() + decided.sum())).item()

    assert f(thresholds.values[0]) >= max(map(f, threshold_grid(4096).tolist())) - 1e-6
    assert thresholds.report[0].needed is None


def test_middle_of_the_best_thresholds_is_taken():
    thresholds = Thresholds.fit([(torch.tensor([[-4.0], [4.0]]), torch.tensor([0, 1]))], f_beta=1.0)
    assert thresholds.values[0] == pytest.approx(0.5, abs=0.01)


def test_bins_are_those_of_the_comparison():
    for dtype in (torch.float32, torch.float64):
        grid = threshold_grid(4096)
        probs = torch.cat([grid, grid.nextafter(torch.tensor(2.0)), grid.nextafter(torch.tensor(-1.0))]).clamp(0, 1)
        counts = ThresholdCounts([0], 4096, probs.device)
        counts._add_image(probs[None].to(dtype), torch.ones(1, len(probs), dtype=torch.bool), torch.tensor(True))
        assert counts.above[0, 1].tolist() == [(probs >= threshold).sum().item() for threshold in grid]
    assert grid[0] == 0
    assert grid[-1] == 1
    assert len(grid) > 3700


# What does not matter


def settings_of_fits():
    return {
        'items': (items(400), dict(recall=0.8)),
        'classes': (items(600, 3), dict(recall=0.8)),
        'images': (items(60, 3, shape=(4, 5)), dict(recall=0.8)),
        'precision': (items(900), dict(precision=0.7)),
        'f_beta': (items(200, 3, shape=(2, 2)), dict(f_beta=1.0)),
    }


@pytest.mark.parametrize('name', settings_of_fits())
def test_order_and_batches_do_not_matter(name):
    (logits, labels), settings = settings_of_fits()[name]
    expected = Thresholds.fit([(logits, labels)], **settings).state()
    order = torch.randperm(len(logits), generator=generator())
    batches = zip(logits[order].split(7), labels[order].split(7), strict=True)
    assert Thresholds.fit(batches, **settings).state() == expected


def find(rank):
    """Fit to every second item, with an ignored rest in the second process."""
    found = {}
    for name, ((logits, labels), settings) in settings_of_fits().items():
        batches = [(logits[rank::2], labels[rank::2]), (logits[:1], torch.full_like(labels[:1], 255))]
        found[name] = Thresholds.fit(batches, reduce=sum_over('world'), **settings).state()
    return found


def test_processes_fit_as_one(tmp_path):
    cases = settings_of_fits()
    expected = {name: Thresholds.fit([data], **settings).state() for name, (data, settings) in cases.items()}
    for found in found_by_ranks(__file__, tmp_path):
        assert found == expected


def test_ignored_items_do_not_count():
    logits, labels = items(300, 3, shape=(2,))
    expected = Thresholds.fit([(logits, labels)], recall=0.8).state()
    more = torch.cat([logits, torch.full_like(logits, torch.nan)])
    for ignored in (255, 7):
        given = torch.cat([labels, torch.full_like(labels, ignored)])
        ignore_index = None if ignored == 255 else ignored
        assert Thresholds.fit([(more, given)], recall=0.8, ignore_index=ignore_index).state() == expected


def test_half_precision_is_computed_in_float32():
    logits, labels = items(300)
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype)
        thresholds = Thresholds.fit([(half, labels)], recall=0.8)
        assert thresholds.values == Thresholds.fit([(half.float(), labels)], recall=0.8).values
        assert torch.equal(thresholds(half), thresholds(half.float()))


def test_layouts_of_one_channel_are_the_same():
    logits, labels = items(300, shape=(2, 2))
    expected = Thresholds.fit([(logits, labels)], recall=0.8)
    target = labels.unsqueeze(1)
    for batch in [(logits, target), (logits, target.float()), (logits.squeeze(1), target)]:
        assert Thresholds.fit([batch], recall=0.8).values == expected.values
    found = Thresholds.fit([(logits.squeeze(1), labels)], recall=0.8, mode='binary')
    assert found.values == expected.values
    assert torch.equal(found(logits.squeeze(1)), expected(logits))
    assert torch.equal(found(logits), expected(logits))


def test_one_hot_targets_are_class_indices():
    logits, labels = items(300, 3)
    one_hot = torch.nn.functional.one_hot(labels, 3).float()
    expected = Thresholds.fit([(logits, labels)], recall=0.8).values
    assert Thresholds.fit([(logits, one_hot)], recall=0.8).values == expected
    assert Thresholds.fit([(logits, labels)], recall=0.8, mode='multilabel').values != expected


# Decisions


def test_one_channel_is_compared_with_its_threshold():
    logits = torch.tensor([[-1.0], [0.0], [1.0], [torch.nan], [-torch.inf], [torch.inf]])
    assert Thresholds([0.5])(logits).tolist() == [0, 1, 1, 0, 0, 1]
    assert Thresholds([0.5])(logits[:, 0]).tolist() == [0, 1, 1, 0, 0, 1]
    assert Thresholds([0.0])(logits).tolist() == [1, 1, 1, 0, 1, 1]
    assert Thresholds([None])(logits).tolist() == [0, 1, 1, 0, 0, 1]
    assert Thresholds([0.5])(logits).dtype == torch.int64
    assert Thresholds([0.5])(torch.zeros(2, 1, 3, 4)).shape == (2, 3, 4)


def test_several_labels_are_compared_each_with_its_threshold():
    logits = torch.tensor([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]])
    thresholds = Thresholds([0.4, 0.7, None], mode='multilabel')
    assert thresholds(logits).tolist() == [[1, 0, 1], [1, 1, 1]]
    assert thresholds(logits.view(2, 3, 1, 1)).shape == (2, 3, 1, 1)


def decided_one_by_one(probs, values):
    reached = {c: p / max(t, 1e-37) for c, (p, t) in enumerate(zip(probs, values, strict=True)) if p >= t}
    if reached:
        return max(reached, key=reached.get)
    left = [c for c, t in enumerate(values) if math.isnan(t)] or range(len(values))
    return max(left, key=lambda c: probs[c])


@pytest.mark.parametrize(
    'values',
    [(0.2, 0.5, 0.1, 0.7), (0.9, 0.95, 0.9, 0.99), (None, 0.3, None, None), (None,) * 4, (0.0, 0.4, None, 1.0)],
)
def test_classes_compete_by_their_ratios(values):
    logits = 2 * torch.randn(500, 4, generator=generator(), dtype=torch.float64)
    thresholds = Thresholds(values)
    expected = [decided_one_by_one(row.tolist(), thresholds.values) for row in logits.softmax(1)]
    assert thresholds(logits).tolist() == expected
    in_maps = logits.view(5, 10, 10, 4).movedim(-1, 1)
    assert thresholds(in_maps).flatten().tolist() == expected
    if values == (None,) * 4:
        assert torch.equal(thresholds(logits), logits.argmax(1))


def test_map_is_the_mask_where_one_class_has_a_threshold():
    logits, labels = items(600, 4, shape=(3,))
    thresholds = Thresholds.fit([(logits, labels)], recall=0.9, classes=[2])
    (row,) = thresholds.report
    assert row.channel == 2
    assert [math.isnan(value) for value in thresholds.values] == [True, True, False, True]
    assert torch.equal(thresholds(logits) == 2, logits.softmax(1)[:, 2] >= row.threshold)


def test_nan_reaches_no_threshold_and_minus_infinity_is_the_probability_0():
    logits = torch.tensor([[torch.nan, 0.0, 0.0], [-torch.inf, 0.0, 1.0]])
    assert Thresholds([0.1, 0.2, 0.3])(logits).tolist() == [logits.softmax(1).argmax(1)[0].item(), 2]
    assert Thresholds([0.1, None, None])(logits).tolist() == [1, 2]


@pytest.mark.parametrize('shape', [(0, 3), (0, 3, 4, 4), (2, 3, 0, 5)])
def test_nothing_is_decided_for_nothing(shape):
    logits = torch.zeros(shape)
    assert Thresholds([0.3, None, 0.2])(logits).shape == (shape[0], *shape[2:])
    assert Thresholds([0.3, None, 0.2], mode='multilabel')(logits).shape == shape


def test_fitted_thresholds_decide_as_their_report_says():
    logits, labels = items(600, 3)
    for settings in (dict(), dict(mode='multilabel')):
        thresholds = Thresholds.fit([(logits, labels)], recall=0.8, **settings)
        probs = probabilities(logits, thresholds.mode)
        for row in thresholds.report:
            mask = probs[:, row.channel] >= row.threshold
            assert row.recall == mask[labels == row.channel].double().mean()
            if thresholds.mode == 'multilabel':
                assert torch.equal(thresholds(logits)[:, row.channel], mask.long())


# Too few examples, and other ends


def test_promise_that_too_few_examples_allow_is_refused():
    logits, labels = torch.randn(39, 1, generator=generator()), torch.ones(39, dtype=torch.long)
    with pytest.raises(ValueError, match=r'0.9 with confidence 0.95. It needs at least 40 positives. Found 39'):
        Thresholds.fit([(logits, labels)], recall=0.9)
    Thresholds.fit([(torch.cat([logits, logits[:1]]), torch.cat([labels, labels[:1]]))], recall=0.9)
    images, masks = logits[:, :, None, None], labels[:, None, None]
    with pytest.raises(ValueError, match=r'It needs at least 41 images with the class\. Found 39\.'):
        Thresholds.fit([(images, masks)], recall=0.9)
    with pytest.raises(ValueError, match=r'for `n_new=3`. It needs at least \d+ positives'):
        Thresholds.fit([(logits, labels)], recall=0.9, n_new=3)
    with pytest.raises(ValueError, match='at least 49 predicted positives'):
        Thresholds.fit([(logits, labels)], precision=0.9)


def test_classes_with_too_few_examples_have_no_threshold_and_a_warning():
    logits, labels = items(400, 4)
    labels[labels == 3] = 0
    labels[:3] = 3
    with pytest.warns(UserWarning, match=r'no threshold for class 3 that keeps .* at least 40 positives. Found 3.'):
        thresholds = Thresholds.fit([(logits, labels)], recall=0.9)
    assert math.isnan(thresholds.values[3])
    row = thresholds.report[3]
    assert (row.channel, row.n_units, row.needed) == (3, 3, 40)
    assert math.isnan(row.threshold)


def test_no_positives_and_no_negatives():
    logits = torch.randn(100, 1, generator=generator())
    nothing, everything = torch.zeros(100, dtype=torch.long), torch.ones(100, dtype=torch.long)
    for settings in (dict(recall=0.9), dict(precision=0.9), dict(f_beta=1.0)):
        with pytest.raises(ValueError, match='There is no threshold for class 0'):
            Thresholds.fit([(logits, nothing)], **settings)
        assert Thresholds.fit([(logits, everything)], **settings).report[0].precision == 1
    with pytest.raises(ValueError, match='Found 0'):
        Thresholds.fit([(logits, torch.full_like(nothing, 255))], recall=0.9)


def test_constant_probabilities_are_all_decided_the_same():
    labels = torch.tensor([0, 1]).repeat(50)
    logits = torch.full((100, 1), 0.3)
    thresholds = Thresholds.fit([(logits, labels)], recall=0.9)
    assert thresholds.report[0].recall == 1
    assert thresholds.report[0].precision == 0.5
    assert thresholds(logits).all()


def test_minus_infinity_is_the_lowest_score():
    logits, labels = items(200)
    logits[labels == 1] = -torch.inf
    thresholds = Thresholds.fit([(logits, labels)], recall=0.9)
    assert thresholds.values == (0.0,)
    assert thresholds(logits).all()


def test_nan_is_refused():
    logits, labels = items(100, 3)
    for value in (torch.nan, torch.inf):
        logits[5, 1] = value
        with pytest.raises(ValueError, match='`batches` should hold logits without NaN'):
            Thresholds.fit([(logits, labels)], recall=0.5)


def test_batches_pass_once():
    logits, labels = items(200)
    passed = iter([(logits, labels)])
    Thresholds.fit(passed, recall=0.8)
    assert next(passed, None) is None


@pytest.mark.parametrize(
    ('settings', 'error', 'message'),
    [
        (dict(), ValueError, 'Exactly one of `recall`, `precision` and `f_beta`'),
        (dict(recall=0.9, f_beta=1.0), ValueError, 'Exactly one'),
        (dict(recall=1.0), ValueError, r'`recall` should be in \(0, 1\)'),
        (dict(recall='0.9'), TypeError, '`recall` should be a number'),
        (dict(precision=0), ValueError, '`precision`'),
        (dict(f_beta=-1.0), ValueError, '`f_beta`'),
        (dict(recall=0.9, confidence=95), ValueError, '`confidence`'),
        (dict(recall=0.9, unit='pixel'), ValueError, '`unit` should be one of'),
        (dict(recall=0.9, unit='image'), ValueError, 'should have positions'),
        (dict(precision=0.9, unit='image'), ValueError, "`unit` should be 'item'"),
        (dict(recall=0.9, n_new=0), ValueError, '`n_new` should be at least 1'),
        (dict(recall=0.9, n_new=0.5), TypeError, '`n_new` should be an integer'),
        (dict(precision=0.9, n_new=100), ValueError, '`n_new` is for `recall`'),
        (dict(recall=0.9, classes='all'), TypeError, '`classes`'),
        (dict(recall=0.9, classes=[]), ValueError, '`classes`'),
        (dict(recall=0.9, classes=[1]), ValueError, '`classes` should list channels below 1'),
        (dict(recall=0.9, mode='binar'), ValueError, '`mode`'),
        (dict(recall=0.9, mode='multiclass'), ValueError, 'multiclass'),
        (dict(recall=0.9, ignore_index='255'), TypeError, '`ignore_index`'),
        (dict(recall=0.9, bins=1), ValueError, '`bins`'),
    ],
)
def test_settings_are_checked(settings, error, message):
    with pytest.raises(error, match=message):
        Thresholds.fit([items(200)], **settings)


def test_batches_are_checked():
    with pytest.raises(ValueError, match='`batches` should hold a pair'):
        Thresholds.fit([], recall=0.9)
    with pytest.raises(ValueError, match=r'logits of one layout\. Found 1 channels'):
        Thresholds.fit([items(50), items(50, 3)], recall=0.9)
    with pytest.raises(ValueError, match='units of items, and then'):
        Thresholds.fit([items(50), items(50, shape=(2, 2))], recall=0.9)
    with pytest.raises(ValueError, match="`unit='item'` if positions are independent"):
        Thresholds.fit([items(50, shape=(2, 2))], precision=0.9)
    with pytest.raises(ValueError, match='should be 0 or 1'):
        Thresholds.fit([(torch.zeros(4, 3), torch.full((4, 3), 0.3))], recall=0.9, mode='multilabel')
    assert Thresholds.fit([items(400, shape=(2, 2))], precision=0.7, unit='item').criterion.unit == 'item'


@pytest.mark.parametrize(
    ('values', 'mode', 'error'),
    [
        ([], None, ValueError),
        ([1.2], None, ValueError),
        ([-0.1], None, ValueError),
        (0.5, None, TypeError),
        ('0.5', None, TypeError),
        (['a'], None, TypeError),
        ([True], None, TypeError),
        ([0.5], 'multiclass', ValueError),
        ([0.5, 0.5], 'binary', ValueError),
        ([0.5], 'soft', ValueError),
    ],
)
def test_thresholds_are_checked(values, mode, error):
    with pytest.raises(error, match='Parameter `'):
        Thresholds(values, mode)


def test_logits_are_checked():
    with pytest.raises(ValueError, match=r'of shape \[N, 2, \*\]'):
        Thresholds([0.5, 0.5])(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r'of shape \[N, 1, \*\]'):
        Thresholds([0.5])(torch.zeros(4, 3, 3))
    with pytest.raises(TypeError, match='floating-point'):
        Thresholds([0.5])(torch.zeros(4, 1, dtype=torch.long))
    with pytest.raises(TypeError, match='should be a tensor'):
        Thresholds([0.5])([0.1])


# States


@pytest.mark.parametrize('name', settings_of_fits())
def test_state_is_plain_and_complete(name):
    data, settings = settings_of_fits()[name]
    fitted = Thresholds.fit([data], **settings)
    state = json.loads(json.dumps(fitted.state(), allow_nan=False))
    found = Thresholds.from_state(state)
    assert found.state() == fitted.state()
    assert torch.equal(found(data[0]), fitted(data[0]))
    assert found.criterion == fitted.criterion
    assert found.report == fitted.report
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert other.state() == fitted.state()


def test_state_of_a_class_without_threshold_and_of_a_promise_for_the_population():
    logits, labels = items(400, 3)
    labels[labels == 1] = 0
    with pytest.warns(UserWarning, match='class 1'):
        fitted = Thresholds.fit([(logits, labels)], recall=0.9, n_new=math.inf)
    state = json.loads(json.dumps(fitted.state(), allow_nan=False))
    assert state['values'][1] is None
    assert state['criterion']['n_new'] == 'inf'
    assert Thresholds.from_state(state).state() == state


def spoilt(**changes):
    state = Thresholds.fit([items(200)], recall=0.8).state()
    for name, value in changes.items():
        *outer, last_name = name.split('__')
        part = state
        for key in outer:
            part = part[0] if key == 'row' else part[key]
        part[last_name] = value
    return state


@pytest.mark.parametrize(
    'state',
    [
        None,
        [],
        {},
        {'values': [0.5]},
        spoilt(more=1),
        spoilt(values='a'),
        spoilt(values=[2.0]),
        spoilt(mode='soft'),
        spoilt(criterion={}),
        spoilt(criterion__measure='accuracy'),
        spoilt(criterion__value=2),
        spoilt(criterion__n_new='many'),
        spoilt(criterion__unit='pixel'),
        spoilt(report=None),
        spoilt(report=[{}]),
        spoilt(report__row__channel=1),
        spoilt(report__row__recall='high'),
        spoilt(report__row__n_units=-1),
        spoilt(report__row__needed='few'),
    ],
)
def test_states_are_checked(state):
    with pytest.raises(ValueError, match='Parameter `state`'):
        Thresholds.from_state(state)


def test_one_process_is_the_default():
    assert sum_over('world') is in_one_process


if __name__ == '__main__':
    find_as_a_process(find)
