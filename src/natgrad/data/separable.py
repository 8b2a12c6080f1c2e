"""Two classes that a hyperplane through the origin separates. [KMH21] §3.1."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import integer
from natgrad._named import named

__all__ = ["Separable", "planar", "sparse_gaussian"]


@dataclass(frozen=True, eq=False)
class Separable:
    """Inputs, labels, and the separator that defines the labels.

    Attributes:
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        beta: The separator, shape `(d,)`.

    Example:
        >>> task = sparse_gaussian(4, 3, ones=1, seed=0)
        >>> bool((task.y == torch.sign(task.x @ task.beta)).all())
        True
    """

    x: Tensor
    y: Tensor
    beta: Tensor

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs and labels, as directions and flows take them."""
        return self.x, self.y


@named
def sparse_gaussian(n: int, dim: int, *, ones: int, seed: int) -> Separable:
    """Return standard normal inputs, labeled by a separator of `ones` ones and zeros.

    [KMH21] Figure 4 has dim = 1000 and 20 ones, Figure 6 dim = 50 and 5 ones.

    Args:
        n: Number of samples.
        dim: Number of features.
        ones: How many of the first coordinates of the separator are 1; the others are 0.
        seed: Seed of the inputs.

    Raises:
        InvalidInputError: If a size is not positive, or there are more ones than features.

    Example:
        >>> task = sparse_gaussian(5, 10, ones=2, seed=0)
        >>> task.x.shape, task.beta.tolist()[:3]
        (torch.Size([5, 10]), [1.0, 1.0, 0.0])
    """
    n, dim = integer(n, "n", low=1), integer(dim, "dim", low=1)
    ones = integer(ones, "ones", low=1, high=dim)
    generator = torch.Generator().manual_seed(integer(seed, "seed"))
    x = torch.randn(n, dim, dtype=torch.float64, generator=generator)
    beta = torch.zeros(dim, dtype=torch.float64)
    beta[:ones] = 1
    return Separable(x, torch.sign(x @ beta), beta)


# Support vectors times their label: those of the class −1 have both signs reversed.
_SUPPORTS = ((1.0, 0.5), (0.7, 1.85), (2.3, -1.2))
_CENTER, _RADII = (3.4, 0.3), (1.2, 1.6)


@named
def planar(n: int = 40) -> Separable:
    """Return two classes in the plane that each method separates differently. [KMH21] Figure 2.

    The first axis separates them, and oblique lines separate them by a larger margin. Three samples
    support the separators. The first alone supports the ℓ2 max margin (26.6° from the axis). With
    the second it supports the ℓ1 max margin (12.5°), and with the third the vertex of natural
    gradient flow (37.4°). The optimum of ℓ_{1/2} is on the axis. The other samples fill an ellipse
    for each class, far from every separator. Natural gradient flow chooses its vertex because of
    their sum.

    The positions of the three samples are our choice, because the paper prints none. They are such
    that gradient flow, which approaches the ℓ2 max margin like 1/log t, is near it when the figure
    ends.

    Args:
        n: Number of samples, half of each class.

    Raises:
        InvalidInputError: If n is below 4.

    Example:
        >>> task = planar()
        >>> bool((task.y * task.x[:, 0] > 0).all())
        True
    """
    n = integer(n, "n", low=4)
    k = torch.arange(n - len(_SUPPORTS), dtype=torch.float64)
    radius = torch.sqrt((k + 0.5) / len(k))
    angle = k * math.pi * (3 - math.sqrt(5))  # the golden angle spreads points evenly
    center = torch.tensor(_CENTER, dtype=torch.float64)
    around = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
    cloud = center + around * torch.tensor(_RADII, dtype=torch.float64)
    signed = torch.cat([torch.tensor(_SUPPORTS, dtype=torch.float64), cloud])
    y = torch.ones(n, dtype=torch.float64)
    y[1::2] = -1
    return Separable(y[:, None] * signed, y, torch.tensor([1.0, 0.0], dtype=torch.float64))
