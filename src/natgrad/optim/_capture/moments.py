"""Sums over one batch: second moments of each layer's inputs and of the errors sent back."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from natgrad._checks import flag, integer, number
from natgrad._named import options
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.optim._arguments import keep, literal
from natgrad.optim._capture.graph import behind_views
from natgrad.optim._curvature.factor import Gram, diagonal_blocks
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim._layers.linear import Layer, LinearLayer, Sharing, wide

# Above this number of outputs their full Fisher matrix is sampled: a vocabulary needs 10 GB.
_LARGEST_KNOWN = 4096

Source = Literal["sampled", "exact", "empirical", "propagated"]
"""`sampled`: labels drawn from the model, [BLH18] §5. `exact`: every column of the Fisher's root.
`empirical`: the true labels, which is *not* the Fisher. `propagated`: eq. 14–15, linear networks.
"""


@options
@dataclass(frozen=True, kw_only=True)
class Factors:
    """How the Kronecker factors are estimated.

    Attributes:
        source: Where errors come from: `"sampled"` from the model ([BLH18] §5); `"exact"`, one
            backward pass for each output; `"propagated"`, eq. 14–15, linear networks only;
            `"empirical"`, the true labels, which is not the Fisher.
        samples: K, the number of backward passes of sampled errors.
        memory: How many past samples the averages remember. m new samples get the weight
            m / (m + past), past ≤ memory; 0 uses each batch alone, as [BLH18] does, ∞ uses all.
            By default 750, or twice the longest side of a layer that sees one row of each sample.
        keep: Whether factors stay in memory beside their inverses. False, which needs `memory=0`,
            halves the optimizer's state.
        sharing: For weights used at many positions of a sample (sequences, convolutions):
            `"expand"` counts every position as a row, `"reduce"` averages inputs and sums errors
            over positions first, which is cheaper, and exact if only their average matters.
        block: Largest side of a block: a factor of more than 1.5 times this side is cut into equal
            blocks on its diagonal, and all entries outside of them are zero. None keeps it whole.
        rows: Number of rows of a batch that are enough for a factor. Above it, and above four times
            the sides of the layer, only every k-th sample is summed. None sums all.
        exact_output: Compute the last layer's error factor from the likelihood, if the layer's
            outputs are the model's, instead of sampling it.

    Example:
        >>> Factors(source="exact", memory=0).samples
        1
    """

    source: Source = "sampled"
    samples: int = 1
    memory: float | None = None
    exact_output: bool = True
    sharing: Sharing = "expand"
    keep: bool = True
    block: int | None = 224
    rows: int | None = 1024

    def __post_init__(self) -> None:
        """Raise if an option is out of range."""
        literal(self.source, "source", Source)
        literal(self.sharing, "sharing", Sharing)
        flag(self.exact_output, "exact_output")
        flag(self.keep, "keep")
        memory = self.memory
        if memory is not None:
            memory = number(memory, "memory", low=0, infinite=True)
        if not self.keep and memory != 0:
            raise InvalidInputError(
                "keep=False forgets the factors at each step, so memory must be 0, but is "
                f"{memory!r}."
            )
        block = None if self.block is None else integer(self.block, "block", low=1)
        rows = None if self.rows is None else integer(self.rows, "rows", low=1)
        keep(
            self,
            block=block,
            rows=rows,
            samples=integer(self.samples, "samples", low=1),
            memory=memory,
        )


@dataclass
class Visit:
    """One pass of a batch through one layer: its inputs, and the graph edge at its output.

    Attributes:
        called: Whether the layer's own forward ran; attention reads its weights directly.
        used: Whether a criterion was called on outputs that depend on this pass.
        errors: What came back to the output, if it is recorded; one entry per backward pass.
    """

    x: Tensor
    edge: GradientEdge
    called: bool = True
    used: bool = False
    errors: list[Tensor] = field(default_factory=list)


@dataclass
class Moments:
    """Sums over one batch, for one layer.

    Attributes:
        rows: Number of rows.
        inputs: Σ x xᵀ over rows.
        errors: Σ e eᵀ over rows, unreduced.
        squares: Σ e² x² over rows, in the shape of the layer's matrix.
        constant_errors: Whether the error factor never changes; `errors` is None once it is known.
    """

    rows: int = 0
    inputs: Gram | None = None
    errors: Gram | None = None
    squares: Tensor | None = None
    constant_errors: bool = False


class Gather:
    """Computes the required sums over a batch.

    Args:
        coverage: The model's layers with factors, and other parameters.
        factors: How errors are drawn.
        generator: Random generator.
        settled: Layers whose constant error factor is known already.
        squares: Sum squares for a diagonal Fisher instead of second moments.
        traces: Whether parameters without factors need the trace of their Fisher block.
    """

    def __init__(
        self,
        coverage: Coverage,
        factors: Factors,
        generator: torch.Generator,
        *,
        settled: Set[str] = frozenset(),
        squares: bool = False,
        traces: bool = True,
    ) -> None:
        self.coverage, self.factors, self.traces = coverage, factors, traces
        self.generator, self.settled, self.squares = generator, settled, squares

    def __call__(
        self,
        likelihood: Likelihood,
        output: Tensor,
        y: Tensor | None,
        visits: Mapping[str, Sequence[Visit]],
    ) -> tuple[dict[str, Moments], dict[str, float]]:
        """Return the moments of every layer, and squared sampled gradients of other parameters.

        Args:
            likelihood: The likelihood.
            output: Outputs, with their graph.
            y: Labels; only `source="empirical"` uses them.
            visits: The passes through each layer.
        """
        with torch.autocast(output.device.type, enabled=False):  # factors are not to be rounded
            return self._sum(likelihood, output, y, visits)

    def _sum(
        self,
        likelihood: Likelihood,
        output: Tensor,
        y: Tensor | None,
        visits: Mapping[str, Sequence[Visit]],
    ) -> tuple[dict[str, Moments], dict[str, float]]:
        if self.factors.source == "propagated":  # the rest follows from the first layer's inputs
            visits = dict(list(visits.items())[:1])
        moments = {name: self._inputs(name, seen, len(output)) for name, seen in visits.items()}
        shared = self._check_rows(moments, len(output))
        traces: dict[str, float] = {}
        pending = [(name, visit) for name, seen in visits.items() for visit in seen]
        known = self._output_layer(output, visits)
        if known is not None:
            self._known_errors(likelihood, wide(output.detach()), known, moments[known])
            pending = [(name, visit) for name, visit in pending if name != known]
        others = self.coverage.others if self.traces else {}
        edges = [visit.edge for _, visit in pending]
        targets: list[Any] = [*edges, *others.values()]
        if not targets or self.factors.source == "propagated":
            return moments, traces
        for errors in self._errors(likelihood, wide(output.detach()), y):
            if shared and self.factors.source == "empirical":
                errors = errors * self._signs(errors)
            found = torch.autograd.grad(
                output, targets, errors.to(output.dtype), retain_graph=True, allow_unused=True
            )
            with torch.no_grad():
                for (name, visit), e in zip(pending, found[: len(pending)], strict=True):
                    if e is not None:
                        layer = self.coverage.layers[name]
                        self._add_errors(layer, moments[name], visit, e, len(output))
                for name, g in zip(others, found[len(pending) :], strict=True):
                    if g is not None:
                        traces[name] = traces.get(name, 0.0) + float(g.double().square().sum())
        return moments, traces

    @torch.no_grad()
    def _inputs(self, name: str, visits: Sequence[Visit], n: int) -> Moments:
        layer, moments = self.coverage.layers[name], Moments()
        for visit in visits:
            if self.squares:
                moments.rows += len(layer.input_rows(visit.x))
                continue
            part, times = _thinned(visit.x, layer.stride(visit.x, self.factors.rows))
            fresh, count = layer.sum_inputs(part, n)
            fresh = fresh if times == 1 else fresh.times(times)
            moments.inputs = fresh if moments.inputs is None else moments.inputs.plus(fresh)
            moments.rows += round(count * times)
        return moments

    def _check_rows(self, moments: Mapping[str, Moments], n: int) -> bool:
        """Return whether samples share rows of a layer; refuse layers with too few for that.

        A table of positions is looked up once for all samples. The errors at such a row are
        summed over its samples. Sampled errors are independent with mean zero, so the square of the
        sum has the expectation of the sum of their squares; empirical errors get random signs,
        for the same reason. The input factor, an average over rows, is the same as if each sample
        had its own row.
        """
        whole = any(found.rows >= n for found in moments.values())
        shareable = whole and self.factors.source in ("sampled", "empirical")
        for name, found in moments.items():
            if found.rows < n and not (shareable and found.rows):
                raise ShapeError(
                    f"layer {name!r} saw {found.rows} rows, but the criterion {n} samples. If one "
                    "loss gathers several forward passes, hold their outputs until it is called, "
                    "or run them as one batch; if samples share rows, expand them to one each."
                )
        return any(found.rows < n for found in moments.values())

    def _signs(self, errors: Tensor) -> Tensor:
        """Return a random sign for each sample, in a shape that multiplies its errors."""
        shape = (len(errors), *(1 for _ in errors.shape[1:]))
        drawn = torch.randint(2, shape, generator=self.generator, device=errors.device)
        return (2 * drawn - 1).to(errors.dtype)

    def _errors(self, likelihood: Likelihood, output: Tensor, y: Tensor | None) -> Iterator[Tensor]:
        source, samples = self.factors.source, self.factors.samples
        return output_errors(likelihood, output, y, source, samples, self.generator)

    def _add_errors(self, layer: Layer, moments: Moments, visit: Visit, e: Tensor, n: int) -> None:
        if self.squares:
            fresh = layer.sum_squares(e, visit.x, n)
            moments.squares = fresh if moments.squares is None else moments.squares + fresh
            return
        stride = layer.stride(visit.x, self.factors.rows)
        if stride > 1 and len(e) != len(visit.x):
            stride = 1
        part, times = _thinned(e, stride)
        errors = layer.sum_errors(part, visit.x, n)
        errors = errors if times == 1 else errors.times(times)
        moments.errors = errors if moments.errors is None else moments.errors.plus(errors)

    def _output_layer(self, output: Tensor, visits: Mapping[str, Sequence[Visit]]) -> str | None:
        """Return the linear layer whose outputs the likelihood sees directly, if there is one."""
        source = self.factors.source
        if self.squares or not self.factors.exact_output or source == "empirical":
            return None
        last = behind_views(get_gradient_edge(output))
        for name, seen in visits.items():
            layer = self.coverage.layers[name]
            fits = output.ndim == 2 and output.shape[1] == layer.shape[0] <= _LARGEST_KNOWN
            if fits and len(seen) == 1 and behind_views(seen[0].edge) == last:
                return name if isinstance(layer, LinearLayer) else None
        return None

    @torch.no_grad()
    def _known_errors(
        self, likelihood: Likelihood, output: Tensor, name: str, moments: Moments
    ) -> None:
        moments.constant_errors = likelihood.constant_fisher
        if not (moments.constant_errors and name in self.settled):
            fisher = len(output) * wide(likelihood.mean_fisher(output))
            shape = self.coverage.layers[name].factor_shapes[1]
            moments.errors = Gram(total=diagonal_blocks(fisher, shape))


def _thinned(t: Tensor, stride: int) -> tuple[Tensor, float]:
    """Return every `stride`-th entry along the first axis, and how many entries each represents."""
    if stride == 1:
        return t, 1.0
    part = t[::stride]
    return part, len(t) / len(part)


def output_errors(
    likelihood: Likelihood,
    output: Tensor,
    y: Tensor | None,
    source: Source,
    samples: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Yield errors at the outputs, in their shape; the Fisher is the sum of their squares.

    The caller multiplies by the factor of the reduction.

    Example:
        >>> from natgrad import Bernoulli
        >>> f = torch.zeros(1, 1)
        >>> [e.item() for e in output_errors(Bernoulli(), f, None, "exact", 1, torch.Generator())]
        [0.5]
    """
    if source == "exact":
        root = likelihood.root(output)
        for r in range(root.log_weight.shape[1]):
            column = torch.zeros_like(root.log_weight)
            column[:, r] = torch.exp(root.log_weight[:, r])
            yield root.transpose(column).reshape(output.shape)
    elif source == "empirical":
        assert y is not None
        yield likelihood.gradient(output, y) / likelihood.scale(len(output))
    else:
        for _ in range(samples):
            errors = likelihood.sampled_errors(output, generator=generator)
            yield errors / samples**0.5 if samples > 1 else errors
