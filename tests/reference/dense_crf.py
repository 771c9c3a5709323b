"""Oracle of mean-field inference in a dense CRF: explicit kernel matrices [P, P] of the P pixels of a small image.

The energy of a labelling is `Σ_i -log p_i(x_i) + Σ_{i<j} [x_i ≠ x_j] Σ_m w_m K_m[i, j]`. An update follows Algorithm 1
of the paper: messages `K Q`, the Potts compatibility `Σ_{l' ≠ l}`, the local update, the normalisation of each pixel.
Two things are as in the code of the authors, not as printed: a kernel is normalised to `D^-1/2 K D^-1/2` with the
diagonal matrix `D` of the sums of the rows of `K`, and a message includes the pixel itself.

All numbers are float64, and nothing is approximated.

Reference: Krähenbühl, Koltun, "Efficient inference in fully connected CRFs with Gaussian edge potentials", NIPS 2011.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def gaussian_kernel(features: npt.ArrayLike, deviations: npt.ArrayLike) -> Array:
    """Return the matrix `exp(-Σ_k (f_ik - f_jk)² / (2 σ_k²))` of features [P, d] with deviations [d]."""
    f, sigma = np.asarray(features, np.float64), np.asarray(deviations, np.float64)
    exponent = np.zeros((len(f), len(f)))
    for of_feature, s in zip(f.T, sigma, strict=True):
        exponent += np.subtract.outer(of_feature, of_feature) ** 2 / (2 * s**2)
    kernel: Array = np.exp(-exponent)
    return kernel


def normalised(kernel: Array) -> Array:
    """Return `D^-1/2 K D^-1/2`."""
    root = np.diag(1 / np.sqrt(kernel.sum(axis=1)))
    result: Array = root @ kernel @ root
    return result


def kernels_of_image(
    image: npt.ArrayLike, smoothness: Sequence[float], appearance: Sequence[float]
) -> list[tuple[float, Array]]:
    """Return the weights of both kernels and the normalised matrices, for an image [K, H, W]."""
    levels = np.asarray(image, np.float64)
    rows, columns = (places.ravel() for places in np.indices(levels.shape[1:]))
    places = np.stack([rows, columns], axis=1)
    colours = levels.reshape(len(levels), -1).T
    in_space = gaussian_kernel(places, [smoothness[1]] * 2)
    deviations = [appearance[1]] * 2 + [appearance[2]] * len(levels)
    in_both = gaussian_kernel(np.hstack([places, colours]), deviations)
    return [(smoothness[0], normalised(in_space)), (appearance[0], normalised(in_both))]


def mean_field(
    p: npt.ArrayLike,
    image: npt.ArrayLike,
    smoothness: Sequence[float],
    appearance: Sequence[float],
    iterations: int,
) -> Array:
    """Return the marginals [C, H, W], for positive probabilities [C, H, W] of at least two classes."""
    p = np.asarray(p, np.float64)
    unary = -np.log(p.reshape(len(p), -1))
    kernels = kernels_of_image(image, smoothness, appearance)
    potts = 1 - np.eye(len(p))
    Q = _distribution(unary)
    for _ in range(iterations):
        messages = [w * (Q @ K.T) for w, K in kernels]
        Q = _distribution(unary + potts @ sum(messages))
    return Q.reshape(p.shape)


def _distribution(energy: Array) -> Array:
    """Return the probabilities `exp(-energy) / Z` of each pixel, for energies [C, P]."""
    weight = np.exp(energy.min(axis=0) - energy)
    result: Array = weight / weight.sum(axis=0)
    return result
