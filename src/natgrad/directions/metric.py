"""The metric on outputs that defines the natural direction: Fisher, Euclidean, Wasserstein.

A metric defines a quadratic form M on each sample's outputs, in place of the Fisher. The direction
is steepest in M for every parametrization: velocities of outputs are −M⁻¹ times the loss gradient.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from natgrad._checks import all_finite, choice, describe, nearest, number, tensor
from natgrad._named import named, options
from natgrad.errors import InvalidInputError, ShapeError, UnsupportedError, VelocityOverflowError
from natgrad.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Root
from natgrad.likelihoods._softmax import softmax
from natgrad.likelihoods.base import flatten_outputs

__all__ = ["Mean", "OutputMetric", "Wasserstein", "kernel_wasserstein"]

Mean = Literal["arithmetic", "geometric", "logarithmic", "harmonic", "latent"]
"""How mass on an edge of a graph is averaged; `"latent"` moves the logit instead."""


@options
class Wasserstein:
    """The metric of optimal transport between the model's own distributions of labels.

    - `Gaussian`: W₂ between normal distributions of one covariance is the distance of their means,
      so M = I; for Σ̃ = σ²I this is σ² times the Fisher.
    - `Bernoulli`: labels are the two nodes of a graph (Maas 2011; Li and Montúfar 2018), so
      M = (p(1 − p))²/θ for each logit, θ a mean of p and 1 − p. Up to a factor this is
      (p(1 − p))^κ with κ = 2 (arithmetic), 3/2 (geometric), 1 (harmonic: the Fisher); the
      logarithmic mean, for which the heat flow is the gradient flow of entropy, is tanh(s/2)/s.
      `"latent"` transports the latent logit s + logistic noise, whose sign is the label: M = 1.
    - `Categorical`: labels are nodes with distances d_ij between them,
      M = C L⁺ C,  C = diag p − ppᵀ,  L = Σ_{i<j} θ(p_i, p_j)/d_ij² (e_i − e_j)(e_i − e_j)ᵀ.

    Args:
        ground: Distances between classes, symmetric, zero on the diagonal and positive elsewhere,
            shape `(k, k)`; an infinite distance is no edge. Needed by `Categorical` alone.
        mean: `"logarithmic"` (default), `"arithmetic"`, `"geometric"`, `"harmonic"`; for
            `Bernoulli` also `"latent"`.

    Example:
        >>> from natgrad import Direct, Gaussian, natural
        >>> x, y, w = torch.eye(2), torch.tensor([1.0, 2.0]), torch.zeros(2)
        >>> natural(Gaussian(4 * torch.eye(1)), Direct(), w, (x, y), metric=Wasserstein())
        tensor([0.2500, 0.5000])
    """

    def __init__(self, ground: Tensor | None = None, *, mean: Mean = "logarithmic") -> None:
        self.mean: Mean = choice(mean, "mean", get_args(Mean))
        self.ground = None if ground is None else _check_ground(ground)

    def __repr__(self) -> str:
        """Return the constructor call, distances by their size."""
        ground = "" if self.ground is None else f"{tuple(self.ground.shape)}, "
        return f"Wasserstein({ground}mean={self.mean!r})"


OutputMetric = Literal["fisher", "euclidean"] | Wasserstein
"""`"fisher"` (default), `"euclidean"` on outputs, or `Wasserstein(…)`."""


def _check_ground(ground: Tensor) -> Tensor:
    tensor(ground, "ground", shape=("k", "k"), finite=False)
    off = ~torch.eye(len(ground), dtype=torch.bool, device=ground.device)
    if ground.shape[0] != ground.shape[1] or len(ground) < 2:
        raise ShapeError(f"ground must be square, at least 2 × 2, but is {tuple(ground.shape)}.")
    fine = bool((ground[off] > 0).all()) and not bool(ground.diagonal().any())
    if not fine or not torch.equal(ground, ground.mT):
        raise InvalidInputError(
            "ground must hold distances: symmetric, zero on the diagonal, positive elsewhere."
        )
    return ground


def with_metric(likelihood: Likelihood, metric: OutputMetric) -> Likelihood:
    """Return the loss with the metric in place of its Fisher."""
    if isinstance(metric, Wasserstein):
        kind = next((k for k in _TRANSPORTS if isinstance(likelihood, k)), None)
        if kind is None:
            raise UnsupportedError(
                f"Wasserstein has a closed form for Gaussian, Bernoulli and Categorical, not for "
                f"{likelihood!r}. Use metric='euclidean', or kernel_wasserstein on samples."
            )
        measured: Likelihood = _TRANSPORTS[kind](likelihood, metric)
        return measured
    if isinstance(metric, str) and metric == "fisher":
        return likelihood
    if isinstance(metric, str) and metric == "euclidean":
        return _Flat(likelihood)
    hint = f" {nearest(metric, ('fisher', 'euclidean'))}" if isinstance(metric, str) else ""
    raise InvalidInputError(
        f"metric must be 'fisher', 'euclidean' or Wasserstein(…), but is {describe(metric)}.{hint}"
    )


class _Measured(Likelihood, ABC):
    """A loss whose geometry is not its Fisher."""

    def __init__(self, inner: Likelihood) -> None:
        super().__init__(reduction=inner.reduction)
        self.inner, self.attained = inner, inner.attained

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return self.inner._losses(f, y)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return self.inner._gradient(f, y)

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        return self.inner._check_labels(f, y)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.inner._sample(output, generator)

    def visible(self, like: Tensor) -> Tensor | None:
        """Return the visible output directions of the loss itself."""
        return self.inner.visible(like)

    def _fisher(self, f: Tensor) -> Tensor:
        root = self.root(f)
        k = f.shape[1]
        contrast = root.apply(torch.eye(k, dtype=f.dtype, device=f.device).repeat(len(f), 1, 1))
        rows = torch.exp(root.log_weight)[:, :, None] * contrast
        return rows.mT @ rows

    @abstractmethod
    def root(self, output: Tensor) -> Root:
        """Return a square root of the metric."""


class _Flat(_Measured):
    """M = I."""

    constant_fisher = True

    def visible(self, like: Tensor) -> Tensor | None:
        """Return None: all outputs move."""
        return None

    def precision_root(self, like: Tensor, k: int) -> Tensor | None:
        """Return None, the identity."""
        return None

    def root(self, output: Tensor) -> Root:
        """Return weights of one."""
        return Root(None, torch.zeros_like(flatten_outputs(output)))

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return -self.inner._gradient(f, y)


class _Graph2(_Measured):
    """M = (p(1 − p))²/θ, as a logarithm: it underflows where the direction does not."""

    def __init__(self, inner: Likelihood, mean: Mean) -> None:
        super().__init__(inner)
        self.mean = mean

    def root(self, output: Tensor) -> Root:
        """Return ½ log M."""
        s = flatten_outputs(output)
        both = logsigmoid(s) + logsigmoid(-s)  # log p(1 − p)
        return Root(None, both - 0.5 * self._log_mean(s, both))

    def _log_mean(self, s: Tensor, both: Tensor) -> Tensor:
        if self.mean == "arithmetic":
            return torch.full_like(s, 0.5).log()
        if self.mean == "geometric":
            return 0.5 * both
        if self.mean == "harmonic":
            return both + torch.full_like(s, 2.0).log()
        near = s.abs() < 1e-4  # tanh(s/2)/s = ½ − s²/24 + …
        safe = torch.where(near, 1.0, s)
        ratio = torch.where(near, 0.5 - s * s / 24, torch.tanh(safe / 2) / safe)
        return ratio.log()

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return y * torch.exp(logsigmoid(-y * f) - 2 * self.root(f).log_weight)


class _Graph(_Measured):
    """M = C L⁺ C = RᵀR with R = K⁻¹ B C, B an orthonormal basis of 1^⊥ and B L Bᵀ = K Kᵀ."""

    def __init__(self, inner: Likelihood, metric: Wasserstein) -> None:
        super().__init__(inner)
        if metric.ground is None:
            raise InvalidInputError(
                "Wasserstein of Categorical needs distances between classes: pass ground, e.g. "
                "1 − torch.eye(k) for equally distant classes."
            )
        if metric.mean == "latent":
            raise InvalidInputError("mean='latent' is for Bernoulli, not for Categorical.")
        self.mean, self.ground = metric.mean, metric.ground

    def _parts(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return p, B and K."""
        k = f.shape[1]
        if len(self.ground) != k:
            raise ShapeError(f"ground is for {len(self.ground)} classes, but there are {k} logits.")
        p = softmax(f.double())
        basis = _contrasts(p)
        weights = _means(p, f.double(), self.mean) / self.ground.to(p) ** 2
        weights = torch.where(torch.eye(k, dtype=torch.bool, device=f.device), 0.0, weights)
        laplacian = torch.diag_embed(weights.sum(-1)) - weights
        factor, info = torch.linalg.cholesky_ex(basis @ laplacian @ basis.mT)
        if bool(info.any()):
            raise UnsupportedError(
                "the graph of classes is not connected: distances between parts are infinite, or "
                "probabilities have vanished to rounding. Use a Euclidean or Fisher metric there."
            )
        return p, basis, factor

    def root(self, output: Tensor) -> Root:
        """Return R with weights of one."""
        f = flatten_outputs(output)
        p, basis, factor = self._parts(f)
        covariance = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        r = torch.linalg.solve_triangular(factor, basis @ covariance, upper=False)
        return Root(r.to(f.dtype), torch.zeros_like(f[:, 1:]))

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        # Rᵀb = e_y − p is solved by b = Kᵀ B e_y / p_y, because C e_y / p_y = e_y − p.
        p, basis, factor = self._parts(f)
        column = basis[:, y].mT / p.gather(1, y[:, None])
        return (column[:, None, :] @ factor)[:, 0].to(f.dtype)


def _contrasts(p: Tensor) -> Tensor:
    """Return k − 1 orthonormal rows that sum to zero each."""
    k = p.shape[1]
    ones = torch.full((k, 1), k**-0.5, dtype=p.dtype, device=p.device)
    rotation: Tensor = torch.linalg.qr(ones, mode="complete")[0]
    return rotation[:, 1:].mT


def _means(p: Tensor, f: Tensor, mean: Mean) -> Tensor:
    """Return θ(p_i, p_j) for all pairs, shape `(n, k, k)`."""
    a, b = p[:, :, None], p[:, None, :]
    if mean == "arithmetic":
        return (a + b) / 2
    if mean == "geometric":
        return (a * b).sqrt()
    if mean == "harmonic":
        return 2 * a * b / (a + b)
    gap = f[:, :, None] - f[:, None, :]  # log a − log b
    near = gap.abs() < 1e-4
    safe = torch.where(near, 1.0, gap)
    # (a − b)/log(a/b) = √(ab) sinh(g/2)/(g/2), without cancellation
    stretch = torch.where(near, 1 + gap * gap / 24, 2 * torch.sinh(safe / 2) / safe)
    return (a * b).sqrt() * stretch


def _two_point(likelihood: Likelihood, metric: Wasserstein) -> Likelihood:
    return _Flat(likelihood) if metric.mean == "latent" else _Graph2(likelihood, metric.mean)


_TRANSPORTS: dict[type[Likelihood], Any] = {
    Gaussian: lambda likelihood, metric: _Flat(likelihood),
    Bernoulli: _two_point,
    Categorical: _Graph,
}


@named
def kernel_wasserstein(
    samples: Tensor, jacobians: Tensor, points: Tensor, *, bandwidth: float, ridge: float = 1e-6
) -> Tensor:
    """Return an estimate of the Wasserstein metric on parameters from samples of the model.

    The metric is max_f 2 E ∇f·u̇ − E‖∇f‖² over functions f; the maximum over sums of Gaussian
    kernels at points Yₘ, with a ridge, is Tᵀ (D + εK)⁻¹ T: the kernelized estimator of Arbel,
    Gretton, Li and Montúfar (2020). It needs samples alone, no density and no closed form.

    Args:
        samples: Xₙ = h(Zₙ, θ), shape `(n, d)`.
        jacobians: ∂Xₙ/∂θ, shape `(n, d, p)`.
        points: Centers of the kernels, shape `(m, d)`, e.g. some of the samples.
        bandwidth: Standard deviation of the kernels.
        ridge: ε ≥ 0, relative to the largest entry of D on the diagonal.

    Returns:
        Tensor: Shape `(p, p)`, symmetric.

    Example:
        The metric of the mean of a normal distribution is one:

        >>> z = torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
        >>> metric = kernel_wasserstein(z, torch.ones(41, 1, 1).double(), z[::4], bandwidth=2.0)
        >>> round(float(metric), 2)
        1.0
    """
    n, d = tensor(samples, "samples", shape=("n", "d")).shape
    tensor(jacobians, "jacobians", shape=(n, d, "p"))
    tensor(points, "points", shape=("m", d))
    width = number(bandwidth, "bandwidth", low=0, low_open=True)
    ridge = number(ridge, "ridge", low=0)
    x, j, y = samples.double(), jacobians.double(), points.double()
    away = (y[:, None, :] - x[None, :, :]) / width**2
    kernel = torch.exp(-0.5 * width**2 * away.square().sum(2))
    slopes = (kernel[:, :, None] * away).flatten(1)  # ∂f_m/∂x at every sample: (m, n d)
    t = slopes @ j.flatten(0, 1) / n
    energy = slopes @ slopes.mT / n
    between = torch.exp(-0.5 * torch.cdist(y, y).square() / width**2)
    energy = energy + ridge * float(energy.diagonal().max()) * between
    values, vectors = torch.linalg.eigh(energy)
    kept = values > 1e-13 * values.max()
    along = vectors[:, kept].mT @ t / values[kept].sqrt()[:, None]
    found: Tensor = (along.mT @ along).to(samples.dtype)
    if not all_finite(found):
        raise VelocityOverflowError(
            f"the metric overflows {samples.dtype}. Divide samples or parameters by a constant."
        )
    return found
