"""The result of every limit: the solution, and the evidence that it is a solution."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from natgrad._show import as_table, axes_or_new
from natgrad.errors import VelocityOverflowError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Limit:
    """The limit of a trajectory, with an optimality certificate.

    Attributes:
        solution: The limit: a vector `(d,)`, or a matrix for completion.
        value: The objective at the solution; each function documents its meaning.
        certificate: The number that bounds the error: a relative duality gap, or a relative
            optimality residual. Zero is perfect.
        certificate_name: What the certificate is, in words.
        solver: The method that found the solution.
        seconds: Wall-clock time spent.
        dual: Multipliers that prove optimality, one per sample (a matrix for completion).
        basis: Indices of the samples that determine the solution.
        unique: Whether the program has only one solution; None if this was not examined.
        local: True if the solution is the best of several local ones and not proven to be global.
        starts: Objective reached from each start of a local method.

    Example:
        >>> import torch
        >>> from natgrad.limits import least_squares
        >>> fit = least_squares(torch.eye(2), torch.tensor([1.0, 2.0]))
        >>> fit.certificate_name, fit.certificate, fit.unique
        ('relative gradient', 0.0, True)
    """

    solution: Tensor
    value: float
    certificate: float
    certificate_name: str
    solver: str
    seconds: float = 0.0
    dual: Tensor | None = None
    basis: Tensor | None = None
    unique: bool | None = None
    local: bool = False
    starts: tuple[float, ...] = ()

    def _repr_html_(self) -> str:
        shape = " × ".join(map(str, self.solution.shape))
        proof = {None: "not examined", True: "yes", False: "no"}[self.unique]
        return as_table(
            "Limit",
            [
                ("solution", f"{shape}, norm {float(self.solution.double().norm()):.4g}"),
                ("value", f"{self.value:.6g}"),
                (self.certificate_name, f"{self.certificate:.2g}"),
                ("solver", self.solver),
                ("unique", proof),
                ("global", "not proven" if self.local else "yes"),
                *([] if self.basis is None else [("samples that determine it", len(self.basis))]),
            ],
        )

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the coefficients of the solution, or a matrix as a picture; return the axes.

        Args:
            ax: Axes to draw on; by default new ones.

        Example:
            >>> from natgrad.limits import least_squares
            >>> least_squares(torch.eye(2), torch.tensor([1.0, 2.0])).plot().get_xlabel()
            'coefficient'
        """
        ax = axes_or_new(ax)
        values = self.solution.detach().cpu().double().numpy()
        if values.ndim == 2:
            high = max(float(abs(values).max()), 1e-300)
            picture = ax.imshow(values, cmap="RdBu_r", vmin=-high, vmax=high, aspect="auto")
            ax.figure.colorbar(picture, ax=ax)
            ax.set_xlabel("column")
            ax.set_ylabel("row")
            return ax
        ax.axhline(0, color="0.7", linewidth=0.8)
        ax.stem(range(len(values)), values, basefmt=" ")
        ax.set_xlabel("coefficient")
        ax.set_ylabel("value")
        return ax


def finish(limit: Limit, like: Tensor, seconds: float) -> Limit:
    """Return the limit in the dtype and device of `like`, with the time it took.

    Raises:
        VelocityOverflowError: If a number of the limit does not fit the dtype.
    """
    dual, basis = limit.dual, limit.basis
    solution = limit.solution.to(like.device, like.dtype)
    dual = None if dual is None else dual.to(like.device, like.dtype)
    numbers = [solution] if dual is None else [solution, dual]
    if not (math.isfinite(limit.value) and all(bool(torch.isfinite(t).all()) for t in numbers)):
        raise VelocityOverflowError(
            f"the limit, its multipliers or its value overflow {like.dtype}: the data are too "
            "small or too large. Multiply them by a constant; limits scale exactly with it."
        )
    return replace(
        limit,
        solution=solution,
        dual=dual,
        basis=None if basis is None else basis.to(like.device),
        seconds=seconds,
    )
