import math

import numpy as np
import pytest
import torch
from mmseg_nondecomp.functional.error_cells import MarginCells, ProbabilityCells
from mmseg_nondecomp.functional.error_histogram import error_histogram
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells

from mmseg_nondecomp.functional.activations import activate

CELLS = [ProbabilityCells(4), MarginCells(4)]
each_cells = pytest.mark.parametrize('cells', CELLS, ids=lambda cells: type(cells).__name__)
each_dtype = pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
per_image_or_not = pytest.mark.parametrize('per_image', [False, True])


def scene(kind, n_images=3, n_classes=3, n_pixels=40, seed=0):
    """Scores, target and mass. Some pixels are of no class, some do not exist."""
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.random((n_images, n_classes, n_pixels)))
    if kind == 'shares':
        shares = rng.dirichlet(np.full(n_classes, 0.3), (n_images, n_pixels))
        shares[:, ::3] = np.eye(n_classes)[shares[:, ::3].argmax(2)]
        target = shares.swapaxes(1, 2)
    elif kind == 'several labels':
        target = rng.integers(0, 3, (n_images, n_classes, n_pixels)) / 2
    else:
        target = rng.integers(0, n_classes + 1, (n_images, n_pixels))
    mass = rng.random((n_images, n_pixels)) < 0.8
    mass = mass * rng.exponential(size=mass.shape) if kind == 'weights' else mass.astype(np.int32)
    return scores, torch.tensor(target), torch.tensor(mass)


def margins(scores, cells):
    """The same scores for cells of a hinge: some errors are 0."""
    return scores * 8 - 3 if isinstance(cells, MarginCells) else scores


each_kind = pytest.mark.parametrize('kind', ['labels', 'weights', 'shares', 'several labels'])


def histogram_by_loop(scores, target, mass, cells, per_image):
    n_images, n_classes, n_pixels = scores.shape
    counts = torch.zeros(n_images if per_image else 1, n_classes, 2, cells.number, dtype=torch.float64)
    sums = torch.zeros_like(counts)
    for n, c, i in np.ndindex(n_images, n_classes, n_pixels):
        share = float(target[n, c, i]) if target.dim() == 3 else float(target[n, i] == c)
        score = scores[n, c, i].item()
        for role, error, amount in ((0, score, 1 - share), (1, cells.top - score, share)):
            error, amount = max(error, 0.0), amount * float(mass[n, i])
            if amount:
                place = n if per_image else 0, c, role, cells.of(torch.tensor(error, dtype=scores.dtype)).item()
                counts[place] += amount
                sums[place] += amount * error
    return counts, sums


@each_dtype
def test_an_error_a_rounding_above_one_is_counted_with_the_largest(dtype):
    scores = torch.tensor([[[1 + torch.finfo(dtype).eps, -torch.finfo(dtype).eps]]], dtype=dtype)
    found = error_histogram(scores, torch.tensor([[1, 0]]), torch.ones(1, 2, dtype=torch.int32), CELLS[0], False)
    assert found.mass[0, 0, :, -1].tolist() == [1, 1]


@each_kind
@each_cells
@per_image_or_not
@pytest.mark.parametrize('n_pixels', [5, 40])
def test_counts_and_sums_are_those_of_a_loop(kind, cells, per_image, n_pixels):
    scores, target, mass = scene(kind, n_pixels=n_pixels)
    scores = margins(scores, cells)
    found = error_histogram(scores, target, mass, cells, per_image)
    counts, sums = histogram_by_loop(scores, target, mass, cells, per_image)
    torch.testing.assert_close(found.mass.double(), counts, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(found.errors, sums, rtol=1e-13, atol=1e-15)


@each_kind
@each_cells
@pytest.mark.parametrize('elements', [1, 40])
@pytest.mark.parametrize('shape', [(2, 3, 20), (20, 3, 3)], ids=str)
@per_image_or_not
def test_how_many_pixels_are_worked_on_at_a_time_is_no_matter(kind, cells, elements, shape, per_image, monkeypatch):
    scores, target, mass = scene(kind, *shape)
    scores = margins(scores, cells).requires_grad_()
    upstream = torch.rand(1, 3, 2, cells.number, generator=torch.Generator().manual_seed(0))

    def run():
        found = error_histogram(scores, target, mass, cells, per_image)
        return *found, torch.autograd.grad((found.errors * upstream).sum(), scores)[0]

    expected = run()
    monkeypatch.setattr('mmseg_nondecomp.functional.error_histogram.BLOCK', elements)
    for part, other in zip(run(), expected, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-14, atol=0)


@each_kind
@each_cells
@per_image_or_not
@pytest.mark.parametrize(('n_pixels', 'bins'), [(5, 4), (40, 4), (40, 6000)])
def test_backward_is_that_of_the_dense_histogram(kind, cells, per_image, n_pixels, bins):
    cells = type(cells)(bins)
    scores, target, mass = scene(kind, n_pixels=n_pixels)
    scores = margins(scores, cells).requires_grad_()
    rows = len(scores) if per_image else 1
    upstream = torch.randn(rows, 3, 2, cells.number, generator=torch.Generator().manual_seed(0)).double()
    found = error_histogram(scores, target, mass, cells, per_image)
    assert not found.mass.requires_grad
    gradient = torch.autograd.grad((found.errors * upstream).sum(), scores)[0]

    share = target if target.dim() == 3 else (target.unsqueeze(1) == torch.arange(3).view(3, 1)).double()
    loss = 0
    for role, error, amount in ((0, scores, 1 - share), (1, cells.top - scores, share)):
        error = error.clamp(min=0)
        at = upstream[:, :, role].expand(len(scores), -1, -1).gather(2, cells.of(error.detach()).long())
        loss = loss + (error * at * amount * mass.unsqueeze(1)).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, scores)[0], rtol=1e-12, atol=1e-14)


@each_dtype
def test_the_gradient_has_the_dtype_of_the_scores(dtype):
    scores, target, mass = scene('labels')
    scores = scores.to(dtype).requires_grad_()
    error_histogram(scores, target, mass, CELLS[0], False).errors.sum().backward()
    assert scores.grad.dtype == dtype


@each_kind
@each_cells
def test_histograms_of_parts_add_up_to_that_of_the_whole(kind, cells):
    scores, target, mass = scene(kind)
    scores = margins(scores, cells)
    whole = error_histogram(scores, target, mass, cells, False)
    images = error_histogram(scores, target, mass, cells, True)
    halves = [
        error_histogram(scores[..., part], target[..., part], mass[..., part], cells, False)
        for part in (slice(0, 17), slice(17, None))
    ]
    for name in ('mass', 'errors'):
        total = getattr(whole, name).double()
        of_images, of_halves = getattr(images, name).sum(0, keepdim=True), sum(getattr(h, name) for h in halves)
        torch.testing.assert_close(of_images.double(), total, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(of_halves.double(), total, rtol=1e-13, atol=1e-15)


@each_cells
@pytest.mark.parametrize('n_pixels', [1, 5])
def test_many_small_images_are_one_set(cells, n_pixels):
    scores, target, mass = scene('labels', n_images=200, n_pixels=n_pixels)
    side_by_side = (scores.movedim(0, 1).flatten(1)[None], target.flatten()[None], mass.flatten()[None])
    found = error_histogram(scores, target, mass, cells, False)
    expected = error_histogram(*side_by_side, cells, False)
    assert torch.equal(found.mass, expected.mass)
    assert torch.equal(found.errors, expected.errors)
    assert error_histogram(scores, target, mass, cells, True).mass.shape == (200, 3, 2, cells.number)


@each_cells
def test_shares_count_as_that_much_of_a_pixel_of_each_class(cells):
    scores, shares, mass = scene('shares')
    scores = margins(scores, cells).requires_grad_()
    copies, labels = scores.repeat(1, 1, 3), torch.arange(3).repeat_interleave(40).expand(3, -1)
    found = error_histogram(scores, shares, mass, cells, False)
    expected = error_histogram(copies, labels, (shares * mass.unsqueeze(1)).flatten(1), cells, False)
    torch.testing.assert_close(found.mass, expected.mass, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found.errors, expected.errors, rtol=1e-13, atol=1e-14)
    slope = torch.rand(cells.number, generator=torch.Generator().manual_seed(0)).double()
    gradients = [torch.autograd.grad((h.errors * slope).sum(), scores)[0] for h in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


@each_kind
@each_cells
@pytest.mark.parametrize('poison', [math.nan, math.inf, -math.inf])
def test_pixels_without_mass_leave_no_trace(kind, cells, poison):
    scores, target, mass = scene(kind)
    scores = margins(scores, cells)
    gone = mass == 0
    expected = error_histogram(scores, target, mass, cells, False)
    poisoned = scores.masked_fill(gone.unsqueeze(1), poison).requires_grad_()
    if target.dim() == 2:
        target = target.masked_fill(gone, 0)
    found = error_histogram(poisoned, target, mass, cells, False)
    assert torch.equal(found.errors, expected.errors)
    assert found.mass.sum() == pytest.approx(mass.sum().item() * 3)
    gradient = torch.autograd.grad(found.errors.sum(), poisoned)[0]
    assert gradient.isfinite().all()
    assert gradient.masked_select(gone.unsqueeze(1)).eq(0).all()


@each_cells
@pytest.mark.parametrize('kind', ['labels', 'shares'])
def test_a_nan_that_exists_is_not_hidden(cells, kind):
    scores, target, mass = scene(kind)
    scores[1, 2, 3], mass[1, 3] = math.nan, 1
    assert error_histogram(scores, target, mass, cells, False).errors.sum().isnan()


def test_the_label_after_the_last_class_is_background_everywhere():
    scores, mass = torch.rand(2, 3, 50, generator=torch.Generator().manual_seed(0)), torch.ones(2, 50).int()
    found = error_histogram(scores, torch.full((2, 50), 3), mass, CELLS[0], False)
    assert found.mass[:, :, 0].sum(2).tolist() == [[100] * 3]
    assert found.mass[:, :, 1].eq(0).all()
    torch.testing.assert_close(found.errors[0, :, 0].sum(1), scores.double().sum((0, 2)))


@pytest.mark.parametrize('kind', ['labels', 'shares'])
def test_infinite_margins_are_kept_apart(kind):
    scores = torch.tensor([[[math.inf, -math.inf, math.inf, -math.inf]]])
    target = torch.tensor([[0, 1, 1, 0]]) if kind == 'labels' else torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])
    found = error_histogram(scores, target, torch.ones(1, 4).int(), MarginCells(4), False)
    assert found.mass[0, 0].nonzero().tolist() == [[0, 0], [0, 12], [1, 0], [1, 12]]
    assert found.errors[0, 0, :, 0].tolist() == [0, 0]
    assert found.errors[0, 0, :, -1].tolist() == [math.inf, math.inf]


@pytest.mark.parametrize('shape', [(0, 3, 5), (2, 3, 0)], ids=str)
@per_image_or_not
def test_nothing_gives_an_empty_histogram(shape, per_image):
    scores = torch.zeros(shape, requires_grad=True)
    empty = torch.zeros(shape[0], shape[2], dtype=torch.long)
    found = error_histogram(scores, empty, empty, CELLS[0], per_image)
    assert found.mass.shape == (shape[0] if per_image else 1, 3, 2, 13)
    assert found.mass.eq(0).all()
    found.errors.sum().backward()
    assert scores.grad.shape == shape


@each_kind
@each_cells
@per_image_or_not
def test_the_order_of_the_pixels_does_not_matter(kind, cells, per_image):
    scores, target, mass = scene(kind, n_pixels=300)
    scores = margins(scores, cells)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    found = error_histogram(scores, target, mass, cells, per_image).mass
    permuted = error_histogram(scores[..., order], target[..., order], mass[:, order], cells, per_image).mass
    if kind == 'labels':
        assert found.dtype == torch.int32
        assert torch.equal(permuted, found)
        assert torch.equal(shares_of_cells(permuted), shares_of_cells(found))
    torch.testing.assert_close(permuted, found, rtol=1e-13, atol=1e-15)


@each_kind
@pytest.mark.parametrize(
    ('cells', 'activation'),
    [(ProbabilityCells(64), 'softmax'), (ProbabilityCells(64), 'sigmoid'), (MarginCells(64), 'margin')],
)
@pytest.mark.parametrize('elements', [40, 1 << 17])
def test_an_activation_in_blocks_is_the_activation_of_all(kind, cells, activation, elements, monkeypatch):
    monkeypatch.setattr('mmseg_nondecomp.functional.error_histogram.BLOCK', elements)
    logits, target, mass = scene(kind)
    logits = (8 * logits - 4).requires_grad_()
    found = error_histogram(logits, target, mass, cells, False, activation)
    expected = error_histogram(activate(logits, activation), target, mass, cells, False)
    assert torch.equal(found.mass, expected.mass)
    torch.testing.assert_close(found.errors, expected.errors, rtol=1e-14, atol=0)
    upstream = torch.rand(1, 3, 2, cells.number, generator=torch.Generator().manual_seed(0)).double()
    gradients = [torch.autograd.grad((h.errors * upstream).sum(), logits)[0] for h in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)
