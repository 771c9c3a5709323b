import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import lovasz as reference
from torchmetrics.functional.classification import multiclass_jaccard_index

from mmseg_nondecomp.functional import lovasz_softmax
from mmseg_nondecomp.functional.error_cells import ProbabilityCells

LOGITS = {
    'random': lambda x, labels: x,
    'confident': lambda x, labels: 3 * x + 8 * labels,
    'collapsed': lambda x, labels: x + 4 * torch.eye(x.shape[1], dtype=x.dtype)[0].view(1, -1, *[1] * (x.dim() - 2)),
    'wrong': lambda x, labels: x - 40 * labels,
    'tied': lambda x, labels: x.round(),
    'flat': lambda x, labels: 0 * x,
}
each_family = pytest.mark.parametrize('family', LOGITS)
exact_and_binned = pytest.mark.parametrize('bins', [None, 1024])


def scene(family, n_classes, shape=(3, 50), seed=0, dtype=torch.float64):
    """Logits and labels, in which the last class is in no image but the first, where it is in one pixel."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(max(1, n_classes - 1), shape, generator=generator)
    target[0].view(-1)[0] = n_classes - 1
    x = torch.randn(shape[0], n_classes, *shape[1:], generator=generator, dtype=torch.float64)
    return LOGITS[family](x, F.one_hot(target, n_classes).movedim(-1, 1)).to(dtype), target


def blocks(n_classes, size):
    """Labels of one image in which classes lie together, as they do in photographs."""
    labels = torch.randint(n_classes, (1, size // 8, size // 8), generator=torch.Generator().manual_seed(0))
    return labels.repeat_interleave(8, 1).repeat_interleave(8, 2)


@each_family
@pytest.mark.parametrize('n_classes', [2, 3, 5])
@pytest.mark.parametrize('per_image', [False, True])
@pytest.mark.parametrize('ignore_index', [None, 255, 0, -7])
def test_equals_the_oracle(family, n_classes, per_image, ignore_index):
    logits, target = scene(family, n_classes, (3, 25))
    probs = logits.softmax(1)
    if ignore_index is not None:
        target[:, 5:15] = ignore_index
    class_weight = torch.arange(n_classes) / 2
    for classes in ('present', 'all', [n_classes - 1, 0]):
        for weight in (None, class_weight if per_image else class_weight.tolist()):
            found = lovasz_softmax(probs, target, classes, per_image, ignore_index, weight)
            expected = reference.lovasz_softmax(probs, target, classes, per_image, ignore_index, weight)
            assert found.item() == pytest.approx(float(expected), rel=1e-12, abs=1e-15)


@each_family
@pytest.mark.parametrize('per_image', [False, True])
@pytest.mark.parametrize('ignore_index', [None, 255, 0])
def test_one_channel_is_the_foreground_of_two(family, per_image, ignore_index):
    logits, target = scene(family, 2)
    target[:, :9] = 1
    if ignore_index is not None:
        target[:, 5:30] = ignore_index
    probs = logits.softmax(1)
    expected = reference.lovasz_softmax(probs, target, [1], per_image, ignore_index)
    for classes in ('present', 'all', [0]):
        found = lovasz_softmax(probs[:, 1:], target, classes, per_image, ignore_index)
        assert found.item() == pytest.approx(float(expected), rel=1e-12)
        binned = lovasz_softmax(probs[:, 1:], target, classes, per_image, ignore_index, bins=64)
        assert 0 <= found.item() - binned.item() + 1e-12 <= 1 / 128


@pytest.mark.parametrize('shape', [(4, 3), (4, 3, 6), (2, 3, 4, 5), (2, 3, 2, 2, 2)], ids=str)
@exact_and_binned
def test_any_number_of_dimensions(shape, bins):
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(shape, generator=generator).double()
    target = torch.randint(3, (shape[0], *shape[2:]), generator=generator)
    flat = probs.movedim(1, -1).reshape(1, -1, 3).transpose(1, 2), target.reshape(1, -1)
    expected = reference.lovasz_softmax(*flat)
    assert lovasz_softmax(probs, target, bins=bins).item() == pytest.approx(
        float(expected), abs=1e-3 if bins else 1e-12
    )


@each_family
@pytest.mark.parametrize('bins', [4, 64, 1024])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_binned_is_at_most_half_a_bin_below_exact(family, bins, dtype):
    for n_classes in (1, 2, 5):
        logits, target = scene(family, n_classes, (3, 400), dtype=dtype)
        probs = logits.softmax(1) if n_classes > 1 else logits.sigmoid()
        for settings in ({}, {'classes': 'all'}, {'per_image': True}, {'ignore_index': 0}):
            exact, binned = (lovasz_softmax(probs, target, **settings, bins=b).item() for b in (None, bins))
            assert -1e-6 <= exact - binned <= 1 / (2 * bins)


@pytest.mark.parametrize('bins', [4, 64, 1024])
@pytest.mark.parametrize('high', ['foreground', 'background', 'one', 'half'])
@pytest.mark.parametrize('share', [0, 1 / 100, 1 / 2, 1])
def test_binned_is_within_half_a_bin_where_errors_lie_at_both_edges_of_a_cell(bins, high, share):
    rng = np.random.default_rng(0)
    target = rng.permutation(100) < 100 * share
    is_high = {
        'foreground': target,
        'background': ~target,
        'one': np.arange(100) == 50,
        'half': np.arange(100) % 2 == 0,
    }[high]
    below = []
    for cell in (1, bins, 3 * bins // 2, 3 * bins):
        low_edge, high_edge = np.sin(np.arcsin((np.array([cell - 1, cell]) / 1.5 / bins - 1) / 2**0.5) + np.pi / 4) ** 2
        errors = np.where(is_high, high_edge - 1e-10, low_edge + 1e-10)
        assert (ProbabilityCells(bins).of(torch.tensor(errors)) == cell).all()
        probs = torch.tensor(np.where(target, 1 - errors, errors)).view(1, 1, -1)
        exact, binned = (
            lovasz_softmax(probs, torch.tensor(target)[None].long(), 'all', bins=b).item() for b in (None, bins)
        )
        below.append(exact - binned)
    assert min(below) >= -1e-12
    assert max(below) <= 1 / (2 * bins)
    if (share, high) == (0, 'one'):
        assert max(below) > 0.45 / bins  # no narrower statement is true


@pytest.mark.parametrize('bins', [1, 7, 1024])
def test_nothing_is_lost_where_errors_lie_on_a_grid_of_bins(bins):
    generator = torch.Generator().manual_seed(0)
    errors = (torch.randint(bins, (2, 1, 500), generator=generator).double() + 0.5) / bins
    target = torch.randint(2, (2, 500), generator=generator)
    probs = torch.where(target.unsqueeze(1) == 1, 1 - errors, errors)
    exact = lovasz_softmax(probs, target).item()
    assert lovasz_softmax(probs, target, bins=bins).item() == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize('family', ['random', 'confident', 'collapsed'])
@pytest.mark.parametrize(('n_classes', 'size'), [(2, 96), (19, 64), (150, 64)])
def test_the_binned_gradient_is_within_two_thousandths(family, n_classes, size):
    target = blocks(n_classes, size)
    x = torch.randn(1, n_classes, size, size, generator=torch.Generator().manual_seed(1))
    logits = LOGITS[family](x, F.one_hot(target, n_classes).movedim(-1, 1)).requires_grad_()
    probs = logits.softmax(1)
    exact, binned = (
        torch.autograd.grad(lovasz_softmax(probs, target, bins=bins), logits, retain_graph=True)[0]
        for bins in (None, 1024)
    )
    assert (binned - exact).norm() <= 2e-3 * exact.norm()


@pytest.mark.parametrize('n_classes', [1, 2, 3, 5])
@exact_and_binned
def test_gradcheck(n_classes, bins):
    logits, target = scene('random', n_classes, (2, 4), seed=1)
    activate = torch.sigmoid if n_classes == 1 else lambda x: x.softmax(1)
    if bins:
        probs = activate(logits)
        errors = torch.cat([probs, 1 - probs])
        cells = ProbabilityCells(bins)
        assert all(torch.equal(cells.of(errors + step), cells.of(errors)) for step in (-1e-7, 1e-7))
    for settings in ({}, {'per_image': True, 'classes': 'all'}, {'ignore_index': 0}):
        assert torch.autograd.gradcheck(
            lambda x, settings=settings: lovasz_softmax(activate(x), target, **settings, bins=bins),
            logits.clone().requires_grad_(),
            eps=1e-7,
        )


@pytest.mark.parametrize('n_classes', [2, 4, 10])
@exact_and_binned
def test_one_minus_the_jaccard_index_on_hard_predictions(n_classes, bins):
    rng = np.random.default_rng(0)
    decided, target = torch.tensor(rng.integers(0, n_classes, (2, 2, 300)))
    target[target == n_classes - 1] = 0  # decided, never true
    target[:, :50] = 255
    index = multiclass_jaccard_index(decided, target, n_classes, average='none', ignore_index=255)
    present = target[target != 255].unique()
    found = lovasz_softmax(F.one_hot(decided, n_classes).movedim(-1, 1).float(), target, bins=bins)
    assert found.item() == pytest.approx(1 - index[present].mean().item(), rel=1e-6)


@pytest.mark.parametrize('n_classes', [2, 3, 5, 10])
@pytest.mark.parametrize('bins', [None, 4, 1024])
def test_wholly_wrong_is_one(n_classes, bins):
    _, target = scene('random', n_classes)
    wrong = F.one_hot((target + 1) % n_classes, n_classes).movedim(-1, 1).float()
    for settings in ({}, {'per_image': True}, {'class_weight': range(1, n_classes + 1)}):
        assert lovasz_softmax(wrong, target, **settings, bins=bins).item() == pytest.approx(1, rel=1e-6)
    assert lovasz_softmax(1 - wrong, target, bins=bins).item() < 1


@pytest.mark.parametrize('bins', [None, 4, 1024])
def test_wholly_right_is_zero(bins):
    _, target = scene('random', 5)
    right = F.one_hot(target, 5).movedim(-1, 1).float().requires_grad_()
    loss = lovasz_softmax(right, target, 'all', bins=bins)
    assert loss.item() == 0
    loss.backward()
    assert right.grad.isfinite().all()


@exact_and_binned
@pytest.mark.parametrize('family', LOGITS)
def test_a_weighted_mean_is_never_above_one(family, bins):
    logits, target = scene(family, 5)
    probs = logits.softmax(1)
    losses = [lovasz_softmax(probs, target, [c], bins=bins).item() for c in range(5)]
    for weight in ([1, 20, 20, 20, 20], [0, 0, 0, 0, 1e6], [1e-6, 1, 0, 0, 0]):
        found = lovasz_softmax(probs, target, class_weight=weight, bins=bins).item()
        assert found == pytest.approx(np.average(losses, weights=weight), rel=1e-12)
        assert found <= 1 + 1e-12


@exact_and_binned
def test_class_weights_are_as_precise_as_the_scores(bins):
    logits, target = scene('random', 3)
    loss, thirds = (
        lovasz_softmax(logits.softmax(1), target, [0, 1], class_weight=weight, bins=bins).item()
        for weight in ([1, 3, 0], [1 / 3, 1, 0])
    )
    assert thirds == pytest.approx(loss, rel=1e-14)


@exact_and_binned
def test_an_absent_class_costs_the_highest_probability_that_it_gets(bins):
    probs = scene('random', 4)[0].softmax(1)
    target = torch.arange(150).view(3, 50) % 3
    present, every = (lovasz_softmax(probs, target, classes, bins=bins).item() for classes in ('present', 'all'))
    highest = probs[:, 3].max().item()
    tolerance = 1 / 2048 if bins else 1e-12
    assert lovasz_softmax(probs, target, [3], bins=bins).item() == pytest.approx(highest, abs=tolerance)
    assert every == pytest.approx((3 * present + highest) / 4, abs=tolerance)


@pytest.mark.parametrize('classes', ['present', 'all', [0]], ids=str)
@pytest.mark.parametrize('n_classes', [1, 3])
@pytest.mark.parametrize('per_image', [False, True])
@exact_and_binned
def test_nothing_valid_is_an_attached_zero(classes, n_classes, per_image, bins):
    logits = scene('random', n_classes)[0].requires_grad_()
    for part in (logits, logits[:0], logits[..., :0]):
        target = torch.full((len(part), part.shape[2]), 255)
        loss = lovasz_softmax(part.sigmoid(), target, classes, per_image, bins=bins)
        assert loss.item() == 0
        assert torch.autograd.grad(loss, logits)[0].eq(0).all()


@exact_and_binned
def test_no_class_that_counts_is_an_attached_zero(bins):
    probs = torch.rand(2, 1, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = lovasz_softmax(probs, torch.zeros(2, 9).long(), bins=bins)
    loss.backward()
    assert loss.item() == 0
    assert probs.grad.eq(0).all()


@pytest.mark.parametrize('n_classes', [1, 2, 3])
@exact_and_binned
def test_a_single_valid_pixel(n_classes, bins):
    logits, target = scene('random', n_classes)
    target[:], target[1, 7] = 255, 1
    probs = logits.softmax(1) if n_classes > 1 else logits.sigmoid()
    expected = 1 - probs[1, int(n_classes > 1), 7].item()
    for per_image in (False, True):
        found = lovasz_softmax(probs, target, per_image=per_image, bins=bins).item()
        assert found == pytest.approx(expected, rel=1e-12)


@exact_and_binned
def test_an_image_with_nothing_valid_is_not_averaged(bins):
    logits, target = scene('random', 3)
    target[1] = 255
    probs = logits.softmax(1)
    for classes in ('present', 'all', [1]):
        expected = lovasz_softmax(probs[[0, 2]], target[[0, 2]], classes, per_image=True, bins=bins).item()
        assert lovasz_softmax(probs, target, classes, per_image=True, bins=bins).item() == pytest.approx(expected)


@exact_and_binned
def test_the_loss_of_a_batch_is_not_the_mean_over_its_images(bins):
    logits, target = scene('random', 3)
    target[0], target[1:, 1:] = 0, 1
    probs = logits.softmax(1)
    of_batch, of_images = (lovasz_softmax(probs, target, per_image=each, bins=bins) for each in (False, True))
    assert (of_batch - of_images).abs() > 0.02


@exact_and_binned
def test_ignored_pixels_leave_no_trace(bins):
    logits, target = scene('random', 3)
    target[:, ::3] = 255
    probs = logits.softmax(1)
    poisoned = probs.masked_fill((target == 255).unsqueeze(1), math.nan).requires_grad_()
    loss = lovasz_softmax(poisoned, target, bins=bins)
    kept = target != 255
    expected = lovasz_softmax(probs.movedim(1, 2)[kept], target[kept], bins=bins)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    loss.backward()
    assert poisoned.grad.isfinite().all()
    assert poisoned.grad[:, :, ::3].eq(0).all()


@exact_and_binned
def test_a_nan_that_counts_is_not_hidden(bins):
    probs = scene('random', 3)[0].softmax(1)
    probs[1, :, 4] = math.nan
    assert lovasz_softmax(probs, torch.zeros(3, 50).long(), bins=bins).isnan()


@pytest.mark.parametrize('per_image', [False, True])
@pytest.mark.parametrize('bins', [None, 4, 1024])
def test_a_share_is_that_much_of_a_pixel(per_image, bins):
    rng = np.random.default_rng(0)
    probs = torch.tensor(rng.dirichlet(np.ones(3), (2, 30))).movedim(2, 1)
    shares = torch.tensor(rng.dirichlet(np.full(3, 0.5), (2, 30))).movedim(2, 1)
    shares[1, 2] = 0  # present in one image only
    shares[1] /= shares[1].sum(0)
    found = lovasz_softmax(probs, shares, per_image=per_image, bins=bins).item()
    copies, labels = probs.repeat(1, 1, 3), torch.arange(3).repeat_interleave(30).expand(2, -1)
    expected = float(reference.lovasz_softmax(copies, labels, per_image=per_image, mass=shares.flatten(1)))
    assert -1e-12 <= expected - found <= (1 / (2 * bins) if bins else 1e-12)


@exact_and_binned
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_hard_shares_are_labels(bins, dtype):
    logits, target = scene('random', 4, dtype=dtype)
    logits.requires_grad_()
    losses = [
        lovasz_softmax(logits.softmax(1), t, bins=bins) for t in (target, F.one_hot(target, 4).movedim(-1, 1).to(dtype))
    ]
    precision = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(*losses, rtol=precision, atol=0)
    gradients = (torch.autograd.grad(loss, logits)[0] for loss in losses)
    torch.testing.assert_close(*gradients, rtol=precision, atol=precision / 100)


def test_slopes_of_many_soft_pixels_do_not_cancel():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(1, 400_000, generator=generator) < 0.1).long()
    shares = F.one_hot(target, 2).movedim(-1, 1) * 0.9 + 0.05
    probs = torch.rand(1, 2, 400_000, generator=generator)
    single, double = (
        torch.autograd.grad(lovasz_softmax(p, shares.to(p)), p)[0].double()
        for p in (probs.clone().requires_grad_(), probs.double().requires_grad_())
    )
    assert (single - double).abs().max() < 1e-6 * double.abs().max()


@exact_and_binned
def test_layout_in_memory_is_no_matter(bins):
    logits, target = scene('random', 3, (2, 8, 6))
    expected = lovasz_softmax(logits.softmax(1), target, bins=bins).item()
    channels_last = logits.to(memory_format=torch.channels_last).requires_grad_()
    transposed = logits.transpose(2, 3).contiguous().transpose(2, 3).requires_grad_()
    sliced = torch.stack([logits, logits], 2)[:, :, 0].requires_grad_()
    for other in (channels_last, transposed, sliced):
        assert other.stride() != logits.stride()
        labels = target.transpose(1, 2).contiguous().transpose(1, 2)
        loss = lovasz_softmax(other.softmax(1), labels, bins=bins)
        assert loss.item() == pytest.approx(expected, rel=1e-12)
        loss.backward()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
@exact_and_binned
def test_half_precision_is_computed_in_float32(dtype, bins):
    logits, target = scene('random', 3, (2, 400), dtype=dtype)
    probs = logits.softmax(1).requires_grad_()
    loss = lovasz_softmax(probs, target, class_weight=[1, 2, 3], bins=bins)
    assert loss.dtype == torch.float32
    expected = lovasz_softmax(probs.float(), target, class_weight=[1, 2, 3], bins=bins)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    assert probs.grad.dtype == dtype
    assert probs.grad.isfinite().all()


@exact_and_binned
def test_more_pixels_than_half_precision_can_count(bins):
    probs = torch.full((1, 1, 70_000), 0.25, dtype=torch.float16)
    loss = lovasz_softmax(probs, torch.ones(1, 70_000).long(), bins=bins)
    assert loss.item() == pytest.approx(0.75, rel=1e-6)


@exact_and_binned
@pytest.mark.parametrize('rounding', [6e-8, 1e-6])
def test_probabilities_a_rounding_outside_their_range_do_no_harm(bins, rounding):
    target = (torch.arange(100) < 3).long()[None]
    for probs in (1 + rounding, -rounding):
        probs = torch.full((1, 1, 100), probs, dtype=torch.float64)
        found = lovasz_softmax(probs, target, bins=bins).item()
        assert found == pytest.approx(lovasz_softmax(probs.clamp(0, 1), target).item(), abs=1e-5)


@exact_and_binned
def test_a_negative_zero_is_no_probability(bins):
    probs, target = torch.tensor([[[0.0, 0.5, 0.25]]]), torch.tensor([[0, 1, 1]])
    signed = probs.copysign(torch.tensor([-1.0, 1, 1]))
    assert lovasz_softmax(signed, target, bins=bins) == lovasz_softmax(probs, target, bins=bins)


def test_eight_million_pixels():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(1, 2, 2048, 4096, generator=generator)
    torch.sub(1, probs[:, 0], out=probs[:, 1])
    target = (torch.rand(1, 2048, 4096, generator=generator) * 0.8 + 0.1 > probs[:, 0]).long()
    found = lovasz_softmax(probs, target, bins=1024).item()

    foreground = target.flatten().numpy()
    errors = np.abs(foreground - probs[:, 1].flatten().numpy().astype(np.float64))  # those of both classes
    order = np.sort(errors.view(np.int64) & -2 | foreground)[::-1]  # the last bit of a number tells its class
    errors, foreground = order.view(np.float64), order & 1 == 1
    losses = []
    for is_class in (foreground, ~foreground):
        hits, misses = np.cumsum(is_class), np.cumsum(~is_class)
        jaccard = 1 - (hits[-1] - hits) / (hits[-1] + misses)
        losses.append(errors @ np.diff(jaccard, prepend=0))
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


@exact_and_binned
@pytest.mark.parametrize('class_weight', [None, [1.0, 2.0, 3.0]], ids=str)
def test_compiles_without_graph_breaks(bins, class_weight):
    logits, target = scene('random', 3, dtype=torch.float32)
    target[:, ::5] = 255

    def loss(probs):
        return lovasz_softmax(probs, target, class_weight=class_weight, bins=bins)

    found = torch.compile(loss, fullgraph=True, backend='eager')(logits.softmax(1))
    assert found.item() == pytest.approx(loss(logits.softmax(1)).item(), rel=1e-6)


P, T = torch.full((2, 3, 5), 1 / 3), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: lovasz_softmax(P.long(), T), TypeError, '`probs`.*int64'),
        (lambda: lovasz_softmax(P[0, 0], T[0]), ValueError, r'`probs`.*\(5,\)'),
        (lambda: lovasz_softmax(P, T[:1]), ValueError, r'`target`.*\(2, 5\).*\(1, 5\)'),
        (lambda: lovasz_softmax(P, T + 3), ValueError, r'`target`.*\[0, 2\].*Found 3'),
        (lambda: lovasz_softmax(P, T - 1), ValueError, r'`target`.*\[0, 2\].*Found -1'),
        (lambda: lovasz_softmax(P[:, :1], T + 2), ValueError, r'`target`.*\[0, 1\].*Found 2'),
        (lambda: lovasz_softmax(P, T.float()), ValueError, '`target`.*float32'),
        (lambda: lovasz_softmax(P, 2 * P + 1), ValueError, r'`target`.*\[0, 1\]'),
        (lambda: lovasz_softmax(P, T, 'absent'), ValueError, "`classes`.*'absent'"),
        (lambda: lovasz_softmax(P, T, [0, 3]), ValueError, '`classes`.*below 3.*Found 3'),
        (lambda: lovasz_softmax(P, T, 0), TypeError, '`classes`.*0'),
        (lambda: lovasz_softmax(P, T, class_weight=[1, 2]), ValueError, '`class_weight`.*3 classes.*Found 2'),
        (lambda: lovasz_softmax(P, T, class_weight=[1, 2, -1]), ValueError, '`class_weight`.*-1'),
        (lambda: lovasz_softmax(P, T, bins=0), ValueError, '`bins`.*0'),
        (lambda: lovasz_softmax(P, T, bins=10.0), TypeError, '`bins`.*10.0'),
        (lambda: lovasz_softmax(P, T, bins=True), TypeError, '`bins`.*True'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
