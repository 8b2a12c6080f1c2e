"""How near a homogeneous network is to a stationary point of the margin problem."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import dense, instance, number, require_finite
from natgrad._named import named
from natgrad.errors import InvalidInputError, LabelError, ShapeError, VelocityOverflowError
from natgrad.linalg._precision import widen
from natgrad.parametrizations.base import P, Parametrization, detach, flatten


@dataclass(frozen=True, eq=False)
class Stationarity:
    """How far θ is from the conditions of Karush, Kuhn and Tucker.

    For min ½‖θ‖² subject to yₙ f(θ, xₙ) ≥ 1 these are θ = Σ λₙ yₙ ∇f(θ, xₙ), λ ≥ 0, and λₙ = 0
    where the margin is not the smallest.

    Attributes:
        alignment: Cosine of θ and Σ λₙ yₙ ∇fₙ with λ the weights e^{−margin} of the exponential
            loss: of θ and its own descent direction. It tends to one along gradient flow.
        residual: min over λ ≥ 0 on the samples of smallest margin of ‖θ − Σ λₙ yₙ ∇fₙ‖ / ‖θ‖. Zero
            at a stationary point.
        multipliers: That λ, shape `(n,)`, zero elsewhere.
        margin: minₙ yₙ fₙ / ‖θ‖^degree.
        homogeneity: Largest relative error of Euler's identity θ·∇fₙ = degree · fₙ. Not small means
            that the network is not homogeneous of this degree, and nothing else here has meaning.

    Example:
        >>> from natgrad import Direct
        >>> from natgrad.diagnostics import kkt
        >>> found = kkt(Direct(), torch.tensor([1.0, 0.0]), torch.eye(2)[:1], torch.ones(1))
        >>> found.residual, found.homogeneity
        (0.0, 0.0)
    """

    alignment: float
    residual: float
    multipliers: Tensor
    margin: float
    homogeneity: float


@named
def kkt(
    parametrization: Parametrization[P],
    params: P,
    x: Tensor,
    y: Tensor,
    *,
    degree: float = 1.0,
    within: float = 0.05,
) -> Stationarity:
    """Return how near the parameters of a homogeneous network are to a stationary margin.

    Gradient flow of the exponential and logistic losses tends to such a point in direction (Lyu
    and Li 2020); other optimizers tend to those of other norms, or to none.

    Args:
        parametrization: The model, with one output per sample, homogeneous in its parameters.
        params: θ. All but `alignment` depend on its direction alone.
        x: Inputs.
        y: Labels −1 and +1, shape `(n,)`.
        degree: Degree of homogeneity: the number of layers without biases.
        within: Samples whose margin is within this share above the smallest may carry λ > 0.

    Raises:
        InvalidInputError: If a sample is misclassified.

    Example:
        >>> from natgrad import Diagonal
        >>> x, y = torch.tensor([[1.0, 0.0]]), torch.ones(1)
        >>> w = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> round(kkt(Diagonal(depth=2), w, x, y, degree=2).alignment, 6)
        1.0
    """
    instance(parametrization, "parametrization", Parametrization)
    degree = number(degree, "degree", low=0, low_open=True)
    within = number(within, "within", low=0)
    params = detach(params)
    parametrization.check(params)
    parametrization.check_inputs(params, x)
    theta = widen(flatten(params))
    if float(theta.norm()) == 0:
        raise InvalidInputError("the parameters are zero: they have no direction.")
    y = dense(y, "labels").detach()
    outputs, rows = _jacobian(parametrization, params, x, y)
    margins, rows = y.to(outputs) * outputs, y.to(rows)[:, None] * rows
    require_finite(rows, "gradients of the outputs")
    least = float(margins.min())
    if not least > 0:
        raise InvalidInputError(
            f"every sample must be classified correctly, but the smallest margin is {least:.3g}."
        )
    euler = (rows @ theta - degree * margins).abs().max() / (degree * margins.abs().max())
    pulled = rows.mT @ torch.softmax(-margins, 0)
    support = margins <= (1 + within) * least
    lam, left = _nonnegative(rows[support].mT, theta)
    multipliers = torch.zeros_like(margins)
    multipliers[support] = lam
    size = float(theta.norm())
    found = Stationarity(
        float((pulled / pulled.norm()) @ (theta / size)),
        left / size,
        multipliers.to(y.device),
        least / size**degree,
        float(euler),
    )
    if not all(map(math.isfinite, (found.alignment, found.residual, found.margin, left))):
        raise VelocityOverflowError(
            "the conditions overflow float64. Divide the parameters by a constant: only their "
            "direction matters."
        )
    return found


def _jacobian(model: Parametrization[P], params: P, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs `(n,)` and their gradients `(n, p)` in double precision."""
    outputs = model.predict(params, x)
    n = len(outputs)
    if outputs.numel() != n or y.shape != (n,):
        raise ShapeError(
            "kkt needs one output and one label per sample, but outputs have shape "
            f"{tuple(outputs.shape)} and labels {tuple(y.shape)}."
        )
    if y.is_complex() or y.dtype == torch.bool or not bool((y.abs() == 1).all()):
        raise LabelError("labels must be −1 or +1.")
    rows = []
    for k in range(n):
        single = torch.zeros_like(outputs)
        single[k] = 1
        rows.append(flatten(model.vjp(params, x, single)))
    return widen(outputs.detach()).reshape(-1), widen(torch.stack(rows).detach())


def _nonnegative(a: Tensor, b: Tensor) -> tuple[Tensor, float]:
    """Return argmin over λ ≥ 0 of ‖aλ − b‖, and the minimum."""
    from scipy.optimize import nnls  # here, to keep `import natgrad` light

    lam, left = nnls(a.cpu().numpy(), b.cpu().numpy())
    return torch.as_tensor(lam).to(a), float(left)
