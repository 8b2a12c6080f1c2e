"""The contract of a parametrization, and the common part of linear hypotheses."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch.func import jvp, vjp

from natgrad.errors import (
    UnsupportedError,
)
from natgrad.linalg._precision import default_rtol
from natgrad.parametrizations._guard import explained, guard_contract, guarded

__all__ = [
    "Design",
    "LiftedHypothesis",
    "LinearHypothesis",
    "Linearization",
    "Parametrization",
    "Params",
]

Params = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""Parameters: a tensor, a tuple or a dict of tensors, depending on the parametrization."""
P = TypeVar("P", bound=Params)

DefaultFisher = Literal["batch", "all"]


@dataclass(frozen=True)
class Design:
    """A Jacobian J = A Q with the orthonormal rows of Q left implicit.

    The shortest v with A Q v = b is Qᵀ z for the shortest z with A z = b. So least squares needs
    only A, which structure can make narrow.

    Attributes:
        matrix: A, shape `(n, k, p)`: outputs of each sample by compressed coordinates.
        expand: z ↦ Qᵀ z, from shape `(p,)` to parameters.
        compress: g ↦ Q g, from parameters to shape `(p,)`.

    Example:
        >>> from natgrad import Diagonal
        >>> Diagonal(2).design(torch.ones(2, 3), torch.eye(3)).matrix.shape  # 3 columns, not 6
        torch.Size([3, 1, 3])
    """

    matrix: Tensor
    expand: Callable[[Tensor], Any]
    compress: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Linearization:
    """The Jacobian J at some inputs, after one pass through the model.

    Attributes:
        gram: Returns J Jᵀ, shape `(n, k, n, k)`.
        push: v ↦ J v, shape `(n, k)`.
        pull: u ↦ Jᵀ u, from shape `(n, k)` to parameters.
        design: Returns J as a `Design`.

    Example:
        >>> from natgrad import Network
        >>> network = Network(torch.nn.Linear(3, 2))
        >>> at = network.linearized(network.init(), torch.zeros(5, 3))
        >>> at.gram().shape, at.design().matrix.shape
        (torch.Size([5, 2, 5, 2]), torch.Size([5, 2, 8]))
    """

    gram: Callable[[], Tensor]
    push: Callable[[Any], Tensor]
    pull: Callable[[Tensor], Any]
    design: Callable[[], Design]


class Parametrization(ABC, Generic[P]):
    """A smooth map from parameters to a hypothesis, evaluated at inputs x.

    A new one defines `check`, `check_inputs` and `predict`. All other methods use automatic
    differentiation by default; override them where structure makes them cheaper.

    Attributes:
        lifted: Whether it is a `LiftedHypothesis`.

    Example:
        >>> from natgrad import Direct
        >>> model: Parametrization = Direct()
        >>> model.predict(torch.tensor([1.0, 2.0]), torch.eye(2))
        tensor([1., 2.])
    """

    lifted: bool = False

    def __init_subclass__(cls, *, guard: bool = True, **options: Any) -> None:
        """Guard the methods that a subclass defines, also in your own code."""
        super().__init_subclass__(**options)
        if guard:
            guard_contract(cls)

    @guarded
    def fisher_default(self, x: Tensor) -> DefaultFisher:
        """Return what `fisher_over=None` stands for: the batch's inputs, or all matrix entries."""
        return "all" if self.reads_entries(x) else "batch"

    @guarded
    def reads_entries(self, x: Tensor | None = None) -> bool:
        """Return whether x holds positions in a matrix; if x is None, whether it may."""
        return False

    @guarded
    def coefficients(self, params: P) -> Tensor | None:
        """Return h `(d, k)` with outputs x @ h for real inputs; None if there is none."""
        return None

    @abstractmethod
    def check(self, params: P) -> None:
        """Raise a typed error unless the parameters have this parametrization's structure."""

    @abstractmethod
    def check_inputs(self, params: P, x: Tensor) -> None:
        """Raise a typed error unless x can be fed to the hypothesis."""

    @abstractmethod
    def predict(self, params: P, x: Tensor) -> Tensor:
        """Return outputs at the inputs, shape `(n,)` or `(n, k)`."""

    @guarded
    def jvp(self, params: P, x: Tensor, v: P) -> Tensor:
        """Return J v, the velocity of the outputs along v, in the outputs' shape."""
        return cast(Tensor, jvp(lambda p: self.predict(p, x), (params,), (v,))[1])

    @guarded
    def vjp(self, params: P, x: Tensor, u: Tensor) -> P:
        """Return Jᵀ u, in the parameters' structure."""
        outputs, pull = vjp(lambda p: self.predict(p, x), params)[:2]
        return cast(P, pull(u.reshape(outputs.shape))[0])

    @guarded
    def layers(self, params: P) -> int:
        """Return the number of layers among which a selection divides the velocity."""
        return 1

    @guarded
    def restrict(self, v: P, layer: int) -> P:
        """Return v with every layer but one set to zero."""
        return v

    @guarded
    def prefers_gram(self, params: P, x: Tensor) -> bool:
        """Return whether the kernel of few outputs is cheaper than the design's rows."""
        return False

    @guarded
    def design(self, params: P, x: Tensor, layer: int | None = None) -> Design:
        """Return the Jacobian at the inputs as a `Design`, of one layer or of all."""
        outputs = self.predict(params, x)
        size = outputs.numel()
        units = torch.eye(size, dtype=outputs.dtype, device=outputs.device)
        rows = [self.vjp(params, x, e.reshape(outputs.shape)) for e in units]
        if layer is not None:
            rows = [self.restrict(row, layer) for row in rows]
        matrix = torch.stack([flatten(row) for row in rows]).reshape(len(x), size // len(x), -1)
        return Design(matrix, lambda z: unflatten(z, params), flatten)

    @guarded
    def linearized(self, params: P, x: Tensor, layer: int | None = None) -> Linearization | None:
        """Return the Jacobian of one layer or of all, if products with it share their work."""
        return None

    @guarded
    def gram(self, params: P, x: Tensor, other: Tensor, layer: int | None = None) -> Tensor:
        """Return J(x) J(other)ᵀ, shape `(n, k, m, k)`: the neural tangent kernel."""
        a = self.design(params, x, layer).matrix
        b = a if other is x else self.design(params, other, layer).matrix
        return torch.einsum("nkp,mjp->nkmj", a, b)


class LinearHypothesis(Parametrization[P], guard=False):  # its own methods call guarded ones
    """A parametrization whose outputs are linear in a hypothesis tensor h.

    Subclasses define how h depends on the parameters (`hypothesis`, `push`, `pull`) and how it is
    evaluated at inputs (`evaluate`, `adjoint`). Predictions and Jacobian products follow.

    Example:
        >>> from natgrad import Diagonal
        >>> model: LinearHypothesis = Diagonal(2)
        >>> model.hypothesis(torch.tensor([[2.0], [3.0]]))
        tensor([6.])
    """

    @abstractmethod
    def hypothesis(self, params: P) -> Tensor:
        """Return h."""

    @abstractmethod
    def push(self, params: P, v: P) -> Tensor:
        """Return the velocity of h along v: the Jacobian of h times v."""

    @abstractmethod
    def pull(self, params: P, g: Tensor) -> P:
        """Return the transposed Jacobian of h times g, g in the shape of h."""

    @abstractmethod
    def lift(self, params: P, u: Tensor, *, shares: Sequence[float] | None = None) -> P:
        """Return v with velocity u of h: the shortest, or shared among layers.

        Args:
            params: Parameters.
            u: Target velocity, in the shape of h.
            shares: One weight per layer, summing to one; None for the shortest v.

        Raises:
            RankDeficientError: If no v moves h along u, or a layer with a share cannot alone.
        """

    @abstractmethod
    def evaluate(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the outputs of hypothesis h at x; linear in h."""

    @abstractmethod
    def adjoint(self, h: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return the adjoint of `evaluate` in h: outputs' shape to h's shape."""

    @explained
    def natural_lift(
        self, params: P, u: Tensor, shares: Sequence[float] | None, damping: float
    ) -> P:
        """Return the v that minimizes ‖J_h v − u‖² + λ‖v‖², J_h the Jacobian of h.

        Only hypotheses that are evaluated at matrix entries need it.

        Args:
            params: Parameters.
            u: Target velocity, in the shape of h.
            shares: One weight per layer, summing to one; None for the shortest v.
            damping: λ ≥ 0.
        """
        raise UnsupportedError(
            f"{self!r} has no lift over all entries of a matrix. Try fisher_over='batch'."
        )

    @explained
    def surjective(self, params: P) -> bool:
        """Return whether every velocity of h can be reached."""
        return self._reached(params).shape[1] == self.hypothesis(params).numel()

    @explained
    def reachable(self, params: P, u: Tensor) -> Tensor:
        """Return the nearest velocities of h that can be reached, u of shape `(…, *h.shape)`."""
        basis = self._reached(params)
        flat = u.reshape(-1, basis.shape[0])
        return (flat @ basis @ basis.mT).reshape(u.shape)

    def _reached(self, params: P) -> Tensor:
        """Return an orthonormal basis (columns) of the velocities of h that can be reached."""
        h = self.hypothesis(params)
        units = torch.eye(h.numel(), dtype=h.dtype, device=h.device)
        rows = torch.stack([flatten(self.pull(params, e.reshape(h.shape))) for e in units])
        basis, s, _ = torch.linalg.svd(rows, full_matrices=False)
        rank = int((s > default_rtol(*rows.shape, dtype=rows.dtype) * s[0]).sum())
        return cast(Tensor, basis[:, :rank])

    @explained
    def predict(self, params: P, x: Tensor) -> Tensor:
        """Return outputs at the inputs."""
        return self.evaluate(self.hypothesis(params), x)

    @explained
    def jvp(self, params: P, x: Tensor, v: P) -> Tensor:
        """Return J v, in the outputs' shape."""
        return self.evaluate(self.push(params, v), x)

    @explained
    def vjp(self, params: P, x: Tensor, u: Tensor) -> P:
        """Return Jᵀ u, in the parameters' structure."""
        return self.pull(params, self.adjoint(self.hypothesis(params), x, u))


class LiftedHypothesis(LinearHypothesis[P], guard=False):
    """A product of matrices h `(k, d)` with outputs x hᵀ: velocities of h are found, then lifted.

    Neither the natural velocity of h nor the lift needs the Jacobian in the parameters.

    Example:
        >>> from natgrad import DeepLinear
        >>> isinstance(DeepLinear((2, 3, 1)), LiftedHypothesis)
        True
    """

    lifted = True

    @abstractmethod
    def partial_products(self, params: P) -> tuple[list[Any], list[Any]]:
        """Return the products after and before each factor; None is the identity."""

    @abstractmethod
    def problem(
        self,
        params: P,
        u: Tensor,
        *,
        basis: Tensor | None = None,
        contrast: Tensor | None = None,
        left_root: Tensor | None = None,
        right_root: Tensor | None = None,
        damping: float = 0.0,
    ) -> Any:
        """Return the least-squares problem of moving h along u on the span of the inputs."""

    @abstractmethod
    def solve(self, problem: Any, shares: Sequence[float] | None) -> P:
        """Return the direction that solves a problem of `problem`."""


def leaves(params: Params) -> list[Tensor]:
    """Return the tensors of a parameter structure, in order."""
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, Mapping):
        return list(params.values())
    return list(params)


def rebuild(tensors: Sequence[Tensor], like: P) -> P:
    """Return tensors in the structure of `like`."""
    if isinstance(like, Tensor):
        return cast(P, tensors[0])
    if isinstance(like, Mapping):
        return cast(P, dict(zip(like.keys(), tensors, strict=True)))
    return cast(P, tuple(tensors))


def detach(params: P) -> P:
    """Return parameters without autograd history; anything else unchanged, to be refused later."""
    if isinstance(params, Tensor):
        return cast(P, params.detach() if params.requires_grad else params)
    if isinstance(params, dict):
        return cast(P, {k: t.detach() if isinstance(t, Tensor) else t for k, t in params.items()})
    if isinstance(params, tuple):
        return cast(P, tuple(t.detach() if isinstance(t, Tensor) else t for t in params))
    return params


def flatten(params: Params) -> Tensor:
    """Return all parameters as one vector `(p,)`, leaf by leaf, row-major."""
    return torch.cat([t.reshape(-1) for t in leaves(params)])


def unflatten(vector: Tensor, like: P) -> P:
    """Return a vector `(p,)` in the structure of `like`."""
    parts = leaves(like)
    pieces = torch.split(vector, [t.numel() for t in parts])
    return rebuild([s.reshape(t.shape) for s, t in zip(pieces, parts, strict=True)], like)


def combine(parts: Sequence[P], weights: Sequence[float]) -> P:
    """Return Σ weightᵢ · partᵢ, leaf by leaf."""
    columns = zip(*(leaves(part) for part in parts), strict=True)
    total = [
        torch.stack([w * t for w, t in zip(weights, column, strict=True)]).sum(0)
        for column in columns
    ]
    return rebuild(total, parts[0])
