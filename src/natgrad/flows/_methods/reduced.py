"""The solver for gradient flow of small diagonal networks on logistic loss: one unknown each."""

import math
from typing import Any

import torch
from torch import Tensor

from natgrad.flows._methods.adaptive import AdaptivePath, AdaptiveSolver
from natgrad.flows._methods.coordinates import Coordinates
from natgrad.flows._methods.dual.solver import is_diagonal_logistic
from natgrad.flows._methods.layer_coordinates import LayerCoordinates
from natgrad.flows._methods.steppers.paired import PairedStepper
from natgrad.flows._methods.steppers.stepper import ScipyStepper, Stepper, accuracy
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P, leaves

_DENSE = 64  # unknowns up to which LSODA with its dense Jacobian is the fastest
_LOOSE = 3e-3  # below this, DOP853 goes first: as fast, and ten times as accurate
_COARSE = 3e-4  # from this on, the fifth order takes fewer evaluations than the eighth
_SHORT = 1e-200  # times at which LSODA divides by numbers that have underflowed, and never ends
_SMALL = 100_000  # entries of X up to which leaving out rows and columns saves nothing
_TIGHT = 3e-4  # below this, the second order of `dual` costs more than it saves,
_LARGE, _TIGHTER = 1_000_000, 3e-6  # and with so many entries, below this


class ReducedSolver(AdaptiveSolver):
    """LSODA, or for many features a pair of explicit methods, on `LayerCoordinates`."""

    purpose = "euclidean flows of Direct or Diagonal with one logit under Bernoulli, float64 on CPU"
    default_rtol = 1e-3
    successor = "dual"

    def __init__(self) -> None:
        super().__init__("reduced")

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is gradient flow of a diagonal network in double precision."""
        if not is_diagonal_logistic(problem):
            return False
        tensors = (*leaves(problem.params), problem.batch[0])
        return all(t.dtype == torch.float64 and t.device.type == "cpu" for t in tensors)

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it: few features, or a tight tolerance."""
        if not self.suits(problem):
            return None
        x = problem.batch[0]
        size = float(x.abs().max())
        if size == 0 or abs(math.log2(size)) > 100:
            return None
        if x.numel() <= _SMALL:
            return f"for {len(x)} samples of {x.shape[1]} features"
        tight = _TIGHT if x.numel() <= _LARGE else _TIGHTER
        return f"for rtol = {rtol:g}" if rtol < tight else None

    def coordinates(self, problem: Problem[P], params: P) -> Coordinates[P]:
        """Return one unknown per feature."""
        return LayerCoordinates(problem, params)

    def stepper(self, flow: AdaptivePath[P], y: Tensor, end: float, **options: Any) -> Stepper:
        """Return LSODA with the exact Jacobian, or the explicit pair."""
        if len(y) > _DENSE or end < _SHORT:
            arrays = flow.array_field
            options["smooth"] = "dopri" if options["rtol"] >= _COARSE else "dop853"
            return PairedStepper(flow.field, y, end, arrays=arrays, loose=_LOOSE, **options)
        options["rtol"] = accuracy("lsoda", options["rtol"], flow.seen.contracts)
        return ScipyStepper(
            "lsoda",
            flow.field,
            y,
            end,
            arrays=flow.array_field,
            jacobian=flow.array_jacobian,
            **options,
        )
