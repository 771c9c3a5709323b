r"""Dense conditional random field: pixels of similar colour and place get similar labels.

All pairs of pixels are connected. With the probabilities :math:`p_i(l)` of a network, a labelling :math:`x` has the
energy

.. math::
    E(x) = -\sum_i \log p_i(x_i) + \sum_{i < j} [x_i \neq x_j]\, k_{ij}, \qquad
    k_{ij} = w_s \hat{k}^s_{ij} + w_a \hat{k}^a_{ij},

with a smoothness kernel and an appearance kernel of pixels at the places :math:`s_i`, of colours :math:`c_i`:

.. math::
    k^s_{ij} = \exp\left(-\frac{\lVert s_i - s_j \rVert^2}{2 \theta_\gamma^2}\right), \qquad
    k^a_{ij} = \exp\left(-\frac{\lVert s_i - s_j \rVert^2}{2 \theta_\alpha^2}
                         -\frac{\lVert c_i - c_j \rVert^2}{2 \theta_\beta^2}\right).

Each kernel is normalised symmetrically, :math:`\hat{k}_{ij} = k_{ij} / \sqrt{d_i d_j}` with
:math:`d_i = \sum_j k_{ij}`. Mean-field inference approximates the distribution :math:`\propto e^{-E(x)}` by independent
marginals :math:`Q_i`. It starts from :math:`Q = p` and repeats, for all pixels at once,

.. math:: Q_i(l) \propto p_i(l) \exp\left(\sum_j k_{ij}\, Q_j(l)\right).

The sums over :math:`j` include :math:`j = i`, as in the code of the authors. A pixel with few similar ones thus becomes
more certain; a sum over :math:`j \neq i`, as printed in the paper, would leave it as it is.

Reference:
    P. Krähenbühl, V. Koltun: Efficient Inference in Fully Connected CRFs with Gaussian Edge Potentials. NIPS 2011.
    https://arxiv.org/abs/1210.5644
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    SHARE_TOLERANCE,
    at_least_float32,
    check_floating_point,
    check_integer,
    check_number,
    check_probabilities,
    check_tensor,
    is_due,
    refuse,
)
from mmseg_nondecomp.functional.decisions._logits import class_probabilities
from mmseg_nondecomp.functional.decisions._permutohedral import permutohedral_filter, permutohedral_lattice

CUT = 5  # standard deviations beyond which the smoothness kernel is 0

Filter = Callable[[Tensor], Tensor]
"""Multiplies values [H, W, C] by a kernel of pixels."""


def dense_crf(
    probs: Tensor,
    image: Tensor,
    smoothness: Sequence[float] = (3.0, 3.0),
    appearance: Sequence[float] = (10.0, 80.0, 13.0),
    iterations: int = 10,
) -> Tensor:
    r"""Compute the marginals of a dense CRF by mean-field inference, without gradient.

    The smoothness kernel is exact up to 1e-6. The appearance kernel is approximated by the permutohedral lattice, in
    time linear in the pixels; compared with the exact kernel, the marginals after one update differ by less than 0.01
    on average (``tests/functional/decisions/test_mean_field.py``). Where two labellings of a region are about equally
    likely, more updates amplify the difference.

    The default appearance kernel is that of the example of pydensecrf. The other defaults are also those of DeepLab,
    which selects the appearance kernel on validation images. Best values depend on the data and the network.

    Args:
        probs: Probabilities of the classes, of shape [N, C, H, W]. A single channel is the probability of the object.
        image: Of shape [N, K, H, W] with any number of channels, in levels from 0 to 255, not normalised.
        smoothness: Weight :math:`w_s`, and standard deviation :math:`\theta_\gamma` in pixels.
        appearance: Weight :math:`w_a`, and standard deviations :math:`\theta_\alpha` in pixels and
            :math:`\theta_\beta` in levels.
        iterations: Number of updates. With 0 of them, the marginals are the probabilities.

    Returns:
        Marginals of the shape of ``probs``, in float32 or better. NaN in an image stays NaN.

    Raises:
        TypeError: If ``probs`` is not a floating-point tensor, ``image`` no tensor, or a setting no number.
        ValueError: If shapes do not belong together, or probabilities, levels or settings are out of range.

    Example:
        >>> image = torch.tensor([10.0, 12, 11, 10, 200, 202, 201]).view(1, 1, 1, 7)
        >>> probs = torch.tensor([0.2, 0.1, 0.6, 0.2, 0.9, 0.4, 0.8]).view(1, 1, 1, 7)
        >>> dense_crf(probs, image, smoothness=(1, 1), appearance=(3, 10, 10)).flatten()
        tensor([0.0049, 0.0022, 0.0331, 0.0096, 0.9962, 0.9664, 0.9944])
    """
    _check_call(probs, image)
    _check_kernel('smoothness', smoothness, ('pixels',))
    _check_kernel('appearance', appearance, ('pixels', 'levels'))
    check_integer('iterations', iterations, lowest=0)
    probs = at_least_float32(probs.detach())
    n_channels = probs.shape[1]
    if n_channels == 1:
        probs = torch.cat([1 - probs, probs], 1)
    marginals = torch.empty_like(probs, memory_format=torch.contiguous_format)
    with torch.no_grad(), torch.autocast(probs.device.type, enabled=False):
        for result, p, levels in zip(marginals, probs, image.to(probs), strict=True):
            if p.numel() > 0:
                result.copy_(_mean_field(p, levels, smoothness, appearance, iterations))
    return marginals[:, -n_channels:]


class DenseCRF:
    """Decisions for the class of the highest marginal of :func:`dense_crf`.

    Args:
        smoothness, appearance, iterations: As in :func:`dense_crf`.
        temperature: Divisor of the logits.

    Example:
        >>> image = torch.tensor([10.0, 12, 11, 10, 200, 202, 201]).view(1, 1, 1, 7)
        >>> logits = torch.tensor([-1.4, -2.2, 0.4, -1.4, 2.2, -0.4, 1.4]).view(1, 1, 1, 7)
        >>> DenseCRF(smoothness=(1, 1), appearance=(3, 10, 10))(logits, image)
        tensor([[[0, 0, 0, 0, 1, 1, 1]]])
    """

    needs_image = True

    def __init__(
        self,
        smoothness: Sequence[float] = (3.0, 3.0),
        appearance: Sequence[float] = (10.0, 80.0, 13.0),
        iterations: int = 10,
        temperature: float = 1.0,
    ) -> None:
        _check_kernel('smoothness', smoothness, ('pixels',))
        _check_kernel('appearance', appearance, ('pixels', 'levels'))
        check_integer('iterations', iterations, lowest=0)
        check_number('temperature', temperature, '(0, inf)')
        self.smoothness, self.appearance = tuple(smoothness), tuple(appearance)
        self.iterations, self.temperature = iterations, temperature

    def __call__(self, logits: Tensor, image: Tensor) -> Tensor:
        """Return the decided classes, int64 of shape [N, H, W], of logits [N, C, H, W] and images [N, K, H, W]."""
        probs = class_probabilities(logits, self.temperature)
        marginals = dense_crf(probs, image, self.smoothness, self.appearance, self.iterations)
        return (marginals.squeeze(1) > 0.5).long() if probs.shape[1] == 1 else marginals.max(1).indices


def _mean_field(
    p: Tensor, levels: Tensor, smoothness: Sequence[float], appearance: Sequence[float], iterations: int
) -> Tensor:
    """Return the marginals [C, H, W] of one image. Classes are the last dimension in between."""
    log_p = p.clamp(min=torch.finfo(p.dtype).tiny).log().permute(1, 2, 0).contiguous()
    log_p += 0 * levels.sum(0).unsqueeze(2)  # NaN in the image is not hidden
    kernels = []
    if smoothness[0] > 0:
        kernels.append(_normalised(_smoothness_kernel(smoothness[1]), smoothness[0], log_p))
    if appearance[0] > 0:
        kernels.append(_normalised(_appearance_kernel(levels, *appearance[1:]), appearance[0], log_p))
    Q = log_p.softmax(2)
    for _ in range(iterations):
        logits = log_p.clone()
        for kernel in kernels:
            logits += kernel(Q)
        Q = logits.softmax(2)
    return Q.permute(2, 0, 1)


def _normalised(kernel: Filter, weight: float, like: Tensor) -> Filter:
    """Return a kernel times a weight, normalised symmetrically."""
    scale = (weight / kernel(torch.ones_like(like[..., :1]))).sqrt()
    return lambda values: kernel(values * scale).mul_(scale)


def _smoothness_kernel(deviation: float) -> Filter:
    """Return the Gaussian kernel of places, as two convolutions."""

    def apply(values: Tensor) -> Tensor:
        n_channels = values.shape[2]
        values = values.unsqueeze(0).permute(0, 3, 1, 2)  # channels last in memory
        for axis in (2, 3):
            reach = min(math.ceil(CUT * deviation), values.shape[axis] - 1)
            offsets = torch.arange(-reach, reach + 1, dtype=values.dtype, device=values.device)
            taps = (-((offsets / deviation) ** 2) / 2).exp()
            shape, padding = [n_channels, 1, 1, 1], [0, 0]
            shape[axis], padding[axis - 2] = len(taps), reach
            weight = taps.view([1, *shape[1:]]).expand(shape)
            values = F.conv2d(values, weight, padding=padding, groups=n_channels)
        return values[0].permute(1, 2, 0).contiguous()

    return apply


def _appearance_kernel(levels: Tensor, in_pixels: float, in_levels: float) -> Filter:
    """Return the Gaussian kernel of places and colours [K, H, W], approximated up to a factor."""
    height, width = levels.shape[1:]
    places = (torch.arange(side, dtype=levels.dtype, device=levels.device) / in_pixels for side in (height, width))
    features = [*torch.meshgrid(*places, indexing='ij'), *(levels.nan_to_num(0, 0, 0) / in_levels)]
    lattice = permutohedral_lattice(torch.stack(features, 2).flatten(0, 1))
    return lambda values: permutohedral_filter(lattice, values.flatten(0, 1)).view_as(values)


def _check_call(probs: Tensor, image: Tensor) -> None:
    """Raise unless these are probabilities [N, C, H, W] and images [N, K, H, W] in levels from 0 to 255."""
    check_tensor('probs', probs)
    check_tensor('image', image)
    check_floating_point('probs', probs)
    if probs.dim() != 4 or probs.shape[1] == 0:
        raise ValueError(f'Parameter `probs` should be of shape [N, C, H, W]. Found {tuple(probs.shape)}.')
    n, _, *size = probs.shape
    if image.dim() != 4 or image.shape[1] == 0 or [len(image), *image.shape[2:]] != [n, *size]:
        raise ValueError(
            f'Parameter `image` should be of shape [N, K, H, W] with the N, H and W of `probs`, {tuple(probs.shape)}. '
            f'Found {tuple(image.shape)}.'
        )
    check_probabilities('probs', probs)
    if probs.shape[1] > 1 and is_due(probs, 'probs', probs.dtype):
        total = probs.sum(1, dtype=torch.float32)
        message = 'Parameter `probs` should hold probabilities that add up to 1 over the classes of each pixel.'
        refuse((total - 1).abs() > SHARE_TOLERANCE, message, total)
    if is_due(image, 'image', image.dtype):
        _check_levels(image)


def _check_levels(image: Tensor) -> None:
    """Raise ValueError if the levels of an image are outside of [0, 255], or look like those of [0, 1]."""
    message = 'Parameter `image` should hold levels from 0 to 255, before any normalisation.'
    refuse((image < 0) | (image > 255), message, image)
    if image.is_floating_point():
        is_fraction = (image > 0) & (image < 1)
        hint = ' Pass `image * 255`, or `image.round()` if it really is this dark.'
        refuse(is_fraction & ~(image > 1).any(), f'{message} Found none above 1.', image, hint)


def _check_kernel(name: str, value: Sequence[float], units: tuple[str, ...]) -> None:
    """Raise unless a kernel is a weight and a standard deviation in each of the units."""
    if not isinstance(value, (tuple, list)) or len(value) != 1 + len(units):
        expected = ' and '.join(f'a standard deviation in {unit}' for unit in units)
        raise ValueError(f'Parameter `{name}` should be a weight and {expected}. Found {value!r}.')
    check_number(f'{name}[0]', value[0], '[0, inf)')
    for place, deviation in enumerate(value[1:], 1):
        check_number(f'{name}[{place}]', deviation, '[0.001, inf)')
