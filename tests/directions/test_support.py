"""Every cell of the support table, against the dense autograd reference."""

import pytest
import torch

from natgrad import reference
from tests.cases import MODELS, TABLE, Case, all_cases, support_table
from tests.helpers import for_each

TOLERANCE = 1e-9


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_natural_is_exact_or_refused(model) -> None:
    for_each((case for case in all_cases() if case.model is model), natural_is_exact_or_refused)


def natural_is_exact_or_refused(case: Case) -> None:
    error = case.expected_error()
    if error is not None:
        with pytest.raises(error):
            case.natural()
        return
    v = reference.flatten(case.natural())
    fisher, gradient = case.dense_fisher(), case.gradient()
    if case.selection == "min_norm":
        assert_same_direction(case, v, fisher, gradient)
    elif case.damping:
        assert_layers_are_damped_alone(case, v, fisher, gradient)
    else:
        assert_natural(case, v, fisher, gradient)


def assert_same_direction(case, v, fisher, gradient) -> None:
    """Equal in parameter space, hence in function space, to −F⁺∇L or −(F + λ)⁻¹∇L."""
    expected = reference_direction(fisher, gradient, case.damping)
    x = case.batch[0]
    moved, wanted = case.velocities(v, x), case.velocities(expected, x)
    assert relative(moved, wanted) < TOLERANCE
    assert relative(v, expected) < 1e-7


def assert_natural(case, v, fisher, gradient) -> None:
    """F v = −∇L where that is solvable, and the velocity of the Moore–Penrose direction."""
    expected = reference_direction(fisher, gradient, 0.0)
    x = case.batch[0]
    assert relative(case.velocities(v, x), case.velocities(expected, x)) < TOLERANCE
    assert relative(fisher @ v, fisher @ expected) < TOLERANCE


def assert_layers_are_damped_alone(case, v, fisher, gradient) -> None:
    """Each layer solves its own damped block, weighed by its share."""
    weights = (
        [1 / case.layers] * case.layers if case.selection == "equal_share" else case.shares.weights
    )
    model = case.model
    ones = reference.unflatten(torch.ones_like(v), model.params)
    expected = torch.zeros_like(v)
    for layer, weight in enumerate(weights):
        mask = reference.flatten(model.parametrization.restrict(ones, layer)).bool()
        block, part = fisher[mask][:, mask], gradient[mask]
        expected[mask] = weight * reference_direction(block, part, case.damping)
    assert relative(v, expected) < TOLERANCE


def reference_direction(fisher, gradient, damping):
    if damping:
        return -torch.linalg.solve(fisher + damping * torch.eye(len(fisher)).to(fisher), gradient)
    return -torch.linalg.pinv(fisher, rtol=1e-13, hermitian=True) @ gradient


def relative(a, b) -> float:
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


def test_support_table_in_the_docs_is_current() -> None:
    assert TABLE.read_text() == support_table(), "run: python -m tests.cases"
