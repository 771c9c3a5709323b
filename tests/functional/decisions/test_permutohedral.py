import numpy as np
import pytest
import torch
from reference.dense_crf import gaussian_kernel, normalised

from mmseg_nondecomp.functional.decisions._permutohedral import permutohedral_filter, permutohedral_lattice


def points(n, d, spread, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def kernel_of(features):
    """Return the matrix of the filter."""
    return permutohedral_filter(permutohedral_lattice(features), torch.eye(len(features), dtype=features.dtype))


def errors_of(features, values):
    """Return the mean and the largest absolute error of the normalised filter."""
    found = normalised(kernel_of(features).numpy()) @ values
    error = abs(found - normalised(gaussian_kernel(features.numpy(), np.ones(features.shape[1]))) @ values)
    return error.mean(), error.max()


@pytest.mark.parametrize(('d', 'limit'), [(1, 0.01), (2, 0.01), (3, 0.02), (4, 0.025), (5, 0.025), (6, 0.03)])
def test_approximates_the_gaussian_filter_of_values_in_0_1(d, limit):
    for spread in (0.3, 1.0, 3.0):
        values = np.random.default_rng(d).integers(0, 2, (400, 3))
        mean, largest = errors_of(points(400, d, spread, seed=d), values)
        print(f'\nd = {d}, spread {spread}: error of {mean:.4f} on average, {largest:.4f} at most')
        assert mean < limit
        assert largest < 10 * limit


@pytest.mark.parametrize('d', [1, 2, 3])
def test_the_covariance_of_the_kernel_is_the_identity(d):
    """Random shifts average over the positions inside a simplex."""
    side = torch.linspace(-6, 6, {1: 241, 2: 61, 3: 31}[d], dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(*[side] * d, indexing='ij'), -1).view(-1, d)
    centre = grid.abs().sum(1).argmin()
    impulse = torch.zeros(len(grid), 1, dtype=torch.float64).index_fill_(0, centre, 1)
    total = 0
    for shift in points(60, d, 5.0):
        response = permutohedral_filter(permutohedral_lattice(grid + shift), impulse)
        total += (grid.T * (response / response.sum()).T) @ grid / 60
    assert (total - torch.eye(d)).abs().max() < 0.05


def test_is_symmetric_and_non_negative():
    for d in (1, 3, 5):
        kernel = kernel_of(points(150, d, 1.5))
        torch.testing.assert_close(kernel, kernel.T, rtol=0, atol=1e-12)
        assert (kernel >= 0).all()
        assert (kernel.diagonal() > 0).all()


def test_barycentric_coordinates_are_shares_and_equal_features_share_corners():
    features = points(200, 5, 4.0)
    lattice = permutohedral_lattice(features.repeat(2, 1))
    assert (lattice.coordinates >= 0).all()
    torch.testing.assert_close(lattice.coordinates.sum(1), torch.ones(400, dtype=torch.float64))
    assert torch.equal(lattice.corners[:200], lattice.corners[200:])


def test_pixels_on_a_point_of_the_lattice_have_one_corner():
    root = torch.linalg.cholesky((torch.eye(3, dtype=torch.float64) + 1) * 2 / 3)
    integers = torch.tensor([[0.0, 0, 0], [2, -1, 3], [-4, 0, 1]], dtype=torch.float64)
    coordinates = permutohedral_lattice(torch.linalg.solve(root, integers.T).T + 1e-9).coordinates
    torch.testing.assert_close(coordinates.max(1).values, torch.ones(3, dtype=torch.float64))


def test_a_far_pixel_changes_nothing_also_where_codes_exceed_63_bits():
    features, values = points(300, 5, 1.0), points(301, 4, 1.0, seed=1)
    alone = permutohedral_filter(permutohedral_lattice(features), values[:300])
    for distance in (1e3, 1e6):
        far = torch.cat([features, torch.full((1, 5), distance, dtype=torch.float64)])
        torch.testing.assert_close(permutohedral_filter(permutohedral_lattice(far), values)[:300], alone)


def test_many_features_of_a_hyperspectral_image():
    features = points(100, 30, 20.0)
    found = kernel_of(features)
    torch.testing.assert_close(found, found.diagonal().diag())  # each pixel is far from the others


def test_values_are_filtered_channel_by_channel_and_linearly():
    lattice = permutohedral_lattice(points(120, 4, 1.0))
    a, b = points(120, 3, 1.0, seed=1), points(120, 3, 1.0, seed=2)
    by_channel = torch.cat([permutohedral_filter(lattice, channel) for channel in a.split(1, 1)], 1)
    torch.testing.assert_close(permutohedral_filter(lattice, a), by_channel)
    of_sum = permutohedral_filter(lattice, a + 2 * b)
    torch.testing.assert_close(of_sum, permutohedral_filter(lattice, a) + 2 * permutohedral_filter(lattice, b))


def test_float32_is_close_to_float64_and_a_run_is_repeated_exactly():
    features, values = points(500, 5, 1.0), points(500, 4, 1.0, seed=1)
    expected = permutohedral_filter(permutohedral_lattice(features), values)
    found, again = (permutohedral_filter(permutohedral_lattice(features.float()), values.float()) for _ in range(2))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-4)
    assert torch.equal(found, again)
