"""The pictures of docs/concepts: each is shown by the page of its name, and shows what the page says of it."""

import math
import re
from itertools import pairwise
from pathlib import Path

import draw_concepts as drawing
import matplotlib as mpl
import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / 'docs/concepts').glob('*.md'))
SMALL = {
    'loss-max-pooling': dict(n=40),
    'lovasz': dict(n_grid=7, n_classes=5, size=16, n_seeds=1),
    's-measures': dict(n_steps=600, n=1000),
    'direct-loss': dict(n_shifts=41, n_coarse=7, n_queries=1000),
    'top-k': dict(n=61),
    'sampling': dict(n_images=400, n_draws=2000),
    'scope': dict(sizes=(8, 16), n_images=64, set_sizes=(1, 4, 64)),
}


@pytest.fixture(scope='module')
def numbers():
    """The numbers of each picture, in small: too small to be shared by threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {name: picture.compute(**SMALL[name]) for name, picture in drawing.PICTURES.items()}
    torch.set_num_threads(threads)


def test_each_page_shows_its_picture_which_is_there_and_names_the_command():
    assert {page.stem for page in PAGES} == set(drawing.PICTURES)
    for page in PAGES:
        text = page.read_text()
        assert re.findall(r'!\[[^\]]{40,}\]\(([^)]+)\)', text) == [f'../images/{page.stem}.png']
        assert f'`python tools/draw_concepts.py {page.stem}`' in text
    for name in drawing.PICTURES:
        assert (ROOT / f'docs/images/{name}.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize('name', SMALL)
def test_drawing_runs(numbers, name, tmp_path):
    with mpl.rc_context(drawing.STYLE):
        drawing.PICTURES[name].draw(numbers[name]).savefig(tmp_path / 'picture.png', dpi=40)
    assert (tmp_path / 'picture.png').stat().st_size > 1000


def test_pooling_weights_are_feasible_and_losses_go_from_the_mean_to_that_of_the_hardest(numbers):
    pooled = numbers['loss-max-pooling']
    n = len(pooled.losses)
    for p, weights in pooled.weights.items():
        assert weights.sum() <= 1 + 1e-9
        assert weights.max() <= 4 ** (1 / p) / n + 1e-9
        assert weights.norm(p) == pytest.approx(n ** (1 / p - 1), rel=1e-9)
        assert (weights.diff() >= -1e-12).all()
    full = [(weights >= weights.max() - 1e-12).sum().item() for p, weights in pooled.weights.items() if p < math.inf]
    assert full == sorted(full, reverse=True)
    assert full[0] == n // 4
    for ratio, values in pooled.values.items():
        assert values[0] == pytest.approx(pooled.losses.mean().item())
        assert values[-1] == pytest.approx(pooled.losses[-round(ratio * len(pooled.losses)) :].mean().item())
        assert (values.diff() >= -1e-9).all()
    assert all((higher >= lower - 1e-9).all() for higher, lower in pairwise(pooled.values.values()))


def test_the_extension_is_the_jaccard_loss_at_the_corners_and_the_error_of_bins_is_bounded(numbers):
    surface, grid = numbers['lovasz'].surface, numbers['lovasz'].grid
    corners = surface[0, 0], surface[0, -1], surface[-1, 0], surface[-1, -1]
    assert [corner.item() for corner in corners] == pytest.approx([0, 1 / 2, 1 / 3, 2 / 3])
    background, foreground = grid.unsqueeze(1), grid.unsqueeze(0)
    below, above = foreground / 2 + background / 6, (foreground + background) / 3
    torch.testing.assert_close(surface, torch.where(foreground >= background, below, above))
    extension = numbers['lovasz']
    bound = 1 / (2 * torch.tensor(extension.bins))
    assert (extension.loss_error <= bound).all()
    assert (extension.loss_error[1:5] < extension.loss_error[:4] / 4).all()
    assert (extension.gradient_error.diff() < 0).all()


def test_the_recall_ends_at_the_target_with_a_precision_like_that_of_a_moved_threshold(numbers):
    path = numbers['s-measures']
    assert path.recall[-1].item() == pytest.approx(0.9, abs=0.03)
    assert path.recall.max() > 0.95
    assert abs(path.entropy_recall - 0.9) > 0.3
    assert path.precision[-1].item() == pytest.approx(path.entropy_precision_at_target, abs=0.05)
    assert (path.mu >= 0).all()


def test_the_direct_losses_are_bounds_with_the_slope_of_the_mean_for_a_small_epsilon(numbers):
    shifted = numbers['direct-loss']
    assert (shifted.bounds['negative'] <= shifted.loss + 1e-9).all()
    assert (shifted.bounds['positive'] >= shifted.loss - 1e-9).all()
    assert len(shifted.loss.unique()) < len(shifted.loss) / 2, 'a step function'
    assert shifted.loss[-1] == 0
    far = [(gradient - shifted.slope).abs().max().item() for gradient in shifted.gradients.values()]
    assert far == sorted(far)
    assert far[0] < 0.05 < far[-1]


def test_top_k_losses_are_near_the_hard_one_and_move_all_scores(numbers):
    top_k, curves = drawing.PICTURES['top-k'], numbers['top-k']
    hard = curves.losses['hard']
    for tau in top_k.TAUS:
        smooth = curves.losses[f'smooth, τ = {tau:g}']
        assert (smooth - hard).abs().max() <= tau * math.log(math.comb(top_k.N_CLASSES, top_k.K))
        assert curves.gradients[f'smooth, τ = {tau:g}'].count_nonzero() == top_k.N_CLASSES
    kth = curves.others[top_k.K - 1]
    torch.testing.assert_close(hard, (1 + (kth - curves.own) / top_k.K).clamp(min=0))
    assert curves.gradients['hard'].nonzero().flatten().tolist() == [top_k.K - 1, top_k.LABEL_RANK - 1]
    for gradient in curves.gradients.values():
        assert gradient.sum().item() == pytest.approx(0, abs=1e-9)


def test_equibatch_takes_turns_and_rare_classes_are_drawn_more_by_both_samplers(numbers):
    n_classes, draws = drawing.PICTURES['sampling'].N_CLASSES, numbers['sampling']
    for start in range(len(draws.classes) - n_classes):
        assert sorted(draws.classes[start : start + n_classes]) == list(range(n_classes))
    assert draws.waits['equibatch'].max() <= n_classes
    assert draws.shares['equibatch'].min() >= 1 / n_classes - 1e-9
    for name in ('equibatch', 'IoU-adaptive'):
        assert (draws.shares[name][-3:] > 2 * draws.shares['uniform'][-3:]).all()
    assert draws.drawn_for['IoU-adaptive'].sum() == pytest.approx(1000, abs=100), 'half of the draws'
    assert draws.drawn_for['IoU-adaptive'][-1] == draws.drawn_for['IoU-adaptive'].max()


def test_communication_does_not_grow_and_larger_sets_go_to_the_iou_of_the_data_set(numbers):
    sets = numbers['scope']
    assert all(first == second > 0 for first, second in sets.exchanged.values())
    n_classes, n_cells = 19, 3 * 1024 + 1
    assert sets.exchanged['LovaszSoftmaxLoss'][0] == pytest.approx(2 * n_classes * n_cells, abs=n_classes)
    assert sets.exchanged['LossMaxPooling'][0] == pytest.approx(2050, abs=25)
    alone = {name: counts for name, counts in sets.exchanged_alone.items() if any(counts)}
    assert set(alone) == {'SMeasureLoss'}
    for values in (sets.of_batches, sets.of_memory):
        assert values == sorted(values)
        assert values[0] == pytest.approx(sets.of_image, abs=1e-4)
        assert values[-1] == pytest.approx(sets.of_data_set, abs=1e-4)
    assert sets.of_data_set > sets.of_image + 0.05
