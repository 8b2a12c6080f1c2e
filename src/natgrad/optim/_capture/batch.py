"""The batch of one optimizer step, which may have come in several calls of the criterion."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import describe, flag, integer
from natgrad.errors import DtypeError, InvalidInputError, NonFiniteError, UnsupportedError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.moments import Moments, Visit
from natgrad.optim._capture.replay import Replay
from natgrad.optim._distributed import World
from natgrad.optim._states import entries


@dataclass
class Call:
    """One call of the criterion, or one forward pass under a custom loss.

    Attributes:
        output: Outputs that the likelihood was called on, detached.
        y: The labels; None under a custom loss.
        loss: The loss as reduced; None under a custom loss.
        unit: Factor of one sample in the loss as reduced, 1/n or 1.
        likelihood: The likelihood of these outputs, with weights of samples if there are any.
        weight: Derivative of the total with respect to this loss; None before backward.
        moments: Sums for every layer, if requested.
        traces: Squared norms of sampled gradients of parameters without factors, if requested.
        single: The inputs of every layer, if there is a single sample.
        replay: How to run the model again; None if that is not possible.
    """

    output: Tensor
    y: Tensor | None
    loss: Tensor | None
    unit: float
    likelihood: Likelihood
    weight: float | None = None
    moments: dict[str, Moments] = field(default_factory=dict)
    traces: dict[str, float] = field(default_factory=dict)
    single: dict[str, Tensor] = field(default_factory=dict)
    replay: Replay | None = None

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return len(self.output)

    @property
    def positions(self) -> int:
        """Return how many rows of the outputs belong to one sample; 1 if that is not known."""
        return 1 if self.replay is None else max(1, self.replay.each)

    @property
    def rounded(self) -> bool:
        """Return whether the outputs were rounded to half precision, as under autocast."""
        half = torch.finfo(self.output.dtype).bits < 32
        return half or (self.replay is not None and self.replay.rounded)

    def reproduced(self, rows: int) -> bool:
        """Return whether running the model again reproduces the first rows of the outputs."""
        assert self.replay is not None
        try:
            again = self.replay.outputs(None if rows == self.n else rows)
        except Exception:
            if rows == self.n:
                raise
            return False  # a model may fail in any way if only some of its arguments were cut
        wanted = self.output[:rows]
        if again.shape != wanted.shape:
            return False
        kind = torch.bfloat16 if self.replay.rounded else wanted.dtype
        tolerance = math.sqrt(torch.finfo(kind).eps) * float(wanted.abs().max())
        return float((again - wanted).abs().max()) <= tolerance


@dataclass(frozen=True)
class Piece:
    """The first rows of one call.

    Attributes:
        call: The call.
        rows: Number of rows.
        weight: Weight of one sample in an average over all pieces.
        output: Their outputs before the step, in single precision or wider.
        whole: Whether this is the whole call, with the outputs that the criterion was called on.
    """

    call: Call
    rows: int
    weight: float
    output: Tensor
    whole: bool

    def outputs_again(self) -> Tensor:
        """Return the outputs at the present parameters."""
        assert self.call.replay is not None
        return self.call.replay.outputs(None if self.rows == self.call.n else self.rows)

    def losses(self) -> tuple[float, float]:
        """Return the sums of the losses before the step and at the present parameters."""
        likelihood = self.call.likelihood
        assert self.call.y is not None
        assert self.call.loss is not None
        labels, scale = self.call.y[: self.rows], likelihood.scale(self.rows)
        before = self.call.loss if self.whole else likelihood.loss(self.output, labels)
        now = likelihood.loss(self.outputs_again(), labels)
        return float(before) / scale, float(now) / scale


class Batch:
    """Calls of the criterion that were back-propagated before one step.

    What was differentiated is Σ cᵢ Σₙ ℓₙ over calls i and their samples. The cᵢ are known from the
    reduction and from the derivative that reached each loss. So mean and sum, gradient
    accumulation, losses divided by a number of steps and scaled losses all give the same average
    over samples.

    Args:
        calls: The calls, at least one.
        unscaled: Divisor of the gradients since then, for example by a `GradScaler`.
        world: The processes that each hold a part of the batch, and average their gradients.
        rows: Passes through some layers, by name, with the errors that came back.

    Attributes:
        n: Number of samples, of all processes.
        count: Effective number of samples: the positions of a text, which are similar, count by
            the square root of their number.
        total: Divisor that turns `.grad` into an average over samples.
        weights: Weight of one sample of each call in such an average.
        squares: Whether all losses are known squared errors.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        *,
        unscaled: float = 1.0,
        world: World | None = None,
        rows: Mapping[str, Sequence[Visit]] | None = None,
    ) -> None:
        self.calls, self.world = list(calls), World() if world is None else world
        self.rows = {} if rows is None else rows
        each = [(call.weight or 0.0) * call.unit / unscaled for call in calls]
        here = sum(c * call.n for c, call in zip(each, calls, strict=True))
        alike = sum(call.n / call.positions**0.5 for call in calls)
        unlike = sum(call.loss is None or not call.likelihood.squares for call in calls)
        n, total, self.count, others = self.sum([sum(c.n for c in calls), here, alike, unlike])
        self.n, self.total, self.squares = int(n), total / self.world.size, not others
        self.weights = [c / total if total else 0.0 for c in each]

    def sum(self, values: Sequence[float]) -> Sequence[float]:
        """Return the sums of numbers over processes."""
        return values if self.world.size == 1 else self.world.sum(values)

    @property
    def largest(self) -> Call:
        """Return the call with the most samples."""
        return max(self.calls, key=lambda call: call.n)

    def first(self, rows: int | None) -> list[Piece]:
        """Return the first rows of the batch, or all, as pieces of calls.

        Call this before the parameters change.
        """
        left = self.n if rows is None else -(-rows // self.world.size)
        taken: list[tuple[Call, int, float]] = []
        for call, weight in zip(self.calls, self.weights, strict=True):
            if left > 0:
                taken.append((call, min(left, call.n), weight))
                left -= call.n
        (whole,) = self.sum([sum(count * weight for _, count, weight in taken)])
        return [_piece(c, count, weight / whole) for c, count, weight in taken]

    def average(self, values: Sequence[float], pieces: Sequence[Piece]) -> float:
        """Return the average over samples of a quantity, from its sum over each piece."""
        here = sum(piece.weight * v for piece, v in zip(pieces, values, strict=True))
        return self.sum([here])[0]

    def losses(self, pieces: Sequence[Piece]) -> tuple[float, float] | None:
        """Return the average loss of pieces before the step and now; None if it is not known."""
        if any(piece.call.replay is None or piece.call.y is None for piece in pieces):
            return None
        found = [piece.losses() for piece in pieces]
        before, now = zip(*found, strict=True)
        return self.average(before, pieces), self.average(now, pieces)

    def loss(self) -> float | None:
        """Return the average loss; None under a custom loss."""
        total = 0.0
        for call, weight in zip(self.calls, self.weights, strict=True):
            if call.loss is None:
                return None
            total += weight * float(call.loss) / call.unit
        return self.sum([total])[0]

    def average_of(self, loss: Any) -> float:
        """Return a custom loss, as a closure returns it, as an average over samples."""
        n = sum(call.n for call in self.calls)
        one = loss.numel() == 1 and not loss.is_complex() if isinstance(loss, Tensor) else False
        if not one and (isinstance(loss, bool) or not isinstance(loss, Real)):
            raise DtypeError(
                f"the closure must return the loss, a tensor with one number, but returned "
                f"{describe(loss)}."
            )
        here = float(loss.detach() if isinstance(loss, Tensor) else loss) / (self.calls[0].unit * n)
        return self.sum([here / self.world.size])[0]

    def closure_loss(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> float:
        """Return the average loss that a closure computes now; gradients stay as they are."""
        held = [p.grad for p in params]
        for p in params:
            p.grad = None
        try:
            with torch.enable_grad():
                return self.average_of(closure())
        finally:
            for p, grad in zip(params, held, strict=True):
                p.grad = grad

    def gradient_norms(
        self, params: Sequence[Tensor], loss: float | None, step: int
    ) -> tuple[dict[Tensor, float], float]:
        """Return the norm of every gradient, and that of the average loss's whole gradient.

        Args:
            params: The parameters.
            loss: The average loss, if it is known.
            step: Number of the step.

        Raises:
            InvalidInputError: If there is no gradient.
            UnsupportedError: If a gradient is sparse.
            NonFiniteError: If loss or gradient is NaN or infinite.
        """
        moved = [p for p in params if p.grad is not None]
        if not moved:
            raise InvalidInputError(
                f"step {step} found no gradient. Call backward() between zero_grad() and step()."
            )
        if any(p.grad.is_sparse for p in moved if p.grad is not None):
            raise UnsupportedError(
                "some gradient is sparse. Construct the embeddings with sparse=False."
            )
        found = [_norm(p.grad) for p in moved if p.grad is not None]
        norms = torch.stack([n.double().cpu() for n in found]).tolist()
        norm = math.hypot(*norms) / self.total if self.total else math.nan
        for name, value in (("loss", loss), ("gradient", norm)):
            if value is not None and not math.isfinite(value):
                raise NonFiniteError(
                    f"the {name} is {value} at step {step}: the step is refused and the "
                    "weights are untouched. Look for a diverged run, an overflow or missing values "
                    "in the batch; skip it, or continue from a checkpoint with more damping."
                )
        return dict(zip(moved, norms, strict=True)), norm


class Reproduction:
    """Whether running a model again on a batch gives the same outputs; tested once.

    Args:
        wish: Returns the wanted number of output rows, given the number of all rows.

    Attributes:
        rows: Number of output rows that a second pass over their samples alone reproduces.
            None before the test, −1 if only the whole batch works (samples interact, as in
            batch normalization), 0 if a second pass does not reproduce them.
        each: Rows per sample in the test.
        cuts: The arguments that were cut in the test.
        alone: Whether the test had a single sample, of which nothing can be cut.
    """

    def __init__(self, wish: Callable[[int], int]) -> None:
        self.wish = wish
        self.rows: int | None = None
        self.each, self.cuts, self.alone = 0, list[int | str](), False

    def holds(self, batch: Batch) -> bool:
        """Return whether a second pass over the batch gives the same outputs."""
        single = batch.n <= batch.world.size
        if self.rows is None or (self.alone and not single):
            self.alone = single
            found = self._try(batch.largest)
            failed, together = batch.sum([found == 0, found == -1])
            self.rows = 0 if failed else -1 if together else found
        return self.rows != 0 and all(call.replay is not None for call in batch.calls)

    def _try(self, call: Call) -> int:
        if call.replay is None:
            return 0
        wish = self.wish(call.n)
        self.each, self.cuts = call.replay.each, call.replay.cuts
        cut = self.each and not call.replay.draws
        part = (min(wish, max(1, call.n // 2)),) if cut else ()
        for rows in (*part, call.n):
            if call.reproduced(rows):
                return wish if rows < call.n else -1
        return 0

    def rows_of(self, batch: Batch) -> int | None:
        """Return how many rows to use; None (all) for a batch unlike that of the test."""
        unlike = any(
            call.replay is None
            or call.replay.draws
            or (call.replay.each, call.replay.cuts) != (self.each, self.cuts)
            for call in batch.calls
        )
        (others,) = batch.sum([unlike])
        return None if self.rows == -1 or others else self.rows

    def state_dict(self) -> dict[str, Any]:
        """Return the result of the test."""
        return {"rows": self.rows, "each": self.each, "cuts": self.cuts, "alone": self.alone}

    def check_state(self, state: Any, where: str, steps: int) -> None:
        """Raise unless a state after this number of steps can be loaded."""
        entries(state, where, self.state_dict())
        if state["rows"] is not None or steps:
            integer(state["rows"], f"{where}.rows", low=-1)
        integer(state["each"], f"{where}.each", low=0)
        flag(state["alone"], f"{where}.alone")
        cuts = state["cuts"]
        if not isinstance(cuts, list):
            raise DtypeError(f"{where}.cuts must be a list of arguments, but is {describe(cuts)}.")
        for cut in cuts:
            if not isinstance(cut, str):
                integer(cut, f"a member of {where}.cuts", low=0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self.rows, self.each = state["rows"], state["each"]
        self.cuts, self.alone = list(state["cuts"]), state["alone"]


def _norm(g: Tensor) -> Tensor:
    """Return ‖g‖, summed by rows: one sum over millions of squares loses digits."""
    rows = torch.linalg.vector_norm(g.flatten(1), dim=1) if g.ndim > 1 else g
    norm: Tensor = torch.linalg.vector_norm(rows)
    return norm


def _piece(call: Call, rows: int, weight: float) -> Piece:
    """Return the first rows of a call; outputs of autocast are computed again without it."""
    output, exact = call.output[:rows], not call.rounded
    if not exact and call.replay is None:
        output = output.float()
    elif not exact and call.replay is not None:
        output = call.replay.outputs(None if rows == call.n else rows)
    return Piece(call, rows, weight, output, whole=exact and rows == call.n)
