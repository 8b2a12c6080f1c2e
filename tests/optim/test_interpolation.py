"""Long after every sample is classified: gaps between logits grow, the Fisher vanishes."""

import pytest
import torch

from natgrad import Bernoulli, Categorical
from natgrad.optim import NGD
from tests.helpers import DTYPES, F64, generator
from tests.optim.nets import mlp, seeded, train


def fit(kind: str, dtype: torch.dtype, seed: int, steps: int) -> list[float]:
    """Losses of a network 4-8-8-k on 96 separable points, NGD with default settings."""
    source = generator(seed)
    x = torch.randn(96, 4, dtype=F64, generator=source)
    classes = (x @ torch.randn(4, 3, dtype=F64, generator=source)).argmax(1)
    criterion = Categorical() if kind == "categorical" else Bernoulli()
    outputs = 3 if kind == "categorical" else 1
    y = classes if kind == "categorical" else (2 * (classes == 0) - 1)[:, None].to(dtype)
    model = seeded(lambda: mlp(4, 8, 8, outputs), seed=seed, dtype=dtype)
    return train(NGD(model, criterion), criterion, x.to(dtype), y, steps)


def assert_fitted(losses: list[float], below: float) -> None:
    interpolated = next(i for i, loss in enumerate(losses) if loss < 1e-6)
    assert interpolated < 500
    assert max(losses[interpolated:]) <= 2e-6
    assert losses[-1] < below


@pytest.mark.parametrize(
    ("steps", "below"), [(500, 1e-6), pytest.param(1600, 2e-9, marks=pytest.mark.slow)]
)
def test_single_precision_survives_interpolation(steps, below):
    """diag p̄ − pᵀp/n was indefinite from step 1533 on."""
    assert_fitted(fit("categorical", torch.float32, seed=2, steps=steps), below)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["categorical", "bernoulli"])
def test_three_thousand_steps_end_without_error_and_with_a_small_loss(kind, dtype, seed):
    assert_fitted(fit(kind, dtype, seed, steps=3000), 5e-10)
