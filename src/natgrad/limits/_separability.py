"""Whether a hyperplane through the origin separates the data, with a proof either way."""

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from natgrad._checks import choice
from natgrad._named import named
from natgrad.errors import ConvergenceError, UnsupportedError
from natgrad.limits._inputs import rank_and_basis, signed_rows
from natgrad.limits._solvers.highs import split
from natgrad.limits._solvers.interior import interior_point
from natgrad.limits._solvers.programs import Split
from natgrad.limits._solvers.scaling import row_norms, unit_columns
from natgrad.linalg import lstsq
from natgrad.linalg._columns import times_power

Kind = Literal["separable", "quasi-separable", "not separable"]
Solver = Literal["interior", "highs"]

# A margin between unit vectors below this is rounding error.
_NOISE = 1e-11


@dataclass(frozen=True, eq=False)
class Separability:
    """The verdict of `separability`, with vectors that prove it.

    With X̃ the rows yₙxₙ, S = `separated` and K the other rows: X̃_S b > 0 and X̃_K b = 0 for
    b = `direction`; λ_K > 0, λ_S = 0, Σλ = 1 and X̃ᵀλ = 0 for λ = `multipliers` (Gordan's
    alternative, with a strictly complementary split). No b has X̃b ≥ 0 and X̃ₙb > 0 for an n in K.

    Attributes:
        kind: "separable" (K empty), "not separable" (S empty) or "quasi-separable".
        rank: Rank of X.
        rank_deficient: Whether the rank is below the number of features.
        separated: S, shape `(n,)`, bool.
        direction: b, unit length, or zero if S is empty.
        multipliers: λ, shape `(n,)`, or zero if K is empty.
        margin: min over S of X̃ₙb / (‖xₙ‖‖b‖); 0 if S is empty.
        residual: Largest of |X̃ₙb| / ‖xₙ‖ over K and of ‖X̃ᵀλ‖ / Σ λₙ‖xₙ‖: zero is perfect.
        solver: The method that found the answer.
        seconds: Wall-clock time spent.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> found = separability(x, torch.ones(3))
        >>> found.kind, found.separated.tolist(), found.multipliers.tolist()
        ('quasi-separable', [True, False, False], [0.0, 0.5, 0.5])
    """

    kind: Kind
    rank: int
    rank_deficient: bool
    separated: Tensor
    direction: Tensor
    multipliers: Tensor
    margin: float
    residual: float
    solver: str
    seconds: float = 0.0


class SeparabilityError(UnsupportedError):
    """The limit does not exist for data of this kind.

    Attributes:
        found: The verdict of `separability` on the data.

    Example:
        >>> from natgrad.limits import max_margin
        >>> try:
        ...     max_margin(torch.tensor([[1.0], [-1.0]]), torch.ones(2))
        ... except SeparabilityError as error:
        ...     error.found.kind
        'not separable'
    """

    def __init__(self, message: str, found: Separability) -> None:
        super().__init__(message)
        self.found = found


@named
def separability(x: Tensor, y: Tensor, *, solver: Solver = "interior") -> Separability:
    """Return whether some β has yₙ xₙ·β > 0 for all samples, with a certificate.

    Independent rows are always separable. Otherwise one linear program decides: max Σtₙ subject to
    X̃b ≥ t, 0 ≤ t ≤ 1. Its solution has tₙ = 1 on the rows that can be separated together, and 0 on
    the others, where its multipliers are at least 1. The solution is then verified. If the
    interior-point method fails, HiGHS is used.

    Args:
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        solver: `"interior"` (fast) or `"highs"` (scipy.optimize.linprog).

    Raises:
        ConvergenceError: If neither solver's answer can be verified, because the data are on the
            edge between two kinds to within rounding.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> separability(x, torch.tensor([1.0, -1.0])).kind
        'separable'
    """
    choice(solver, "solver", get_args(Solver))
    began = time.perf_counter()
    found = separate(signed_rows(x, y), solver)
    return Separability(
        **{
            **found.__dict__,
            "separated": found.separated.to(x.device),
            "direction": found.direction.to(x.device, x.dtype),
            "multipliers": found.multipliers.to(x.device, x.dtype),
            "seconds": time.perf_counter() - began,
        }
    )


def separate(a: Tensor, solver: Solver = "interior") -> Separability:
    """Return the verdict for signed rows in double precision."""
    a, powers = unit_columns(a)
    rank, basis = rank_and_basis(a)
    norms = row_norms(a)
    given = a if bool((powers == powers.max()).all()) else times_power(a, powers - powers.max())

    def verdict(proof: _Proof, label: str) -> Separability:
        b = proof.b if given is a else _unscaled(proof.b, powers)
        return _verdict(given, rank, proof._replace(b=b), label)

    if rank == len(a):
        b = lstsq(a, norms).solution
        everything = torch.ones(len(a), dtype=torch.bool)
        return verdict(_Proof(everything, b, torch.zeros_like(norms)), "interpolation")
    if rank == 0:
        none = torch.zeros(len(a), dtype=torch.bool)
        return verdict(_Proof(none, a.new_zeros(a.shape[1]), a.new_ones(len(a))), "rank")
    unit = a / torch.where(norms > 0, norms, 1.0)[:, None]
    reduced = unit if basis is None else unit @ basis
    for name in ("interior", "highs") if solver == "interior" else ("highs",):
        answer = _by_interior(reduced) if name == "interior" else split(reduced)
        proof = None if answer is None else _clean(reduced, *answer)
        if proof is not None:
            b = proof.b if basis is None else basis @ proof.b
            lam = proof.lam / torch.where(norms > 0, norms, 1.0)
            label = "interior point" if name == "interior" else "HiGHS"
            return verdict(_Proof(proof.separated, b, lam), label)
    raise ConvergenceError(
        f"no certificate could be verified for these {a.shape[0]} rows of {a.shape[1]} features: "
        "they lie on the edge between separable and not, to within rounding. Rescale features "
        "to comparable sizes, or remove near-duplicates with opposite labels."
    )


def _unscaled(b: Tensor, powers: Tensor) -> Tensor:
    """Return the direction b 2^{−e}, up to a factor that keeps its largest entry near one."""
    used = b != 0
    if not bool(used.any()):
        return b
    size = torch.frexp(b)[1].double() - powers
    return times_power(b, -powers - size[used].max())


class _Proof(NamedTuple):
    separated: Tensor
    b: Tensor
    lam: Tensor


def _by_interior(a: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return b, t and λ of the splitting program, or None."""
    n, d = a.shape
    last = interior_point(Split(a), tolerance=1e-9)
    if not last.error < 1e-4:
        return None
    return last.x[:d], last.x[d:], last.z[:n]


def _clean(a: Tensor, b: Tensor, t: Tensor, lam: Tensor) -> _Proof | None:
    """Return the split with both certificates projected to accuracy, or None if one fails."""
    separated = t > 0.5
    s, k = a[separated], a[~separated]
    lam = torch.where(separated, 0.0, lam)
    if len(k):
        b = b - lstsq(k, k @ b).solution
        inside = lam[~separated]
        lam[~separated] = inside - lstsq(k.mT, k.mT @ inside).solution
        lam = lam / lam.sum()
        if not bool((lam[~separated] > 0).all()):
            return None
    if not len(s):
        return _Proof(separated, torch.zeros_like(b), lam)
    b = b / b.norm()
    return _Proof(separated, b, lam) if float((s @ b).min()) > _NOISE else None


def _verdict(a: Tensor, rank: int, proof: _Proof, solver: str) -> Separability:
    separated, b, lam = proof
    norms = row_norms(a)
    size, total = float(b.norm()), float(lam.sum())
    b, lam = b / (size or 1.0), lam / (total or 1.0)
    cosines = (a @ b) / torch.where(norms > 0, norms, 1.0)
    all_in, none_in = bool(separated.all()), not bool(separated.any())
    off = cosines[~separated].abs()
    residual = max(
        0.0 if all_in else float(off.max()),
        0.0 if all_in else float((a.mT @ lam).norm()) / (float(lam @ norms) or 1.0),
    )
    kind: Kind = "separable" if all_in else "not separable" if none_in else "quasi-separable"
    margin = 0.0 if none_in else float(cosines[separated].min())
    deficient = rank < a.shape[1]
    return Separability(kind, rank, deficient, separated, b, lam, margin, residual, solver)


def refuse(found: Separability, limit: str, instead: dict[str, str]) -> SeparabilityError:
    """Return the error for data of this kind, with what to use instead."""
    held = int((~found.separated).sum())
    n = len(found.separated)
    what = (
        f"the {n} samples are not separable by a hyperplane through the origin"
        if found.kind == "not separable"
        else f"the {n} samples are only quasi-separable: {held} of them cannot be classified "
        "strictly without misclassifying others"
    )
    return SeparabilityError(
        f"{limit} needs separable data, but {what} (multipliers λ ≥ 0 with X̃ᵀλ = 0 to "
        f"{found.residual:.0e} prove it: error.found). {instead[found.kind]}",
        found,
    )
