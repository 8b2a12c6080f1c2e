"""Helpers of several test files: loops over cases, seeded tensors, comparisons, small models."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from natgrad import DeepLinear, Diagonal, Direct, MatrixProduct, Network
from natgrad.parametrizations import Parametrization

F64 = torch.float64
DTYPES = [torch.float64, torch.float32]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=generator(seed))


def integers(*shape: int, seed: int, bound: int = 9) -> Tensor:
    """Whole numbers from −bound to bound, so that dependence of rows can be exact."""
    return torch.randint(-bound, bound + 1, shape, generator=generator(seed)).to(F64)


def signs(n: int, seed: int) -> Tensor:
    return 2.0 * torch.randint(0, 2, (n,), generator=generator(seed)).to(F64) - 1


def orthonormal(rows: int, columns: int, seed: int) -> Tensor:
    return torch.linalg.qr(randn(rows, columns, seed=seed))[0]


def with_spectrum(m: int, n: int, values: Any, seed: int) -> Tensor:
    """A matrix `(m, n)` with these singular values, the rest zero."""
    s = torch.as_tensor(values, dtype=F64)
    return (orthonormal(m, len(s), seed) * s) @ orthonormal(n, len(s), seed + 1).mT


def pinv(a: Tensor, rtol: float = 1e-12) -> Tensor:
    """numpy's pseudo-inverse, in double precision."""
    return torch.as_tensor(np.linalg.pinv(a.detach().double().numpy(), rcond=rtol))


def kron(a: Tensor, b: Tensor) -> Tensor:
    """numpy's Kronecker product; torch's refuses some strides."""
    return torch.as_tensor(np.kron(a.numpy(), b.numpy()))


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    """Compare in double precision, relative to the largest entry expected."""
    assert actual.shape == expected.shape
    actual, expected = actual.detach().double(), expected.detach().double()
    size = float(expected.abs().max()) if expected.numel() else 0.0
    error = float((actual - expected).abs().max()) if expected.numel() else 0.0
    assert error <= tolerance * (size or 1.0), f"error {error:.2e}, size {size:.2e}"


def for_each(cases: Iterable[Any], check: Callable[[Any], object]) -> None:
    """Run a check on every case, then fail once with the name of each case that failed.

    A loop of thousands of small cases costs pytest far less than thousands of tests do. The
    traceback is that of the first failure.
    """
    failed: list[tuple[str, BaseException]] = []
    count = 0
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append((str(case), error))
    assert count, "there are no cases"
    if failed:
        lines = [f"  {name}: {type(e).__name__}: {_first_line(e)}" for name, e in failed]
        head = f"{len(failed)} of {count} cases failed:"
        raise AssertionError("\n".join([head, *lines])) from failed[0][1]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True)
class Model:
    """A parametrization at some parameters, with two sets of inputs."""

    name: str
    parametrization: Parametrization[Any]
    params: Any
    x: Tensor
    other: Tensor

    def __str__(self) -> str:
        return self.name


class MeanShift(torch.nn.Module):
    """A module whose samples interact: each output depends on the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(x))
        return h - h.mean(0)


def module(build: Callable[[], torch.nn.Module], seed: int = 0) -> torch.nn.Module:
    """A module in double precision with parameters drawn from a seed."""
    made = build().double()
    source = generator(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.5 * torch.randn(p.shape, dtype=F64, generator=source))
    return made.eval()


def mlp(outputs: int = 1) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, outputs))


def small_conv() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv1d(2, 3, 2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(9, 2)
    )


def embedding() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Embedding(5, 3), torch.nn.Flatten(), torch.nn.Tanh(), torch.nn.Linear(6, 2)
    )


class Tied(torch.nn.Module):
    """One linear layer called twice, and its weight once more outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.last = torch.nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(torch.tanh(self.inner(x))))
        return self.last(h) + x @ self.inner.weight[:, :2]


class Borrowed(torch.nn.Module):
    """A linear layer called once, its weight used again elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x)) @ self.inner.weight


def sharing() -> torch.nn.Module:
    """Two modules own the same weight."""
    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
    made[2].weight = made[0].weight
    return made


def in_place() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.LeakyReLU(0.3, inplace=True), torch.nn.Linear(4, 2)
    )


def sequence() -> torch.nn.Module:
    """Linear layers on inputs with an axis of positions besides the data."""
    return torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )


def frozen_mlp() -> torch.nn.Module:
    made = mlp(2)
    made[0].bias.requires_grad_(False)
    return made


def chain(widths: tuple[int, ...], seed: int) -> tuple[Tensor, ...]:
    """Factors of β = W₁⋯W_L, Wᵢ of shape (widths[i−1], widths[i])."""
    shapes = enumerate(pairwise(widths))
    return tuple(randn(a, b, seed=seed + i) / a**0.5 for i, (a, b) in shapes)


def deep(widths: tuple[int, ...], seed: int) -> tuple[Tensor, ...]:
    """Factors of W = W_L⋯W₁, Wᵢ of shape (widths[i], widths[i−1])."""
    return tuple(w.mT.contiguous() for w in chain(widths, seed))


def positions(rows: int, columns: int, n: int, seed: int) -> Tensor:
    """n different positions in a matrix."""
    flat = torch.randperm(rows * columns, generator=generator(seed))[:n]
    return torch.stack([flat // columns, flat % columns], dim=1)


def _direct() -> list[Model]:
    vector, matrix = randn(3, seed=1), randn(3, 2, seed=2)
    x, other = randn(4, 3, seed=3), randn(2, 3, seed=4)
    entries = positions(3, 2, 4, seed=5)
    return [
        Model("direct-vector", Direct(), vector, x, other),
        Model("direct-matrix", Direct(), matrix, x, other),
        Model("direct-positions", Direct(), matrix, entries, entries[:2]),
    ]


def _diagonal() -> list[Model]:
    x, other = randn(4, 3, seed=10), randn(2, 3, seed=11)
    return [
        Model(f"diagonal-{depth}", Diagonal(depth), randn(depth, 3, seed=12 + depth), x, other)
        for depth in (1, 2, 3, 4)
    ]


def _matrix_products() -> list[Model]:
    widths = {
        "matrix_product-1": (3, 4),
        "matrix_product-2": (3, 3, 3),
        "matrix_product-2-rectangular": (3, 5, 4),
        "matrix_product-3": (3, 3, 3, 3),
        "matrix_product-3-bottleneck": (4, 2, 3, 4),
        "matrix_product-4-rectangular": (2, 4, 3, 5, 3),
        "matrix_product-4-bottleneck": (3, 4, 1, 3, 3),
    }
    models = []
    for seed, (name, w) in enumerate(widths.items()):
        x = positions(w[0], w[-1], 5, seed)
        params = chain(w, 100 + 10 * seed)
        models.append(Model(name, MatrixProduct(len(w) - 1), params, x, x.flip(0)[:3]))
    return models


def _deep_linear() -> list[Model]:
    widths = {
        "deep_linear-1": (3, 2),
        "deep_linear-2-expanding": (2, 4, 3),
        "deep_linear-3": (3, 3, 3, 3),
        "deep_linear-3-bottleneck": (3, 4, 1, 2),
        "deep_linear-4-contracting": (4, 4, 3, 2, 1),
    }
    models = []
    for seed, (name, w) in enumerate(widths.items()):
        x, other = randn(6, w[0], seed=200 + seed), randn(2, w[0], seed=300 + seed)
        models.append(Model(name, DeepLinear(w), deep(w, 400 + 10 * seed), x, other))
    return models


def _networks() -> list[Model]:
    def make(name: str, build: Callable[[], torch.nn.Module], x: Tensor, other: Tensor) -> Model:
        network = Network(module(build))
        return Model(name, network, network.init(), x, other)

    real, few = randn(4, 3, seed=20), randn(2, 3, seed=21)
    words = torch.randint(0, 5, (4, 2), generator=generator(22))
    signal = randn(3, 2, 4, seed=23)
    return [
        make("network-linear", lambda: torch.nn.Linear(3, 2), real, few),
        make("network-mlp", mlp, real, few),
        make("network-outputs", lambda: mlp(3), real, few),
        make("network-conv", small_conv, signal, signal[:2]),
        make("network-embedding", embedding, words, words[:2]),
        make("network-frozen", frozen_mlp, real, few),
        make("network-interacting", MeanShift, real, few),
        make("network-tied", Tied, real, few),
        make("network-borrowed", Borrowed, real, few),
        make("network-sharing", sharing, real, few),
        make("network-in-place", in_place, real, few),
        make("network-sequence", sequence, randn(3, 2, 3, seed=24), randn(2, 2, 3, seed=25)),
    ]


LINEAR = [*_direct(), *_diagonal(), *_matrix_products(), *_deep_linear()]
NETWORKS = _networks()
MODELS = [*LINEAR, *NETWORKS]


def model(name: str) -> Model:
    return next(m for m in MODELS if m.name == name)


def outputs_of(m: Model) -> int:
    """Outputs per sample."""
    return m.parametrization.predict(m.params, m.x).reshape(len(m.x), -1).shape[1]
