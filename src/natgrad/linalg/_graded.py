"""Least squares whose row weights span hundreds of orders of magnitude.

Minimize Σᵢ e^{2ℓᵢ} (aᵢ·v − bᵢ)², given the unscaled rows aᵢ and the log-weights ℓᵢ. Scaling the
rows fails for two reasons: weights underflow, and long before that the rounding errors of heavy
rows hide the light ones. Three observations give a method that uses only ratios of weights ≤ 1:

1. If the rows are independent, every equation can be satisfied, and the weights cancel.
2. Otherwise take the rows from heaviest to lightest, and keep each one that is independent of those
   already kept: a basis B. Every other row is a combination aᵢ = Σⱼ tᵢⱼ aⱼ of *heavier* basis rows.
3. In the unknowns z = A_B v the normal equations, row j divided by e^{2ℓⱼ}, are
       (I + H) z = b_B + Mᵀ b_N,   H = Mᵀ T,   Mᵢⱼ = tᵢⱼ e^{2(ℓᵢ − ℓⱼ)},
   and ‖(I + H)⁻¹‖ is bounded independently of the weights, because the weighted least-squares
   operator is (Stewart 1989). A plain LU factorization with refinement solves them.

Among rows of similar weight, pivoted QR chooses the basis, so that T stays small. Independence is
judged with columns of one size (see `_columns`), but v is the shortest for the columns as given.
"""

import math

import torch
from torch import Tensor

from natgrad._checks import all_finite, number, same_kind, tensor
from natgrad._named import named
from natgrad.errors import ShapeError, VelocityOverflowError
from natgrad.linalg._columns import column_exponents, times_power
from natgrad.linalg._graded_basis import GradedBasis
from natgrad.linalg._lstsq import LeastSquares, bare_lstsq
from natgrad.linalg._precision import widen

# With log-weight spreads below this, scaling the rows loses at most four digits of sixteen.
MILD_SPREAD = 9.0


@named
def graded_lstsq(
    a: Tensor, b: Tensor, log_weight: Tensor, *, rtol: float | None = None
) -> LeastSquares:
    """Return the shortest minimizer of Σᵢ e^{2ℓᵢ} (aᵢ·v − bᵢ)², however wide the spread of ℓ.

    Args:
        a: Rows, unscaled, shape `(n, p)`.
        b: Targets of the unscaled rows, shape `(n,)`.
        log_weight: ℓ, shape `(n,)`; only differences matter.
        rtol: Rank cut-off, relative to each row's own norm; by default as in `lstsq`.

    Raises:
        NonFiniteError: If any argument holds NaN or an infinity.

    Example:
        Two contradictory rows, and a third with 10⁻³⁰⁰ times their weight, which determines the
        rest:

        >>> a = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> b = torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
        >>> graded_lstsq(a, b, torch.tensor([0.0, 0.0, -345.0])).solution.round(decimals=12)
        tensor([2., 3.], dtype=torch.float64)
    """
    _check_rows(a, log_weight, b, rtol=rtol)
    same_kind(b, a, "the targets", "the rows")
    fit = bare_graded_lstsq(a, b, log_weight, rtol=rtol)
    if not all_finite(fit.solution):
        raise VelocityOverflowError(
            f"the least-squares solution overflows {a.dtype}. Use a wider dtype, or rescale the "
            "system."
        )
    return fit


def bare_graded_lstsq(
    a: Tensor, b: Tensor, log_weight: Tensor, *, rtol: float | None = None
) -> LeastSquares:
    """Return `graded_lstsq` of valid arguments without checks; the solution may overflow."""
    if a.shape[0] <= a.shape[1]:
        unweighted = bare_lstsq(a, b, rtol=rtol)
        if unweighted.rank == a.shape[0]:
            return unweighted
    if not bool(a.any()):
        return bare_lstsq(a, b, rtol=rtol)
    exponents = column_exponents(a)
    a = a if exponents is None else times_power(a, -exponents)
    a, norms, log_weight = _unit_rows(a, log_weight)
    b = b / norms
    spread = float(log_weight.max() - log_weight.min())
    if spread <= MILD_SPREAD:
        weight = torch.exp(log_weight - log_weight.max()).to(a)
        weighted = weight[:, None] * a
        weighted = weighted if exponents is None else times_power(weighted, exponents)
        return bare_lstsq(weighted, weight * b, rtol=rtol)
    basis = GradedBasis.of(a, log_weight, rtol)
    scale = b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    target = widen(b / scale).to(basis.t.device)
    b_in, b_out = target[basis.inside], target[basis.outside]
    # Deviations from the basis rows' own targets, exact where no other row contradicts them.
    z = basis.solve(lambda z: (b_in - z) + basis.m.mT @ (b_out - basis.t @ z), start=b_in)
    solution = _shortest(basis, a, z, exponents).to(a) * scale
    return LeastSquares(solution, len(basis.inside), basis.rtol)


def _check_rows(a: Tensor, *vectors: Tensor, rtol: float | None = None) -> None:
    """Raise unless rows `(n, p)`, log-weights `(n,)` and targets `(n,)` are finite."""
    tensor(a, "the rows", shape=("n", "p"), empty=True)
    for t, name in zip(vectors, ("the log-weights", "the targets"), strict=False):
        tensor(t, name, shape=(len(a),), empty=True)
    if rtol is not None:
        number(rtol, "rtol", low=0, high=1, high_open=True)


def _shortest(basis: GradedBasis, a: Tensor, z: Tensor, exponents: Tensor | None) -> Tensor:
    """Return the shortest v with A_B 2^e v = z."""
    if exponents is None:
        return basis.lift(z)
    if len(basis.inside) == a.shape[1]:
        shift = -exponents if z.ndim == 1 else -exponents[:, None]
        return times_power(basis.lift(z), shift.to(z.device))
    rows = times_power(widen(a).to(z.device)[basis.inside], exponents.to(z.device))
    return bare_lstsq(rows, z).solution


@named
def graded_fisher_solve(
    a: Tensor,
    log_weight: Tensor,
    g: Tensor,
    g_log_weight: Tensor,
    g_target: Tensor,
    *,
    rtol: float | None = None,
) -> LeastSquares:
    """Return F⁺ d with F = Σᵢ e^{2ℓᵢ} aᵢ aᵢᵀ and d = Σₙ e^{2mₙ} gₙ cₙ, never forming either.

    The rows of F and of the descent direction d come from different inputs (a Fisher averaged over
    another sample), so this is not a least-squares problem.

    Args:
        a: Rows of the Fisher, shape `(n, p)`.
        log_weight: ℓ, shape `(n,)`.
        g: Rows of the gradient, shape `(m, p)`.
        g_log_weight: m, shape `(m,)` or `(1,)`, on the same scale as ℓ.
        g_target: c, shape `(m,)`; with a scalar 1 the terms of d are separate columns `(p, m)`.
        rtol: Rank cut-off, relative to each row's own norm.

    Raises:
        VelocityOverflowError: If the answer overflows, because the gradient has weight where the
            Fisher has none.

    Example:
        >>> a, one = torch.eye(2).double(), torch.ones(1).double()
        >>> ell, g = torch.tensor([0.0, -500.0]).double(), torch.tensor([[0.0, 1.0]]).double()
        >>> graded_fisher_solve(a, ell, g, -500 * one, 3 * one).solution
        tensor([0., 3.], dtype=torch.float64)
    """
    _check_rows(a, log_weight, rtol=rtol)
    tensor(g_target, "the targets", empty=True)  # a scalar stands for one column per row
    tensor(g, "the gradient rows", shape=("m", "p"), empty=True)
    if tensor(g_log_weight, "the log-weights", empty=True).shape == (1,):  # one for all rows
        g_log_weight = g_log_weight.expand(len(g))
    _check_rows(g, g_log_weight, *([g_target] if g_target.ndim else []))
    a, log_weight, g, g_log_weight, g_target = (
        t.detach() for t in (a, log_weight, g, g_log_weight, g_target)
    )
    if g.shape[1] != a.shape[1]:
        raise ShapeError(f"rows have {a.shape[1]} columns, but gradient rows {g.shape[1]}.")
    exponents = column_exponents(a)
    if exponents is not None:
        a, g = times_power(a, -exponents), times_power(g, -exponents)
    a, _, log_weight = _unit_rows(a, log_weight)
    g, norms, _ = _unit_rows(g, g_log_weight.expand(len(g)))
    g_target = g_target * norms if g_target.ndim else g_target
    basis = GradedBasis.of(a, log_weight, rtol)
    ell = widen(log_weight).to(basis.t.device)[basis.inside]
    wide_g, wide_m, wide_c = (widen(x).to(basis.t.device) for x in (g, g_log_weight, g_target))
    coefficients = _coordinates(basis, a, wide_g, exponents)
    growth = torch.exp(2 * (wide_m[:, None] - ell[None, :]))
    terms = torch.where(coefficients == 0, 0.0, coefficients * growth)
    rhs = terms.mT * widen(norms).to(terms.device) if wide_c.ndim == 0 else terms.mT @ wide_c
    if not bool(torch.isfinite(rhs).all()):
        raise VelocityOverflowError(
            "the natural velocity overflows: the gradient has inputs whose weight exceeds "
            "that of the Fisher's inputs by more than the dtype's range. Average the Fisher over "
            "inputs that include the batch, or use a positive damping."
        )
    z = basis.solve(lambda z: rhs - z - basis.m.mT @ (basis.t @ z), start=rhs)
    solution = _shortest(basis, a, z, exponents).to(a)
    if not bool(torch.isfinite(solution).all()):
        raise VelocityOverflowError(
            f"the natural velocity is larger than {a.dtype} can hold. Use a wider dtype or a "
            "positive damping."
        )
    return LeastSquares(solution, len(basis.inside), basis.rtol)


def graded_balance(
    a: Tensor, log_weight: Tensor, plus: Tensor, minus: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """Return F⁺ Σₙ (e^{2pₙ} − e^{2mₙ}) aₙ with F = Σₙ e^{2ℓₙ} aₙ aₙᵀ, and its rounding error.

    Where the second sum cancels on a light basis row to within rounding, it counts as zero there.
    Symmetric, duplicated and integer data cancel exactly, and the division by the smallest weights
    would amplify the rounding error. The second result is the solution for the remaining errors.

    Args:
        a: Rows, shape `(n, p)`.
        log_weight: ℓ, shape `(n,)`.
        plus: p, shape `(n,)`, on the same scale as ℓ.
        minus: m, shape `(n,)`, on the same scale as ℓ.
        errors: Relative rounding errors of the terms of the second sum, shape `(n,)`.

    Raises:
        VelocityOverflowError: If the answer overflows.

    Example:
        >>> a = torch.tensor([[0.0, 1.0], [1.0, 3.0], [-1.0, 3.0]]).double()
        >>> ell = torch.tensor([0.0, -40.0, -40.0]).double()
        >>> zero = torch.zeros(3).double()
        >>> graded_balance(a, ell, ell, zero, zero)[0].round(decimals=9)
        tensor([ 0., -6.], dtype=torch.float64)
    """
    exponents = column_exponents(a)
    a = a if exponents is None else times_power(a, -exponents)
    a, norms, log_weight = _unit_rows(a, log_weight)
    basis = GradedBasis.of(a, log_weight, None)
    wide = widen(a).to(basis.t.device)
    coefficients = _coordinates(basis, a, wide, exponents) * widen(norms).to(wide.device)[:, None]
    ell = log_weight.to(wide.device)[basis.inside]
    first, second = (
        torch.where(coefficients == 0, 0.0, coefficients * torch.exp(2 * (logs[:, None] - ell)))
        for logs in (widen(plus).to(wide.device), widen(minus).to(wide.device))
    )
    total, size = second.sum(0), second.abs().sum(0)
    kept = total.abs() > basis.rtol * size
    rounding = second.mT @ widen(errors).to(wide.device)
    sums = first.sum(0) - torch.where(kept, total, 0.0)
    rhs = torch.stack([sums, torch.where(kept, rounding, 0.0)], dim=1)
    if not bool(torch.isfinite(rhs).all()):
        raise VelocityOverflowError("the sums to be balanced overflow; use a shorter step.")
    z = basis.solve(lambda z: rhs - z - basis.m.mT @ (basis.t @ z), start=rhs)
    change, noise = _shortest(basis, a, z, exponents).to(a).unbind(1)
    return change, noise


def _coordinates(basis: GradedBasis, a: Tensor, g: Tensor, exponents: Tensor | None) -> Tensor:
    """Return rows g 2^e, projected onto the span of A_B 2^e, as combinations of A_B 2^e."""
    if exponents is None or len(basis.inside) == a.shape[1]:
        return basis.coordinates(g)
    found, gaps = basis.coordinates(g), (g - (g @ basis.q) @ basis.q.mT).norm(dim=1)
    columns, ell = widen(a).to(g.device)[basis.inside].mT, math.log(2) * exponents.to(g.device)
    for i in torch.nonzero(gaps > basis.rtol * g.norm(dim=1))[:, 0].tolist():
        found[i] = graded_lstsq(columns, g[i], ell).solution  # projections depend on the units
    return found


def weighted_gram(a: Tensor, w: Tensor) -> Tensor:
    """Return Aᵀ diag(w) A for w ≥ 0, at half the cost of a general product on the CPU."""
    b = w.sqrt()[:, None] * a
    if b.device.type != "cpu":
        return b.mT @ b
    array = b.numpy()
    return torch.from_numpy(array.T @ array)  # numpy exploits the symmetry of the result


def _unit_rows(rows: Tensor, log_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of norm one, their norms, and log-weights that compensate for them.

    Rows of zeros get the norm one, because they are dependent in any case.
    """
    largest = rows.abs().amax(1, keepdim=True) if rows.shape[1] else rows.new_ones(len(rows), 1)
    largest = torch.where(largest > 0, largest, 1.0)
    norms = largest * torch.linalg.vector_norm(rows / largest, dim=1, keepdim=True)
    norms = torch.where(norms > 0, norms, 1.0)
    # In double precision, because adding a norm to a log-weight of −2000 loses digits.
    wide = widen(log_weight)
    return rows / norms, norms[:, 0], wide + torch.log(widen(norms[:, 0])).to(wide.device)
