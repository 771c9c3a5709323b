import math

import numpy as np
import pytest
import torch
from reference import lovasz as reference

from mmseg_nondecomp.functional import lovasz_hinge

LOGITS = {
    'random': lambda rng, shape: rng.normal(size=shape),
    'large': lambda rng, shape: 100 * rng.normal(size=shape),
    'tied': lambda rng, shape: rng.integers(-2, 3, shape) / 2,
    'equal': lambda rng, shape: np.full(shape, 0.3),
}
LABELS = {
    'some': lambda rng, shape: rng.random(shape) < 0.4,
    'none': lambda rng, shape: np.zeros(shape, bool),
    'all': lambda rng, shape: np.ones(shape, bool),
}
each_family = pytest.mark.parametrize('family', LOGITS)
each_labels = pytest.mark.parametrize('labels', LABELS)


def scene(family='random', labels='some', shape=(3, 40), seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(LOGITS[family](rng, shape)), torch.tensor(LABELS[labels](rng, shape)).long()


@each_family
@each_labels
@pytest.mark.parametrize('ignore_index', [None, 255, -1])
def test_equals_the_oracle(family, labels, ignore_index):
    logits, target = scene(family, labels)
    target[:, ::4] = 255 if ignore_index is None else ignore_index
    kept = torch.arange(40) % 4 > 0
    of_images = [float(reference.lovasz_hinge(x, y)) for x, y in zip(logits[:, kept], target[:, kept], strict=True)]
    of_all = float(reference.lovasz_hinge(logits[:, kept].flatten(), target[:, kept].flatten()))
    found, of_image = (lovasz_hinge(logits, target, per_image, ignore_index).item() for per_image in (False, True))
    assert found == pytest.approx(of_all, rel=1e-12)
    assert of_image == pytest.approx(np.mean(of_images), rel=1e-12)


@pytest.mark.parametrize('label', [0, 1])
@pytest.mark.parametrize('logit', [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
def test_one_pixel_has_the_plain_hinge(label, logit):
    x = torch.tensor([[logit]], requires_grad=True)
    loss = lovasz_hinge(x, torch.tensor([[label]]))
    y = 2 * label - 1
    assert loss.item() == max(1 - y * logit, 0)
    if y * logit != 1:
        loss.backward()
        assert x.grad.item() == (-y if y * logit < 1 else 0)


@each_labels
@pytest.mark.parametrize('shape', [(30,), (2, 30), (2, 5, 6), (2, 1, 5, 6)], ids=str)
@pytest.mark.parametrize('per_image', [False, True])
def test_one_at_logits_of_zero_in_any_shape(labels, shape, per_image):
    _, target = scene(labels=labels, shape=shape)
    assert lovasz_hinge(torch.zeros(shape), target, per_image).item() == pytest.approx(1, rel=1e-6)


@each_labels
def test_zero_where_all_margins_are_at_least_one(labels):
    logits, target = scene(labels=labels)
    logits = ((1 + logits.abs()) * (2 * target - 1)).requires_grad_()
    loss = lovasz_hinge(logits, target)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.eq(0).all()
    assert lovasz_hinge(logits * 0.9 / logits.abs().min(), target) > 0


@each_family
@each_labels
def test_never_below_the_jaccard_loss_of_the_decisions(family, labels):
    for seed in range(10):
        logits, target = scene(family, labels, (40,), seed)
        wrong = (logits > 0) != (target == 1)
        assert lovasz_hinge(logits, target).item() >= float(reference.jaccard_loss(wrong, target == 1)) - 1e-12


@each_labels
def test_convex_in_the_logits(labels):
    for seed in range(10):
        x, target = scene('random', labels, (40,), seed)
        y = scene('large', labels, (40,), seed + 100)[0]
        t = np.random.default_rng(seed).random()
        ends = t * lovasz_hinge(x, target) + (1 - t) * lovasz_hinge(y, target)
        assert lovasz_hinge(t * x + (1 - t) * y, target) <= ends * (1 + 1e-12)


@each_labels
@pytest.mark.parametrize('per_image', [False, True])
def test_gradcheck(labels, per_image):
    logits, target = scene(labels=labels, shape=(2, 12))
    target[0, :2] = 255
    assert torch.autograd.gradcheck(lambda x: lovasz_hinge(x, target, per_image), logits.requires_grad_())


def test_a_set_without_position_is_one_set():
    logits, target = scene(shape=(50,))
    assert lovasz_hinge(logits, target) == lovasz_hinge(logits[None], target[None])


@pytest.mark.parametrize('per_image', [False, True])
def test_nothing_valid_is_an_attached_zero(per_image):
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for part in (logits, logits[:0], logits[:, :0]):
        loss = lovasz_hinge(part, torch.full(part.shape, 255), per_image)
        assert loss.item() == 0
        assert torch.autograd.grad(loss, logits)[0].eq(0).all()


def test_an_image_with_nothing_valid_is_not_averaged():
    logits, target = scene()
    target[1] = 255
    expected = lovasz_hinge(logits[[0, 2]], target[[0, 2]], per_image=True).item()
    assert lovasz_hinge(logits, target, per_image=True).item() == pytest.approx(expected, rel=1e-12)


def test_ignored_pixels_leave_no_trace_and_a_nan_that_counts_is_not_hidden():
    logits, target = scene()
    target[:, ::3] = 255
    poisoned = logits.masked_fill(target == 255, math.nan).requires_grad_()
    loss = lovasz_hinge(poisoned, target)
    loss.backward()
    assert loss == lovasz_hinge(logits, target)
    assert poisoned.grad.isfinite().all()
    assert poisoned.grad[:, ::3].eq(0).all()
    assert lovasz_hinge(logits.masked_fill(target == 1, math.nan), target).isnan()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    logits, target = scene(shape=(2, 100_000))
    logits = logits.to(dtype).requires_grad_()
    loss = lovasz_hinge(logits, target)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(lovasz_hinge(logits.double(), target).item(), rel=1e-6)
    loss.backward()
    assert logits.grad.dtype == dtype


@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.int32, torch.float32], ids=str)
def test_labels_may_be_of_any_dtype(dtype):
    logits, target = scene()
    assert lovasz_hinge(logits, target.to(dtype)) == lovasz_hinge(logits, target)


def test_layout_in_memory_is_no_matter():
    logits, target = scene(shape=(3, 4, 5, 6))
    loss = lovasz_hinge(logits[:, ::2].transpose(2, 3), target[:, ::2].transpose(2, 3))
    assert loss == lovasz_hinge(
        logits[:, ::2].transpose(2, 3).contiguous(), target[:, ::2].transpose(2, 3).contiguous()
    )


def test_compiles_without_graph_breaks():
    logits, target = scene()
    loss = torch.compile(lambda x: lovasz_hinge(x, target), fullgraph=True, backend='eager')
    assert loss(logits).item() == pytest.approx(lovasz_hinge(logits, target).item(), rel=1e-12)


L, T = torch.zeros(2, 5), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: lovasz_hinge(L.long(), T), TypeError, '`logits`.*int64'),
        (lambda: lovasz_hinge(L, T[0]), ValueError, r'`logits` and `target`.*\(2, 5\) and \(5,\)'),
        (lambda: lovasz_hinge(L[:, None], T), ValueError, r'`logits` and `target`.*\(2, 1, 5\) and \(2, 5\)'),
        (lambda: lovasz_hinge(L[0, 0], T[0, 0]), ValueError, '`logits`'),
        (lambda: lovasz_hinge(L, T + 2), ValueError, r'`target`.*\[0, 1\].*Found 2'),
        (lambda: lovasz_hinge(L, T - 1), ValueError, r'`target`.*\[0, 1\].*Found -1'),
        (lambda: lovasz_hinge(L, T + 0.5), ValueError, '`target`.*0.5'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
