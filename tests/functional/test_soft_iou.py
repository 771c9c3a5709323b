import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import lovasz as reference
from torchmetrics.functional.classification import multiclass_jaccard_index

from mmseg_nondecomp.functional import soft_iou
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.soft_iou import soft_losses

per_image_or_not = pytest.mark.parametrize('per_image', [False, True])


def scene(n_classes=4, n_pixels=30, seed=0):
    """Probabilities and labels; the last class is in the first image only."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(n_classes), (3, n_pixels)).swapaxes(1, 2)
    target = rng.integers(0, max(1, n_classes - 1), (3, n_pixels))
    target[0, 0] = n_classes - 1
    return torch.tensor(probs), torch.tensor(target)


def soft_labels(n_classes=4, n_pixels=30, seed=1):
    shares = np.random.default_rng(seed).dirichlet(np.full(n_classes, 0.3), (3, n_pixels)).swapaxes(1, 2)
    return torch.tensor(shares)


@pytest.mark.parametrize('n_classes', [2, 3, 5])
@per_image_or_not
@pytest.mark.parametrize('ignore_index', [None, 255, 0, -7])
def test_equals_the_oracle(n_classes, per_image, ignore_index):
    for seed in range(3):
        probs, target = scene(n_classes, seed=seed)
        if ignore_index is not None:
            target[:, 5:20] = ignore_index
        weight = torch.arange(n_classes).double()
        for classes in ('present', 'all', [n_classes - 1, 0]):
            for settings in (
                (classes, per_image, ignore_index),
                (classes, per_image, ignore_index, weight),
                (classes, per_image, ignore_index, weight.tolist()),
            ):
                expected = float(reference.soft_iou(probs, target, *settings))
                assert soft_iou(probs, target, *settings).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize('n_classes', [1, 2, 5])
@per_image_or_not
def test_equals_the_oracle_on_soft_labels(n_classes, per_image):
    for seed in range(3):
        probs, shares = scene(n_classes, seed=seed)[0], soft_labels(n_classes, seed=seed + 9)
        shares[1, -1] = 0
        for classes in ('present', 'all', [0]):
            expected = float(reference.soft_iou(probs, shares, classes, per_image))
            assert soft_iou(probs, shares, classes, per_image).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('soft', [False, True])
@per_image_or_not
def test_pixels_count_as_often_as_their_mass_says(soft, per_image):
    probs, target = scene()
    target = soft_labels() if soft else target
    mass = torch.tensor(np.random.default_rng(2).exponential(size=(3, 30))) * (torch.arange(30) % 4 > 0)
    found = soft_losses(Items(probs, target, mass), per_image).losses.mean(0)
    for c in range(4):
        expected = float(reference.soft_iou(probs, target, [c], per_image, mass=mass))
        assert found[c].item() == pytest.approx(expected, rel=1e-12)


def test_hard_labels_have_the_intersection_and_union_of_rahman_and_wang():
    probs, target = scene()
    y = F.one_hot(target, 4).movedim(-1, 1)
    intersection, either = (probs * y).sum((0, 2)), (probs + y).sum((0, 2))
    expected = 1 - (intersection / (either - intersection)).mean()
    assert soft_iou(probs, target).item() == pytest.approx(expected.item(), rel=1e-12)
    assert soft_iou(probs, y.double()).item() == pytest.approx(expected.item(), rel=1e-12)


@per_image_or_not
def test_zero_exactly_where_probabilities_and_soft_labels_agree(per_image):
    probs = scene()[0]
    assert soft_iou(probs, probs.clone(), 'all', per_image).item() == 0
    other = probs.clone()
    other[1, :2, 3] += torch.tensor([1e-6, -1e-6])
    assert 0 < soft_iou(other, probs, 'all', per_image).item() < 1e-5
    assert soft_iou(soft_labels(), probs, 'all', per_image) > 0.1


def test_soft_labels_are_matched_and_not_sharpened():
    share = torch.full((1, 1, 20), 0.7, dtype=torch.float64)
    losses = [soft_iou(torch.full_like(share, p), share).item() for p in np.linspace(0, 1, 11)]
    assert int(np.argmin(losses)) == 7
    np.testing.assert_allclose(losses, [1 - min(p, 0.7) / max(p, 0.7) for p in np.linspace(0, 1, 11)], atol=1e-12)


@pytest.mark.parametrize('n_classes', [2, 10])
def test_one_minus_the_jaccard_index_on_hard_predictions(n_classes):
    rng = np.random.default_rng(0)
    decided, target = torch.tensor(rng.integers(0, n_classes, (2, 2, 300)))
    target[:, :50] = 255
    index = multiclass_jaccard_index(decided, target, n_classes, average='none', ignore_index=255)
    found = soft_iou(F.one_hot(decided, n_classes).movedim(-1, 1).float(), target)
    assert found.item() == pytest.approx(1 - index[target[target != 255].unique()].mean().item(), rel=1e-6)


@pytest.mark.parametrize('n_classes', [2, 3, 10])
def test_one_where_wholly_wrong_and_zero_where_wholly_right(n_classes):
    target = scene(n_classes)[1]
    right, wrong = (F.one_hot((target + step) % n_classes, n_classes).movedim(-1, 1).float() for step in (0, 1))
    for settings in ({}, {'per_image': True}, {'class_weight': range(1, n_classes + 1)}):
        assert soft_iou(wrong, target, **settings).item() == pytest.approx(1, rel=1e-6)
        assert soft_iou(right, target, **settings).item() == 0


@per_image_or_not
@pytest.mark.parametrize('ignore_index', [None, 255, 0])
def test_one_channel_is_the_foreground_of_two(per_image, ignore_index):
    probs, target = scene(2)
    target[:, :9] = 1
    if ignore_index is not None:
        target[:, 5:20] = ignore_index
    expected = float(reference.soft_iou(probs, target, [1], per_image, ignore_index))
    for classes in ('present', 'all', [0]):
        found = soft_iou(probs[:, 1:], target, classes, per_image, ignore_index).item()
        assert found == pytest.approx(expected, rel=1e-12)


def test_an_absent_class_costs_one_as_soon_as_it_gets_any_probability():
    target = torch.zeros(1, 9, dtype=torch.long)
    probs = torch.zeros(1, 2, 9).double()
    probs[:, 0] = 1
    assert soft_iou(probs, target, 'all').item() == 0
    probs[0, 1, 3] = 1e-30
    assert soft_iou(probs, target, 'all').item() == 0.5
    assert soft_iou(probs, target, [1]).item() == 1
    assert soft_iou(probs, target, 'present').item() == 0


@pytest.mark.parametrize('n_classes', [1, 2, 5])
@pytest.mark.parametrize('soft', [False, True])
def test_gradcheck(n_classes, soft):
    logits = torch.randn(3, n_classes, 5, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    target = soft_labels(n_classes, 5) * 0.9 if soft else scene(n_classes, 5)[1]
    activate = torch.sigmoid if n_classes == 1 else lambda x: x.softmax(1)
    assert not soft or (activate(logits) - target).abs().min() > 1e-4
    for settings in ({}, {'per_image': True, 'classes': 'all'}, {'ignore_index': 0}):
        assert torch.autograd.gradcheck(
            lambda x, settings=settings: soft_iou(activate(x), target, **settings), logits, eps=1e-5
        )


@pytest.mark.parametrize('classes', ['present', 'all', [0]], ids=str)
@per_image_or_not
def test_nothing_valid_is_an_attached_zero(classes, per_image):
    probs = scene()[0].requires_grad_()
    for part in (probs, probs[:0], probs[..., :0]):
        loss = soft_iou(part, torch.full((len(part), part.shape[2]), 255), classes, per_image)
        assert loss.item() == 0
        assert torch.autograd.grad(loss, probs)[0].eq(0).all()


def test_an_image_with_nothing_valid_is_not_averaged():
    probs, target = scene()
    target[1] = 255
    for classes in ('present', 'all', [1]):
        expected = soft_iou(probs[[0, 2]], target[[0, 2]], classes, per_image=True).item()
        assert soft_iou(probs, target, classes, per_image=True).item() == pytest.approx(expected, rel=1e-12)


def test_ignored_pixels_leave_no_trace_and_a_nan_that_counts_is_not_hidden():
    probs, target = scene()
    target[:, ::3] = 255
    poisoned = probs.masked_fill((target == 255).unsqueeze(1), math.nan).requires_grad_()
    loss = soft_iou(poisoned, target)
    loss.backward()
    kept = target != 255
    assert loss.item() == pytest.approx(soft_iou(probs.movedim(1, 2)[kept], target[kept]).item(), rel=1e-12)
    assert poisoned.grad.isfinite().all()
    assert poisoned.grad[:, :, ::3].eq(0).all()
    assert soft_iou(poisoned, target.clamp(max=3)).isnan()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    probs, target = scene(3, 100_000)
    probs = probs.to(dtype).requires_grad_()
    loss = soft_iou(probs, target, class_weight=[1, 2, 3])
    assert loss.dtype == torch.float32
    expected = soft_iou(probs.double(), target, class_weight=[1, 2, 3])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    assert probs.grad.dtype == dtype


@pytest.mark.parametrize('shape', [(4, 3), (2, 3, 4, 5), (2, 3, 2, 2, 2)], ids=str)
def test_any_number_of_dimensions_and_any_layout(shape):
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(shape, generator=generator).double()
    target = torch.randint(3, (shape[0], *shape[2:]), generator=generator)
    expected = reference.soft_iou(probs.movedim(1, -1).reshape(1, -1, 3).transpose(1, 2), target.reshape(1, -1))
    for layout in (probs, probs.movedim(1, -1).contiguous().movedim(-1, 1), torch.stack([probs, probs], -1)[..., 0]):
        assert soft_iou(layout, target).item() == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize('class_weight', [None, [1.0, 2.0, 3.0, 4.0]], ids=str)
def test_compiles_without_graph_breaks(class_weight):
    probs, target = scene()
    loss = torch.compile(lambda x: soft_iou(x, target, class_weight=class_weight), fullgraph=True, backend='eager')
    expected = soft_iou(probs, target, class_weight=class_weight).item()
    assert loss(probs).item() == pytest.approx(expected, rel=1e-12)


P, T = torch.full((2, 3, 5), 1 / 3), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: soft_iou(P.long(), T), TypeError, '`probs`.*int64'),
        (lambda: soft_iou(P[0, 0], T[0]), ValueError, r'`probs`.*\(5,\)'),
        (lambda: soft_iou(P, T[:1]), ValueError, r'`target`.*\(2, 5\).*\(1, 5\)'),
        (lambda: soft_iou(P, T + 3), ValueError, r'`target`.*\[0, 2\].*Found 3'),
        (lambda: soft_iou(P, 2 * P + 1), ValueError, r'`target`.*\[0, 1\]'),
        (lambda: soft_iou(P, T, 'absent'), ValueError, "`classes`.*'absent'"),
        (lambda: soft_iou(P, T, [0, 3]), ValueError, '`classes`.*below 3.*Found 3'),
        (lambda: soft_iou(P, T, class_weight=[1, 2]), ValueError, '`class_weight`.*3 classes.*Found 2'),
        (lambda: soft_iou(P, T, class_weight=[1, 2, -1]), ValueError, '`class_weight`.*-1'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
