"""A report on a model before training: layers, conditioning, memory, cost."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad._checks import ALL_FLOATS, dense, describe, function, require_finite
from natgrad._named import named
from natgrad._show import as_table, axes_or_new
from natgrad.errors import DtypeError, InvalidInputError, NatgradError, ShapeError
from natgrad.optim._arguments import trainable
from natgrad.optim._capture.batch import Call
from natgrad.optim._capture.moments import Factors
from natgrad.optim._core import as_factors
from natgrad.optim._criteria.observed import Criterion, observed
from natgrad.optim._curvature.block import BlockDiagonal
from natgrad.optim._curvature.factor import symmetric
from natgrad.optim._curvature.kronecker import KroneckerBlock
from natgrad.optim._layers.coverage import UncoveredWarning
from natgrad.optim._trial import held_bytes, trial, untouched
from natgrad.optim.preconditioner import Preconditioner

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Exact steps pay off if the number of outputs or of parameters is at most this;
# docs/gauss_newton.md has the measurements.
_EXACT = 1000


@dataclass(frozen=True)
class LayerReport:
    """One layer.

    Attributes:
        name: The module's name.
        kind: The module's class.
        shape: Shape of its matrix, bias included; with groups, the number of groups comes first.
        inputs: Condition number of Λ, over the eigenvalues above rounding.
        errors: Condition number of Λ̃.
        input_rank: How many eigenvalues of Λ lie above rounding.
        error_rank: The same for Λ̃.
        state_bytes: Memory of factors and inverses.
        products: Multiplications of a refresh (moments and inverses) for this layer, divided by
            those of a forward and backward pass.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    inputs: float
    errors: float
    input_rank: int
    error_rank: int
    state_bytes: int
    products: float


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        layers: Layers with blocks of the Fisher.
        uncovered: Parameters without a block, and why.
        parameters: Number of trainable parameters.
        state_bytes: Memory that `NGD` will hold: factors, inverses, averages, the last step.
        bytes_per_parameter: The same per parameter.
        seconds: What a step of `NGD` will take with this batch, forward and backward included: an
            average over a refresh period.
        plain: What forward and backward take without an optimizer.
        refresh: Multiplications of a refresh, divided by those of a forward and backward pass.
        recommends: `"GaussNewton"` if x is all of the data and either it has few outputs in total
            or the model few parameters, else `"NGD"`; docs/gauss_newton.md has the measurements.

    Example:
        >>> import natgrad as ng
        >>> found = diagnose(torch.nn.Linear(2, 1), ng.Gaussian(), torch.randn(50, 2))
        >>> print(str(found).splitlines()[-1].split(",")[0])
        3 parameters
    """

    layers: list[LayerReport]
    uncovered: dict[str, str]
    parameters: int
    state_bytes: int
    bytes_per_parameter: float
    seconds: float
    plain: float
    refresh: float
    recommends: str

    def __str__(self) -> str:
        """Return a table to print."""
        head = f"{'layer':<20} {'kind':<12} {'matrix':<14} {'cond Λ':>9} {'cond Λ̃':>8}  refresh"
        lines = [head]
        for r in self.layers:
            size = "×".join(map(str, r.shape))
            lines.append(
                f"{r.name:<20} {r.kind:<12} {size:<14} {r.inputs:>9.1e} {r.errors:>8.1e}  "
                f"{r.products:.2f}"
            )
        lines += [f"{name}: Adam's steps ({why})" for name, why in self.uncovered.items()]
        if self.recommends == "GaussNewton":
            lines.append("if this is all of the data, GaussNewton takes exact steps at little cost")
        lines.append(
            f"{self.parameters} parameters, {self.bytes_per_parameter:.1f} bytes of state each "
            f"({self.state_bytes / 1e6:.1f} MB); a step will take {1e3 * self.seconds:.3g} ms, "
            f"{self.seconds / self.plain:.2f} times forward and backward"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = ("layer", "kind", "matrix", "cond Λ", "cond Λ̃", "refresh")
        rows: list[tuple[object, ...]] = [
            (
                r.name,
                r.kind,
                "×".join(map(str, r.shape)),
                f"{r.inputs:.1e}",
                f"{r.errors:.1e}",
                f"{r.products:.2f}",
            )
            for r in self.layers
        ]
        apart = "Adam's or plain gradient steps"
        rows += [(name, f"{apart} ({why})") for name, why in self.uncovered.items()]
        title = f"{self.parameters} parameters; recommended: {self.recommends}"
        return as_table(title, rows, head)

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the condition numbers of the factors of each layer; return the axes.

        Args:
            ax: Axes to draw on; by default new ones.

        Example:
            >>> import natgrad as ng
            >>> found = diagnose(torch.nn.Linear(2, 1), ng.Gaussian(), torch.randn(50, 2))
            >>> found.plot().get_xlabel()
            'condition number'
        """
        ax = axes_or_new(ax)
        where = range(len(self.layers))
        for shift, name in ((0.2, "inputs"), (-0.2, "errors")):
            sizes = [max(1.0, getattr(layer, name)) for layer in self.layers]
            label = f"second moments of {name}"
            ax.barh([-k + shift for k in where], sizes, height=0.36, label=label)
        ax.set_yticks([-k for k in where], [layer.name or layer.kind for layer in self.layers])
        ax.set_xscale("log")
        ax.set_xlabel("condition number")
        ax.legend(fontsize=8)
        return ax


@named
def diagnose(
    model: Module,
    likelihood: Criterion,
    x: Tensor | None = None,
    *,
    loss: Callable[[], Tensor] | None = None,
    factors: Factors | None = None,
) -> Diagnosis:
    """Report which layers are covered, how their factors are conditioned, and what a step costs.

    Takes at least four steps of `NGD` on this batch and undoes them, to measure what training will
    take. Weights, buffers and gradients do not change. A batch of inputs is enough,
    because labels are drawn from the model. If the model takes several arguments, or what comes
    between model and criterion matters, pass `loss` instead.

    Args:
        model: The model, in training mode.
        likelihood: The criterion. Without `loss`, a custom one is treated as squared error.
        x: A batch of inputs.
        loss: Computes the loss of a batch, as in your loop: `lambda: criterion(model(x), y)`.
        factors: How the factors are estimated.

    Raises:
        InvalidInputError: If the model cannot be run on these inputs in training mode.

    Example:
        >>> import natgrad as ng
        >>> from torch.nn import Linear, Sequential
        >>> from torch.nn.utils.parametrizations import orthogonal
        >>> net = Sequential(Linear(2, 3), orthogonal(Linear(3, 3, bias=False)), Linear(3, 1))
        >>> found = diagnose(net, ng.Gaussian(), torch.randn(50, 2))
        >>> [layer.name for layer in found.layers], list(found.uncovered)
        (['0', '2'], ['1.parametrizations.weight.original'])
    """
    trainable(model, likelihood)
    if (x is None) == (loss is None):
        raise InvalidInputError("pass either x, a batch of inputs, or loss, a function.")
    if not model.training:
        raise InvalidInputError("the model must be in training mode: call model.train() before.")
    if loss is not None:
        function(loss, "loss")
    wanted = replace(as_factors(factors), keep=True)
    criterion = likelihood if loss is not None else observed(likelihood).base
    compute = _sampled(model, criterion, x) if loss is None else loss
    with untouched(model) as restore, torch.enable_grad():
        cost = trial(model, criterion, compute, wanted, restore)
        precondition, call = _preconditioned(model, criterion, compute, wanted)
    core = precondition._core
    assert isinstance(core.preconditioner, BlockDiagonal)
    blocks = core.preconditioner.blocks.values()
    layers = [_report(block, call.n) for block in blocks if isinstance(block, KroneckerBlock)]
    count = sum(p.numel() for p in core.model.parameters() if p.requires_grad)
    plain = sum(_plain_cost(r) for r in layers)
    spent = sum(r.products * _plain_cost(r) for r in layers)
    return Diagnosis(
        layers=layers,
        uncovered=core.capture.gather.coverage.reasons,
        parameters=count,
        state_bytes=cost.state_bytes,
        bytes_per_parameter=cost.state_bytes / count,
        seconds=cost.seconds,
        plain=cost.plain,
        refresh=spent / plain if plain else 0.0,
        recommends="GaussNewton" if min(call.output.numel(), count) <= _EXACT else "NGD",
    )


def _preconditioned(
    model: Module, criterion: Criterion, loss: Callable[[], Tensor], factors: Factors
) -> tuple[Preconditioner, Call]:
    """Return factors of one batch, and the call of the criterion that gave them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        precondition = Preconditioner(model, criterion, factors=factors)
    try:
        torch.autograd.backward([loss()])
        batch = precondition._core.capture.batch(precondition._core.world)
        precondition._core.preconditioner.update(batch, precondition._core.likelihood)
        precondition._core.preconditioner.refresh(precondition.damping, {})
    finally:
        precondition.remove()
    return precondition, batch.largest


def _sampled(model: Module, base: Any, x: Any) -> Callable[[], Tensor]:
    """Return what computes a loss with labels that are drawn from the model."""
    dense(x, "x")
    if x.ndim == 0 or x.numel() == 0:
        raise ShapeError(f"x must be a batch of inputs, but has shape {tuple(x.shape)}.")
    if x.is_floating_point() and x.dtype not in ALL_FLOATS:
        raise DtypeError(f"x must be in half precision or wider, but is {x.dtype}; try .float().")
    if x.is_floating_point() or x.is_complex():
        require_finite(x, "x")

    def compute() -> Tensor:
        output = _outputs(model, x)
        y = base.sample(output.detach(), generator=torch.Generator(output.device))
        found: Tensor = base(output, y)
        return found

    return compute


def _outputs(model: Module, x: Tensor) -> Tensor:
    """Return the model's outputs, with their graph."""
    try:
        output = model(x)
    except NatgradError:
        raise
    except Exception as error:  # a model may fail in any way
        raise InvalidInputError(
            f"the model cannot be run on x, {describe(x)}: {type(error).__name__}: "
            f"{str(error).rstrip('.')}."
        ) from error
    if not isinstance(output, Tensor) or not output.requires_grad:
        raise InvalidInputError(
            f"the model's output must be a tensor to differentiate, but is {describe(output)}."
        )
    return output


def _plain_cost(report: LayerReport) -> float:
    size = 1.0
    for n in report.shape:
        size *= n
    return size


def _report(block: KroneckerBlock, batch: int) -> LayerReport:
    layer = block.layer
    assert block.inputs.matrix is not None
    assert block.errors.matrix is not None
    inputs, input_rank = _condition(block.inputs.matrix)
    errors, error_rank = _condition(block.errors.matrix)
    n_out, n_in = layer.shape[-2:]
    # Moments: half a product each; a Cholesky inverse takes n³; plain: three products.
    refresh = batch * (n_in**2 + n_out**2) / 2 + n_in**3 + n_out**3
    state = block.state_dict()
    return LayerReport(
        name=layer.name,
        kind=type(layer.module).__name__,
        shape=layer.shape,
        inputs=inputs,
        errors=errors,
        input_rank=input_rank,
        error_rank=error_rank,
        state_bytes=held_bytes(state),
        products=refresh / (3 * batch * n_in * n_out),
    )


def _condition(matrix: Tensor) -> tuple[float, int]:
    """Return the condition number over eigenvalues above rounding, and how many there are."""
    wide = matrix.double()
    values = wide if wide.ndim == 1 else torch.linalg.eigvalsh(symmetric(wide)).reshape(-1)
    eps = torch.finfo(matrix.dtype).eps * matrix.shape[-1]
    kept = values[values > eps * values.max()]
    return (float(kept.max() / kept.min()), len(kept)) if len(kept) else (1.0, 0)
