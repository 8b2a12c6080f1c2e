"""Angles and distances between solutions."""

from collections.abc import Mapping
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from natgrad._checks import choice, describe
from natgrad._named import named
from natgrad.diagnostics._inputs import alike, broadcast, check_real, check_same_length
from natgrad.errors import DtypeError, ShapeError


@named
def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return a·b / (‖a‖‖b‖) along the last dimension; NaN where a vector is zero.

    Example:
        >>> cosine(torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
        tensor([1., 0.])
    """
    a, b = check_same_length(a, b, ("a", "b"))
    broadcast(a, b, ("a", "b"))
    return (_unit(a) * _unit(b)).sum(-1).clamp(-1, 1)


@named
def angle(a: Tensor, b: Tensor) -> Tensor:
    """Return the angle between vectors in radians, from 0 to π; NaN where one is zero.

    The formula is 2 atan2(‖â − b̂‖, ‖â + b̂‖) (Kahan), because the arc cosine cannot resolve angles
    below 1e-8 in double precision.

    Example:
        >>> a = torch.tensor([1.0, 0.0], dtype=torch.float64)
        >>> float(angle(a, torch.tensor([1.0, 1e-12], dtype=torch.float64)))
        1e-12
    """
    a, b = check_same_length(a, b, ("a", "b"))
    broadcast(a, b, ("a", "b"))
    u, v = _unit(a), _unit(b)
    return 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))


class HasSolution(Protocol):
    """A result of `natgrad.limits`."""

    @property
    def solution(self) -> Tensor:
        """Return the limit."""


Measure = Literal["angle", "relative"]


@named
def distance_to_limits(
    beta: Tensor, limits: Mapping[str, Tensor | HasSolution], measure: Measure = "angle"
) -> dict[str, Tensor]:
    """Return how far β is from each of several limits.

    Args:
        beta: Hypotheses, shape `(…, d)`; or matrices `(…, r, c)` for limits that are matrices.
        limits: Named limits: results of `natgrad.limits`, or tensors.
        measure: `"angle"` in radians, for limits that are directions (separable data), or
            `"relative"`, ‖β − limit‖ / ‖limit‖.

    Returns:
        Distances by name, shape `(…)`; NaN where a limit is zero, and for angles also where β is.

    Example:
        >>> near = {"l2": torch.tensor([1.0, 1.0]), "l1": torch.tensor([1.0, 0.0])}
        >>> distances = distance_to_limits(torch.tensor([2.0, 0.0]), near)
        >>> {name: round(float(d), 4) for name, d in distances.items()}
        {'l2': 0.7854, 'l1': 0.0}
    """
    choice(measure, "measure", get_args(Measure))
    beta = check_real(beta, "beta")
    if not isinstance(limits, Mapping):
        raise DtypeError(f"limits must map names to limits, but is {describe(limits)}.")
    out = {}
    for name, limit in limits.items():
        goal = limit if isinstance(limit, Tensor) else getattr(limit, "solution", limit)
        goal = check_real(goal, f"limit {name!r}")
        if beta.shape[beta.ndim - goal.ndim :] != goal.shape:
            raise ShapeError(
                f"limit {name!r} has shape {tuple(goal.shape)}, but beta {tuple(beta.shape)}."
            )
        flat = beta.reshape(*beta.shape[: beta.ndim - goal.ndim], -1)
        flat, goal = alike(flat, goal.reshape(-1), ("beta", f"limit {name!r}"))
        out[name] = angle(flat, goal) if measure == "angle" else _relative(flat, goal)
    return out


def _relative(a: Tensor, goal: Tensor) -> Tensor:
    """Return ‖a − goal‖ / ‖goal‖, scaled first so that squares neither overflow nor underflow."""
    size = goal.abs().max()
    far = torch.maximum(a.abs().amax(-1, keepdim=True), size)
    gap: Tensor = (a / far - goal / far).norm(dim=-1) * (far[..., 0] / size)
    length: Tensor = (goal / size).norm()
    return gap / length


def _unit(a: Tensor) -> Tensor:
    """Return unit vectors; scaled by the largest entry first, so that squares do not overflow."""
    a = a / a.abs().amax(-1, keepdim=True)
    length: Tensor = a.norm(dim=-1, keepdim=True)
    return a / length
