"""Regression with heavy tails."""

import numpy as np
import torch
from torch import Tensor

from natgrad.likelihoods import Likelihood, Reduction, Root
from natgrad.likelihoods.base import flatten_outputs, like_outputs


class Student(Likelihood):
    """Real labels with Student noise of ν degrees of freedom, loss ½ (ν + 1) log(1 + e²/ν).

    With e = y − f: gradient −(ν + 1) e / (ν + e²), Fisher (ν + 1)/(ν + 3) whatever the outputs.

    Example:
        >>> Student(nu=3.0)(torch.zeros(1), torch.zeros(1))
        tensor(0.)
    """

    constant_fisher = True

    def __init__(self, nu: float = 4.0, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        self.nu = nu

    @property
    def _precision(self) -> float:
        return (self.nu + 1) / (self.nu + 3)

    def precision_root(self, like: Tensor, k: int) -> Tensor:
        return self._precision**0.5 * torch.eye(k, dtype=like.dtype, device=like.device)

    def root(self, output: Tensor) -> Root:
        f = flatten_outputs(output)
        return Root(self.precision_root(f, f.shape[1])[None], torch.zeros_like(f))

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes of a quadrature; one output only.

        With e = √ν tan θ the density is cos^{ν − 1} θ, and the score a polynomial in sin and cos.
        """
        nodes, weights = np.polynomial.legendre.leggauss(200)
        angle = torch.from_numpy(0.5 * np.pi * nodes)
        density = torch.from_numpy(weights) * torch.cos(angle) ** (self.nu - 1)
        labels = output + self.nu**0.5 * torch.tan(angle)[:, None].to(output)
        return labels, (density / density.sum()).to(output)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        noise, scale = (
            torch.randn(*shape, dtype=output.dtype, generator=generator)
            for shape in (output.shape, (int(self.nu), *output.shape))
        )
        return output + noise / scale.square().mean(0).sqrt()

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (self.nu + 1) * torch.log1p((y - f) ** 2 / self.nu).sum(1)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        e = y - f
        return -(self.nu + 1) * e / (self.nu + e**2)

    def _fisher(self, f: Tensor) -> Tensor:
        eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        return (self._precision * eye).expand(len(f), -1, -1)

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return -self._gradient(f, y) / self._precision**0.5

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        return like_outputs(f, y)

    # What the table of cases takes.

    @staticmethod
    def build(reduction: str, k: int) -> "Student":
        return Student(reduction=reduction)  # type: ignore[arg-type]

    @staticmethod
    def labels(f: Tensor, seed: int) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        return 3 * torch.randn(f.shape, dtype=f.dtype, generator=draw)
