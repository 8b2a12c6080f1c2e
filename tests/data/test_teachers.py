import math

import pytest
import torch

from natgrad.data.teachers import correlated_inputs, gaussian_factors, orthogonal_factors, teach
from natgrad.errors import InvalidInputError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_inputs_have_the_spectrum_of_the_paper():
    x = correlated_inputs(400_000, 10, generator())
    spectrum = torch.linalg.eigvalsh(x.mT @ x / len(x)).flip(0)
    expected = torch.exp(-0.5 * torch.arange(1.0, 11, dtype=torch.float64))
    torch.testing.assert_close(spectrum, expected, rtol=0.02, atol=0)


@pytest.mark.parametrize("widths", [(5, 5, 5), (6, 3, 6), (3, 8, 2)])
def test_orthogonal_factors_keep_lengths(widths):
    for w in orthogonal_factors(widths, generator()):
        small = w @ w.mT if w.shape[0] <= w.shape[1] else w.mT @ w
        torch.testing.assert_close(small, torch.eye(len(small), dtype=torch.float64))


def test_gaussian_factors_have_variance_one_over_fan_in():
    (w,) = gaussian_factors((400, 300), generator())
    assert abs(float(w.var()) * 400 - 1) < 0.02


def test_the_teacher_reaches_the_floor_and_nothing_goes_below():
    widths = (12, 7, 9)
    teacher = gaussian_factors(widths, generator(1))
    task = teach(teacher, generator(2), examples=20_000, tests=5_000, noise=1e-4)
    total = teacher[1] @ teacher[0]
    loss = 0.5 * (task.test_targets - task.test_inputs @ total.mT).square().sum(1).mean()
    assert task.floor == pytest.approx(0.5 * 1e-4 * 9)
    assert float(loss) == pytest.approx(task.floor, rel=4 * math.sqrt(2 / (5000 * 9)))
    fit = torch.linalg.lstsq(task.train_inputs, task.train_targets).solution
    best = 0.5 * (task.train_targets - task.train_inputs @ fit).square().sum(1).mean()
    assert float(best) == pytest.approx(task.floor, rel=0.02)


def test_the_same_seed_gives_the_same_data():
    one, other = (teach(gaussian_factors((4, 3), generator(3)), generator(4)) for _ in range(2))
    assert torch.equal(one.train_targets, other.train_targets)
    assert torch.equal(one.test_inputs, other.test_inputs)


def test_bad_numbers_get_a_sentence():
    with pytest.raises(InvalidInputError, match="noise"):
        teach(gaussian_factors((4, 3), generator()), generator(), noise=-1.0)
