"""The exact Fisher as a linear operator, its blocks, and [BLH18]'s generalized inverse."""

from typing import Generic, cast

import torch
from torch import Tensor

from natgrad._checks import dense, require_finite
from natgrad._named import options
from natgrad.directions._batch import check_inputs, check_model, check_params
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.likelihoods import Likelihood
from natgrad.linalg import lstsq
from natgrad.linalg._kronecker import Factor
from natgrad.parametrizations._arguments import check_same_structure
from natgrad.parametrizations.base import (
    LiftedHypothesis,
    P,
    Parametrization,
    detach,
    flatten,
    leaves,
    unflatten,
)


@options
class Fisher(Generic[P]):
    """F = Σₙ Jₙᵀ Fₙ Jₙ over inputs x, reduced as the loss; stored only on request.

    Args:
        likelihood: The loss.
        parametrization: The model.
        params: The parameters.
        x: Inputs.

    Example:
        >>> from natgrad import Direct, Gaussian
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
        >>> f = Fisher(Gaussian(reduction="sum"), Direct(), torch.zeros(2), x)
        >>> f.matvec(torch.ones(2)), f.dense()
        (tensor([1., 9.]), tensor([[1., 0.],
                [0., 9.]]))
    """

    @torch.no_grad()
    def __init__(
        self, likelihood: Likelihood, parametrization: Parametrization[P], params: P, x: Tensor
    ) -> None:
        check_model(parametrization, likelihood)
        params = detach(params)
        check_params(parametrization, params)
        check_inputs(parametrization, params, x)
        self.likelihood = likelihood
        self.parametrization = parametrization
        self.params = params
        self.x = x
        self._outputs = parametrization.predict(params, x)
        self._blocks = likelihood.fisher(self._outputs)

    @torch.no_grad()
    def matvec(self, v: P) -> P:
        """Return F v, in the parameters' structure: one forward and one reverse product."""
        self._check_vector(v)
        moved = self.parametrization.jvp(self.params, self.x, v).reshape(len(self.x), -1)
        weighed = torch.einsum("nkj,nj->nk", self._blocks, moved)
        found = self.parametrization.vjp(self.params, self.x, weighed.reshape(self._outputs.shape))
        for part in leaves(found):
            require_finite(part, "the product of the Fisher and the vector")
        return found

    def dense(self) -> Tensor:
        """Return F as a matrix `(p, p)`, parameters flattened leaf by leaf, row-major."""
        size = sum(t.numel() for t in leaves(self.params))
        eye = torch.eye(size, dtype=self._blocks.dtype, device=self._blocks.device)
        rows = [flatten(self.matvec(unflatten(e, self.params))) for e in eye]
        return torch.stack(rows)

    def block(self, i: int, j: int) -> Tensor:
        """Return the block of layers i and j (from 1), suppl. (18)–(19) for deep linear networks.

        Rows and columns run over the layer's entries row-major, so the Kronecker factors are in
        the opposite order from the paper, whose vec stacks columns.
        """
        self._check_layers(i, j)
        if not self._is_kronecker():
            rows, columns = self._layer_slice(i), self._layer_slice(j)
            return self.dense()[rows][:, columns]
        (ahead_i, behind_i), (ahead_j, behind_j) = self._sides(i), self._sides(j)
        sigma, precision = self._moments()
        inputs = behind_i @ sigma @ behind_j.mT
        errors = ahead_i.mT @ precision @ ahead_j
        return _kron(errors, inputs)

    def inverse_block(self, i: int, j: int) -> Tensor:
        """Return block (i, j) of the generalized inverse that gives each layer an equal share.

        Suppl. (36): L⁻² (Wᵢᵇᵀ)⁻¹ Σ⁻¹ (Wⱼᵇ)⁻¹ ⊗ (Wᵢᵃ)⁻¹ Σ̃ (Wⱼᵃᵀ)⁻¹, with pseudo-inverses, and the
        Kronecker factors in row-major order.

        Raises:
            UnsupportedError: If the model is not a deep linear network with Gaussian noise.
        """
        self._refuse_others("inverse_block")
        self._check_layers(i, j)
        (ahead_i, behind_i), (ahead_j, behind_j) = (
            tuple(_pinv(side) for side in self._sides(layer)) for layer in (i, j)
        )
        sigma, precision = self._moments()
        depth = self._network.layers(self.params)
        inputs = behind_i.mT @ _pinv(sigma) @ behind_j
        errors = ahead_i @ torch.linalg.inv(precision) @ ahead_j.mT
        return _kron(errors, inputs) / depth**2

    @torch.no_grad()
    def inverse_matvec(self, v: P) -> P:
        """Return G v for the generalized inverse G of `inverse_block`, structured like params.

        [BLH18] (23), §6 and suppl. (33), (36): each layer's vector is mapped to the outputs
        through inverses, weighted by Σ̃ and Σ⁻¹ there, and returned in equal shares,
            (Gv)ᵢ = (1/L) (Wᵢᵃ)⁻¹ Σ̃ H Σ⁻¹ (Wᵢᵇ)⁻¹,  H = (1/L) Σⱼ (Wⱼᵃᵀ)⁻¹ vⱼ (Wⱼᵇᵀ)⁻¹,
        with pseudo-inverses. It solves least squares of the layers' sizes, without a p-row matrix.
        F G F = F if all partial products have full rank; −G∇L is then the natural gradient with
        `selection="equal_share"`.

        Args:
            v: Any vector, in the structure of the parameters.

        Raises:
            UnsupportedError: If the model is not a deep linear network with Gaussian noise.

        Example:
            >>> from natgrad import DeepLinear, Gaussian
            >>> w = (torch.tensor([[2.0]]), torch.tensor([[4.0]]))
            >>> f = Fisher(Gaussian(), DeepLinear((1, 1, 1)), w, torch.ones(3, 1))
            >>> f.matvec(f.inverse_matvec(f.matvec((torch.ones(1, 1), torch.zeros(1, 1)))))
            (tensor([[16.]]), tensor([[8.]]))
        """
        self._refuse_others("inverse_matvec")
        self._check_vector(v)
        depth = self._network.layers(self.params)
        sides = [self._sides(i + 1) for i in range(depth)]
        parts = zip(sides, cast(tuple[Tensor, ...], v), strict=True)
        h = torch.stack([lstsq(b, lstsq(a.mT, g).solution.mT).solution.mT for (a, b), g in parts])
        scale = self.likelihood.scale(len(self.x))
        u = torch.linalg.solve(self._blocks[0] / scale, h.sum(0))
        # Σ⁻¹ by least squares on the inputs: their second moment would lose twice as many digits.
        u = lstsq(self.x, lstsq(self.x.mT, u.mT).solution).solution.mT / scale
        moved = [lstsq(b.mT, lstsq(a, u).solution.mT).solution.mT for a, b in sides]
        return cast(P, tuple(w / depth**2 for w in moved))

    def _check_vector(self, v: P) -> None:
        """Raise unless v is finite, dense and of the structure of the parameters."""
        parts = v.values() if isinstance(v, dict) else v if isinstance(v, tuple) else (v,)
        for part in parts:
            dense(part, "the vector")
        check_same_structure(v, self.params)
        for part in leaves(v):
            require_finite(part, "the vector")

    def _refuse_others(self, name: str) -> None:
        if not self._is_kronecker():
            raise UnsupportedError(
                f"{name} is [BLH18] suppl. (36): it needs DeepLinear and Gaussian. natural() "
                "solves with the Fisher of other models."
            )

    def _check_layers(self, *layers: int) -> None:
        depth = self.parametrization.layers(self.params)
        for layer in layers:
            if isinstance(layer, bool) or not isinstance(layer, int) or not 1 <= layer <= depth:
                raise InvalidInputError(
                    f"layers are numbered from 1 to {depth}, but {layer!r} was asked for."
                )

    def _is_kronecker(self) -> bool:
        """Return whether the blocks are Kronecker products: factors of a linear map, one Fisher."""
        return self.parametrization.lifted and self.likelihood.constant_fisher

    @property
    def _network(self) -> LiftedHypothesis[P]:
        return cast(LiftedHypothesis[P], self.parametrization)

    def _sides(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return Wᵢᵃ and Wᵢᵇ."""
        ahead, behind = self._network.partial_products(self.params)
        return (
            self._dense_factor(ahead[layer - 1], self._blocks.shape[1]),
            self._dense_factor(behind[layer - 1], self.x.shape[1]),
        )

    def _dense_factor(self, factor: Factor, n: int) -> Tensor:
        eye = torch.eye(n, dtype=self._blocks.dtype, device=self._blocks.device)
        return eye if factor is None else factor

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return Σ = ⟨x xᵀ⟩, times n if the loss is summed, and Σ̃⁻¹."""
        scale = self.likelihood.scale(len(self.x))
        return scale * self.x.mT @ self.x, self._blocks[0] / scale

    def _layer_slice(self, layer: int) -> Tensor:
        ones = unflatten(torch.ones_like(flatten(self.params)), self.params)
        return flatten(self.parametrization.restrict(ones, layer - 1)).nonzero()[:, 0]


def _kron(a: Tensor, b: Tensor) -> Tensor:
    out = torch.einsum("ij,kl->ikjl", a, b)
    return out.reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])


def _pinv(a: Tensor) -> Tensor:
    return lstsq(a, torch.eye(len(a), dtype=a.dtype, device=a.device)).solution
