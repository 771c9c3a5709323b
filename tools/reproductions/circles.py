"""Images of one circle each with a noisy feature per pixel, as in section 4.1 of the Lovász-Softmax paper."""

import torch
from torch import Tensor


def circles(n_images: int, size: int, radii: tuple[float, float], generator: torch.Generator) -> Tensor:
    """Return boolean labels [N, size, size]: circles with radii from a range, anywhere inside their image."""
    radius = radii[0] + (radii[1] - radii[0]) * torch.rand(n_images, 1, generator=generator)
    centre = radius + (size - 1 - 2 * radius) * torch.rand(n_images, 2, generator=generator)
    position = torch.arange(size)
    y, x = (position - centre[:, :1]), (position - centre[:, 1:])
    return y[:, :, None] ** 2 + x[:, None, :] ** 2 <= radius[:, :, None] ** 2


def noisy(labels: Tensor, generator: torch.Generator, signal: float = 1.0) -> Tensor:
    """Return a float64 feature of each pixel with mean ``±signal / 2`` on and off the circle and unit variance."""
    return signal * (labels.double() - 0.5) + torch.randn(labels.shape, generator=generator, dtype=torch.float64)
