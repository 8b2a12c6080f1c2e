"""How long a step along the natural direction is."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.likelihoods import Likelihood
from natgrad.optim.capture import Call
from natgrad.optim.direction import Direction, Part


@dataclass(frozen=True)
class EqualShare:
    """Step length lr/L: each of L layers takes an equal share, [BLH18] (20).

    Example:
        >>> EqualShare()
        EqualShare()
    """


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Step length lr·α with α = gᵀd / dᵀ(F + λ)d, the minimum of the quadratic model along d.

    F is the Fisher itself, not its Kronecker approximation, so α knows how much of the step every
    layer should take: 1/L where all layers do the same work, up to 1 where they do not interfere.
    It costs one forward pass on `rows` data: dᵀFd = ‖J d‖² in the metric of the likelihood, with
    J d the difference quotient of the outputs.

    Attributes:
        rows: How many data of the batch; where data interact (batch normalisation), all of them.

    Example:
        >>> Quadratic().rows
        250
    """

    rows: int = 250

    def __post_init__(self) -> None:
        """Refuse an empty sample."""
        if type(self.rows) is not int or self.rows < 1:
            raise InvalidInputError(f"rows must be a positive integer, but is {self.rows!r}.")


@dataclass(frozen=True, kw_only=True)
class PerLayer(Quadratic):
    """A length for every layer: the minimum of the quadratic model over all of them together.

    The shares cᵢ solve Σⱼ dᵢᵀ(F + λ)dⱼ cⱼ = gᵀdᵢ, which takes a forward pass for each layer instead
    of one for all. In deep linear networks with a bottleneck equal shares converge at a fraction of
    the rate of the natural gradient ([BLH18] (19)); shares that may differ, and be negative, win it
    back. Where all layers do the same work they are equal.

    Attributes:
        rows: As in `Quadratic`.

    Example:
        >>> PerLayer(rows=100).rows
        100
    """


StepLength = EqualShare | Quadratic | PerLayer


@dataclass(frozen=True)
class QuadraticModel:
    """What is expected of the loss along a direction: a decrease of t·slope − t²·bend/2.

    Attributes:
        alpha: The step length that the model asks for.
        slope: First derivative.
        bend: Second derivative, damping included.
        rows: On how many data of the largest call; None for the whole batch.
        share: The step's decrease to first order, in units of that of equal shares.
    """

    alpha: float
    slope: float
    bend: float
    rows: int | None = None
    share: float = 0.0

    def decrease(self, length: float) -> float:
        """Return the decrease of the loss that a step promises."""
        return length * self.slope - length**2 * self.bend / 2


class Ruler:
    """Measures along a direction, by running the model again on the batch.

    Args:
        step_length: Which rule.
        likelihood: The likelihood.

    Attributes:
        rows: On how many data a second pass reproduces the outputs: None before that has been
            tried, −1 for all of them at once (where they interact, as in batch normalisation),
            0 where it does not.
    """

    def __init__(self, step_length: StepLength, likelihood: Likelihood) -> None:
        self.step_length, self.likelihood = step_length, likelihood
        self.rows: int | None = None

    def reproduces(self, call: Call) -> bool:
        """Return whether a second pass over the batch gives the same outputs; tried once."""
        if self.rows is None:
            wish = self.step_length.rows if isinstance(self.step_length, Quadratic) else call.n
            self.rows = 0
            for rows in (min(wish, max(1, call.n // 2)), call.n):
                if call.replay is not None and _reproduced(call, rows):
                    self.rows = wish if rows < call.n else -1
                    break
        return self.rows != 0 and call.replay is not None

    def model(self, call: Call, direction: Direction, damping: float) -> QuadraticModel | None:
        """Return the quadratic model along a direction; None if it cannot be had.

        May leave the parameters a little way along the direction.

        Args:
            call: The largest call of the batch.
            direction: d.
            damping: λ.
        """
        if isinstance(self.step_length, EqualShare) or not direction.slope > 0:
            return equal_shares(direction)
        if not self.reproduces(call):
            return None
        rows = call.n if self.rows == -1 else min(self.rows or 0, call.n)
        if isinstance(self.step_length, PerLayer):
            return self._shares(call, direction, damping, rows)
        epsilon = self._nudge(call.output[:rows], direction)
        found = self._along(call, direction, damping, rows, epsilon)
        if rows < call.n and not 0.5 < found.slope / direction.slope < 2:
            # The direction owes its slope to data that the rows lack, and bends there too.
            found = self._along(call, direction, damping, call.n, epsilon)
        return found if found.bend > 0 else equal_shares(direction)

    def _shares(
        self, call: Call, direction: Direction, damping: float, rows: int
    ) -> QuadraticModel:
        """Rescale every part to its share, and return the model of a unit step."""
        assert call.replay is not None
        output = call.output[:rows]
        velocities = []
        for part in direction.parts:
            epsilon = self._nudge(output, part)
            moved = call.replay.outputs(None if rows == call.n else rows)
            part.move(-epsilon)
            velocities.append((output - moved) / epsilon)
        products = [self.likelihood.fisher_product(output, v) for v in velocities]
        flat = torch.stack([v.reshape(-1) for v in velocities]).double()
        gram = flat @ torch.stack([p.reshape(-1) for p in products]).double().mT / rows
        gram = gram.cpu() + damping * torch.diag(torch.tensor(direction.squares).double())
        slopes = torch.tensor([part.slope for part in direction.parts]).double()
        shares = _solve_shares(gram, slopes, 10 * math.sqrt(torch.finfo(output.dtype).eps))
        total = direction.slope
        direction.rescale(shares.tolist())
        share = direction.slope / total * direction.depth
        bend = float(shares @ gram @ shares)
        return QuadraticModel(1.0, direction.slope, bend, rows, share)

    def losses(self, call: Call, rows: int) -> tuple[float, float] | None:
        """Return the average loss of some data before the step and now."""
        if call.replay is None or call.y is None:
            return None
        y, unit = call.y[:rows], self.likelihood.scale(rows) * rows
        now = call.replay.outputs(None if rows == call.n else rows)
        return (
            float(self.likelihood.loss(call.output[:rows], y)) / unit,
            float(self.likelihood.loss(now, y)) / unit,
        )

    def _nudge(self, output: Tensor, direction: Direction | Part) -> float:
        """Move the parameters by −εd and return ε, for difference quotients of the outputs.

        ε moves the outputs by 10 √eps of their own size, in the likelihood's metric, where the
        blocks expect a squared velocity of gᵀd: small enough to be a derivative, large enough to
        rise above rounding.
        """
        small = 10 * math.sqrt(torch.finfo(output.dtype).eps)
        wanted = small * math.sqrt(1 + self._size(output) / direction.slope)
        epsilon = min(wanted, 1.0)
        direction.move(epsilon)
        return epsilon

    def _along(
        self, call: Call, direction: Direction, damping: float, rows: int, epsilon: float
    ) -> QuadraticModel:
        """Return the model over the first rows, whose outputs at θ the training pass has left."""
        assert call.replay is not None
        output = call.output[:rows]
        moved = call.replay.outputs(None if rows == call.n else rows)
        velocity = (output - moved) / epsilon
        product = self.likelihood.fisher_product(output, velocity)
        bend = damping * direction.square + float((velocity * product).sum()) / rows
        slope = direction.slope
        if call.y is not None:
            gradient = self.likelihood.gradient(output, call.y[:rows])
            slope = float((gradient * velocity).sum()) / (rows * self.likelihood.scale(rows))
        alpha = direction.slope / bend if bend > 0 else math.inf
        return QuadraticModel(alpha, slope, bend, rows, alpha * direction.depth)

    def rounding(self, call: Call, loss: float) -> float:
        """Return a change of the loss that rounding of losses and outputs can cause."""
        eps = 10 * torch.finfo(call.output.dtype).eps
        return eps * abs(loss) + eps**2 * self._size(call.output)

    def _size(self, output: Tensor) -> float:
        """Return fᵀFf, the outputs' size in the likelihood's metric, averaged over data."""
        return float((output * self.likelihood.fisher_product(output, output)).sum()) / len(output)


def equal_shares(direction: Direction) -> QuadraticModel:
    """Return the model whose minimum is an equal share for every block.

    [BLH18] footnote 1, with the sign of a decrease and the step length counted once.
    """
    share = 1 / direction.depth
    return QuadraticModel(share, direction.slope, direction.slope / share, share=1.0)


def _solve_shares(gram: Tensor, slopes: Tensor, rtol: float) -> Tensor:
    """Return the shortest solution of gram · c = slopes, in units of each block's own step."""
    scale = gram.diagonal().clamp(min=torch.finfo(gram.dtype).tiny).rsqrt()
    unit = gram * scale[:, None] * scale
    inverse = torch.linalg.pinv((unit + unit.mT) / 2, rtol=rtol, hermitian=True)
    shares: Tensor = scale * (inverse @ (scale * slopes))
    return shares


def _reproduced(call: Call, rows: int) -> bool:
    assert call.replay is not None
    again = call.replay.outputs(None if rows == call.n else rows)
    wanted = call.output[:rows]
    if again.shape != wanted.shape:
        return False
    tolerance = math.sqrt(torch.finfo(wanted.dtype).eps) * float(wanted.abs().max())
    return float((again - wanted).abs().max()) <= tolerance
