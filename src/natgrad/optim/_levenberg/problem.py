"""The return value of a closure as a least-squares problem: rows, targets, and a loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from natgrad._checks import dense, describe, number
from natgrad.errors import DtypeError, InvalidInputError, NonFiniteError, ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.likelihoods.base import flatten_outputs
from natgrad.optim._rows.jacobian import Strip, contrasted

__all__ = ["Outputs", "Problem", "Residuals", "Values", "Whitening"]


@dataclass(frozen=True)
class Values:
    """What a closure returned.

    Attributes:
        blocks: Values by name, each `(n, k)`, with their graph.
        weights: Weight of each block; empty with a likelihood.
        labels: Labels, with a likelihood.
    """

    blocks: dict[str, Tensor]
    weights: dict[str, float]
    labels: Tensor | None = None

    def flat(self) -> Tensor:
        """Return all numbers in the order of the rows: block, column, sample."""
        return torch.cat([value.detach().mT.reshape(-1) for value in self.blocks.values()])


class Whitening(Protocol):
    """Weights that turn a change of the values into a change of square-root losses."""

    @property
    def target(self) -> Tensor:
        """Return the weighted t: −r for residuals, natural velocities with a likelihood."""

    def apply(self, change: Values) -> Tensor:
        """Return weighted values in the order of the rows."""

    def rows(self, strips: Sequence[Sequence[Strip]]) -> list[Strip]:
        """Return weighted rows."""


class Problem(Protocol):
    """How a closure's return value is read, and what its loss is."""

    def read(self, returned: Any, name: str) -> Values:
        """Return checked values."""

    def losses(self, values: Values) -> dict[str, float]:
        """Return the part of the loss in each block."""

    def whiten(self, values: Values) -> Whitening:
        """Return the weights at these values."""


# Residuals ----------------------------------------------------------------------------------------


class Residuals:
    """Blocks of residuals, loss ½ Σ weight · mean(r²)."""

    def __init__(self, like: Tensor) -> None:
        self.like = like

    def read(self, returned: Any, name: str) -> Values:
        """Return blocks from a tensor, or a mapping to tensors or pairs (tensor, weight)."""
        found = {"residual": returned} if isinstance(returned, Tensor) else returned
        if not isinstance(found, Mapping) or not found:
            raise DtypeError(
                f"the {name} must return residuals, as a tensor or as a dict of blocks such as "
                f"{{'interior': r, 'boundary': (b, 4.0)}}, but returned {describe(returned)}. With "
                "outputs and labels, name the likelihood: GaussNewton(net, ng.Bernoulli())."
            )
        blocks, weights = {}, {}
        for key, value in found.items():
            if not isinstance(key, str):
                raise DtypeError(f"names of blocks must be strings, but one is {describe(key)}.")
            residual, weight = value, 1.0
            if isinstance(value, (tuple, list)):
                if len(value) != 2:
                    raise ShapeError(
                        f"block {key!r} must be a tensor or a pair (tensor, weight), but has "
                        f"{len(value)} parts."
                    )
                residual, weight = value
            blocks[key] = _matrix(residual, f"block {key!r}", self.like)
            weights[key] = number(weight, f"the weight of block {key!r}", low=0, low_open=True)
        return Values(blocks, weights)

    def losses(self, values: Values) -> dict[str, float]:
        """Return ½ weight · mean(r²) of each block."""
        return {
            name: 0.5 * values.weights[name] * float(value.detach().square().mean())
            for name, value in values.blocks.items()
        }

    def whiten(self, values: Values) -> "_Weighted":
        """Return constant weights √(weight / count)."""
        weights = [
            (values.weights[name] / value.numel()) ** 0.5 for name, value in values.blocks.items()
        ]
        found = _Weighted(weights, torch.empty(0))
        return _Weighted(weights, -found.apply(values))


@dataclass(frozen=True)
class _Weighted:
    weights: list[float]
    target: Tensor

    def apply(self, change: Values) -> Tensor:
        return torch.cat(
            [
                w * value.detach().mT.reshape(-1)
                for w, value in zip(self.weights, change.blocks.values(), strict=True)
            ]
        )

    def rows(self, strips: Sequence[Sequence[Strip]]) -> list[Strip]:
        return [
            strip.scaled(torch.full((strip.n,), w, dtype=self.target.dtype).to(self.target))
            for w, block in zip(self.weights, strips, strict=True)
            for strip in block
        ]


# Outputs of a likelihood --------------------------------------------------------------------------


class Outputs:
    """Outputs and labels under a likelihood."""

    def __init__(self, likelihood: Likelihood, like: Tensor) -> None:
        self.likelihood, self.like = likelihood, like

    def read(self, returned: Any, name: str) -> Values:
        """Return outputs from a pair (outputs, labels)."""
        if not isinstance(returned, (tuple, list)) or len(returned) != 2:
            raise DtypeError(
                f"with a likelihood the {name} must return the pair (outputs, labels), but "
                f"returned {describe(returned)}."
            )
        output, labels = returned
        _matrix(output, "outputs", self.like)
        self.likelihood.prepare(output, labels)
        return Values({"outputs": flatten_outputs(output)}, {}, labels)

    def losses(self, values: Values) -> dict[str, float]:
        """Return the reduced loss."""
        assert values.labels is not None
        losses = self.likelihood.losses(values.blocks["outputs"].detach(), values.labels)
        return {"outputs": float(losses.sum()) * self.likelihood.scale(len(losses))}

    def whiten(self, values: Values) -> "_Rooted":
        """Return the root of the Fisher at these outputs."""
        assert values.labels is not None
        output = values.blocks["outputs"].detach()
        white = self.likelihood.whitened(output, values.labels)
        weight = torch.exp(white.log_weight) * self.likelihood.scale(len(output)) ** 0.5
        return _Rooted(white.contrast, weight, (weight * white.target).mT.reshape(-1))


@dataclass(frozen=True)
class _Rooted:
    contrast: Tensor | None
    weight: Tensor  # (n, r)
    target: Tensor

    def apply(self, change: Values) -> Tensor:
        u = change.blocks["outputs"].detach()
        if self.contrast is not None:
            u = torch.einsum("nrk,nk->nr", self.contrast.expand(len(u), -1, -1), u)
        return (self.weight * u).mT.reshape(-1)

    def rows(self, strips: Sequence[Sequence[Strip]]) -> list[Strip]:
        (block,) = strips
        found = block if self.contrast is None else contrasted(block, self.contrast)
        return [strip.scaled(self.weight[:, r]) for r, strip in enumerate(found)]


def _matrix(value: Any, name: str, like: Tensor) -> Tensor:
    """Return a tensor as `(n, k)`; refuse what cannot be differentiated or is not finite."""
    found = dense(value, name)
    if found.dtype != like.dtype or found.device != like.device:
        raise DtypeError(
            f"{name} must be {like.dtype} on {like.device}, as the parameters, but is "
            f"{found.dtype} on {found.device}."
        )
    if found.ndim == 0 or found.numel() == 0:
        raise ShapeError(
            f"{name} must have one row per sample, but has shape {tuple(found.shape)}. Return the "
            "residuals themselves and not their mean."
        )
    return found.reshape(len(found), -1)


def require_graph(values: Values) -> None:
    """Raise unless every block depends on something that can be differentiated."""
    for name, value in values.blocks.items():
        if not value.requires_grad:
            raise InvalidInputError(
                f"{name!r} does not depend on the parameters: it has no graph. Compute it inside "
                "of the closure, without torch.no_grad() or detach()."
            )


def require_finite_values(values: Values) -> None:
    """Raise if a value is NaN or infinite."""
    for name, value in values.blocks.items():
        bad = int((~value.detach().isfinite()).sum())
        if bad:
            raise NonFiniteError(
                f"{bad} of the {value.numel()} values of {name!r} are NaN or infinite at the "
                "present weights, which were not touched."
            )
