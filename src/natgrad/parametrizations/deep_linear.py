"""Deep linear networks, [BLH18] §3–5 and supplement."""

from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad._checks import describe, instance, integer, integers, number, numbers
from natgrad._named import options
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.linalg._kronecker import Factor
from natgrad.parametrizations._arguments import (
    check_features,
    check_init,
    check_lift,
    check_not_saddle,
    check_positive,
    check_random,
)
from natgrad.parametrizations._guard import guarded
from natgrad.parametrizations._products.lift import (
    Lift,
    check_factors,
    flattening,
    partial_products,
    product,
    pull,
    push,
    random_orthogonal,
    refuse_unreachable,
)
from natgrad.parametrizations.base import Design, LiftedHypothesis, detach

__all__ = ["DeepLinear"]


@options
class DeepLinear(LiftedHypothesis[tuple[Tensor, ...]]):
    """W = W_L⋯W₁: a tuple W₁…W_L with Wᵢ of shape `(nᵢ, nᵢ₋₁)`, outputs x Wᵀ for x `(n, n₀)`.

    Widths may grow, shrink or have a bottleneck. `fisher_over=None` means the batch's own inputs.

    Args:
        widths: (n₀, n₁, …, n_L), at least two.

    Example:
        >>> network = DeepLinear((3, 5, 2))
        >>> w = network.init_gaussian(generator=torch.Generator().manual_seed(0))
        >>> [tuple(m.shape) for m in w], network.predict(w, torch.ones(4, 3).double()).shape
        ([(5, 3), (2, 5)], torch.Size([4, 2]))
    """

    def __init__(self, widths: Sequence[int]) -> None:
        try:
            self.widths = integers(widths, "widths", low=1)
        except InvalidInputError:
            self.widths = ()
        if len(self.widths) < 2:
            raise InvalidInputError(
                "widths must be at least two positive integers, from inputs to outputs (depth 1 "
                f"has two), but got {describe(widths)}."
            )
        self.depth = len(self.widths) - 1

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"DeepLinear({self.widths})"

    def init_gaussian(
        self,
        *,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, ...]:
        """Return normal factors of standard deviation scale^{1/L}/√(fan-in).

        Example:
            >>> [tuple(w.shape) for w in DeepLinear((2, 3, 1)).init_gaussian()]
            [(3, 2), (1, 3)]
        """
        root = check_positive(scale, "scale") ** (1 / self.depth)
        check_random(generator, dtype)
        factors = tuple(
            root / m**0.5 * torch.randn(n, m, dtype=dtype, generator=generator)
            for n, m in self._shapes()
        )
        check_init(factors)
        return factors

    def init_orthogonal(
        self,
        *,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, ...]:
        """Return random (semi-)orthogonal factors times scale^{1/L}.

        Example:
            >>> w = DeepLinear((3, 3)).init_orthogonal()[0]
            >>> torch.allclose(w @ w.mT, torch.eye(3).double())
            True
        """
        root = check_positive(scale, "scale") ** (1 / self.depth)
        check_random(generator, dtype)
        return tuple(root * random_orthogonal(n, m, generator, dtype) for n, m in self._shapes())

    def _shapes(self) -> list[tuple[int, int]]:
        return list(zip(self.widths[1:], self.widths[:-1], strict=True))

    def check(self, params: tuple[Tensor, ...]) -> None:
        """Raise unless params is a tuple of matrices of these widths, not all zero."""
        check_factors(params, self.depth, repr(self))
        for i, (w, shape) in enumerate(zip(params, self._shapes(), strict=True)):
            if tuple(w.shape) != shape:
                raise ShapeError(
                    f"W_{i + 1} must have shape {shape} to chain in W_L⋯W₁ with widths "
                    f"{self.widths}, but has {tuple(w.shape)}."
                )
        check_not_saddle(params)

    def check_inputs(self, params: tuple[Tensor, ...], x: Tensor) -> None:
        """Raise unless x is `(n, n₀)`."""
        check_features(x, params[0], self.widths[0])

    def coefficients(self, params: tuple[Tensor, ...]) -> Tensor:
        """Return Wᵀ."""
        return self.hypothesis(params).mT

    def surjective(self, params: tuple[Tensor, ...]) -> bool:
        """Return whether every velocity of W can be reached."""
        params = detach(params)
        return self.problem(params, self.hypothesis(params)).surjective()

    @guarded
    def partial_products(self, params: tuple[Tensor, ...]) -> tuple[list[Factor], list[Factor]]:
        """Return Wᵢᵃ = W_L⋯Wᵢ₊₁ and Wᵢᵇ = Wᵢ₋₁⋯W₁, i = 1…L (suppl. 5–6); None is the identity."""
        return self._partial_products(params)

    def _partial_products(self, params: tuple[Tensor, ...]) -> tuple[list[Factor], list[Factor]]:
        ahead, behind = partial_products(params[::-1])
        return ahead[::-1], behind[::-1]

    def hypothesis(self, params: tuple[Tensor, ...]) -> Tensor:
        """Return W = W_L⋯W₁. [BLH18] (9)."""
        return product(params[::-1])

    def push(self, params: tuple[Tensor, ...], v: tuple[Tensor, ...]) -> Tensor:
        """Return Σ Wᵢᵃ vᵢ Wᵢᵇ. [BLH18] (17)."""
        return push(*self._partial_products(params), v)

    def pull(self, params: tuple[Tensor, ...], g: Tensor) -> tuple[Tensor, ...]:
        """Return Wᵢᵃᵀ g Wᵢᵇᵀ. [BLH18] (13)."""
        return tuple(pull(*self._partial_products(params), g))

    def lift(
        self, params: tuple[Tensor, ...], u: Tensor, *, shares: Sequence[float] | None = None
    ) -> tuple[Tensor, ...]:
        """Return v with Σ Wᵢᵃ vᵢ Wᵢᵇ = u: the shortest, or shares_i · Wᵢᵃ⁺ u Wᵢᵇ⁺ (suppl. 34).

        Raises:
            RankDeficientError: If u cannot be reached.
        """
        params = detach(params)
        check_lift(u, self.hypothesis(params), shares, self.depth)
        v = self.solve(self.problem(params, u), shares)
        if shares is None:
            refuse_unreachable(self.push(params, v), u)
        return v

    @guarded
    def problem(
        self,
        params: tuple[Tensor, ...],
        u: Tensor,
        *,
        basis: Tensor | None = None,
        contrast: Tensor | None = None,
        left_root: Tensor | None = None,
        right_root: Tensor | None = None,
        damping: float = 0.0,
    ) -> Lift:
        """Return the least-squares problem of moving W along u on the span of the inputs.

        Args:
            params: W₁…W_L.
            u: Target velocity, shape `(n_L, n₀)`.
            basis: Q, shape `(n₀, r)`, an orthonormal basis of the inputs' span; None if they
                span everything.
            contrast: H, shape `(c, n_L)` with orthonormal rows, the combinations of outputs on
                which the likelihood depends; None for all.
            left_root: R with RᵀR the output metric.
            right_root: S with SSᵀ the inputs' second moment in the basis.
            damping: λ ≥ 0.
        """
        damping = number(damping, "damping", low=0)
        ahead, behind = partial_products(params[::-1])
        if basis is not None:
            behind = [basis if b is None else b @ basis for b in behind]
            u = u @ basis
        if contrast is not None:
            ahead = [contrast if a is None else contrast @ a for a in ahead]
            u = contrast @ u
        return Lift(ahead, behind, u, left_root, right_root, damping)

    def solve(self, problem: Lift, shares: Sequence[float] | None) -> tuple[Tensor, ...]:
        """Return v₁…v_L of a problem of `problem`, whose factors run from the output side."""
        instance(problem, "problem", Lift)
        if shares is not None:
            shares = numbers(shares, "shares", count=self.depth)[::-1]
        return tuple(problem.solve(shares)[::-1])

    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        """Return x hᵀ."""
        return x @ h.mT

    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return uᵀ x."""
        return u.mT @ x

    def layers(self, params: tuple[Tensor, ...]) -> int:
        """Return L."""
        return self.depth

    def restrict(self, v: tuple[Tensor, ...], layer: int) -> tuple[Tensor, ...]:
        """Return v with every factor but one set to zero."""
        integer(layer, "layer", low=0, high=self.depth - 1)
        return tuple(t if i == layer else torch.zeros_like(t) for i, t in enumerate(v))

    def prefers_gram(self, params: tuple[Tensor, ...], x: Tensor) -> bool:
        """Return True: the kernel has a closed form."""
        return True

    def design(self, params: tuple[Tensor, ...], x: Tensor, layer: int | None = None) -> Design:
        """Return dense rows Wᵢᵃ[k] ⊗ (Wᵢᵇ x) of every sample and output."""
        sides = self._sides(params, x)
        pieces = [
            torch.einsum("ka,nb->nkab", a, inputs).reshape(len(x), self.widths[-1], -1)
            for a, inputs in (sides if layer is None else [sides[layer]])
        ]
        return Design(torch.cat(pieces, dim=2), *flattening(params, layer))

    def gram(
        self, params: tuple[Tensor, ...], x: Tensor, other: Tensor, layer: int | None = None
    ) -> Tensor:
        """Return Σᵢ (xᵢ₋₁·x′ᵢ₋₁) WᵢᵃWᵢᵃᵀ, shape `(n, k, m, k)`."""
        k = self.widths[-1]
        total = x.new_zeros(len(x), k, len(other), k)
        sides = zip(self._sides(params, x), self._sides(params, other), strict=True)
        for i, ((a, inputs), (_, others)) in enumerate(sides):
            if layer in (None, i):
                total += torch.einsum("nm,kj->nkmj", inputs @ others.mT, a @ a.mT)
        return total

    def _sides(self, params: tuple[Tensor, ...], x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (Wᵢᵃ, xᵢ₋₁) of every layer, identities written out."""
        ahead, behind = self._partial_products(params)
        eye = torch.eye(self.widths[-1], dtype=x.dtype, device=x.device)
        return [
            (eye if a is None else a, x if b is None else x @ b.mT)
            for a, b in zip(ahead, behind, strict=True)
        ]
