"""Measures the quadratic model along a direction, by running the model again."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import describe, flag, integer
from natgrad.errors import DtypeError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.batch import Batch, Piece
from natgrad.optim._capture.hooks import Call
from natgrad.optim._direction import Direction, Part
from natgrad.optim._states import entries
from natgrad.optim.step_length import EqualShare, PerLayer, Quadratic, QuadraticModel, StepLength


class Ruler:
    """Measures along a direction, by running the model again on the batch.

    Args:
        step_length: Which rule.
        likelihood: The likelihood.

    Attributes:
        rows: For how many rows of the outputs a second pass over their data alone reproduces them:
            None before that has been tried, −1 for all at once (where data interact, as in batch
            normalisation), 0 where it does not.
        each: Rows of a datum when it was tried.
        cuts: The arguments that were cut then.
        alone: Whether it was tried with a single datum, of which nothing can be cut.
    """

    def __init__(self, step_length: StepLength, likelihood: Likelihood) -> None:
        self.step_length, self.likelihood = step_length, likelihood
        self.rows: int | None = None
        self.each, self.cuts, self.alone = 0, list[int | str](), False

    def reproduces(self, batch: Batch) -> bool:
        """Return whether a second pass over the batch gives the same outputs; tried once."""
        single = batch.n <= batch.world.size
        if self.rows is None or (self.alone and not single):
            self.alone = single
            found = self._try(batch.largest)
            failed, together = batch.world.sum([found == 0, found == -1])
            self.rows = 0 if failed else -1 if together else found
        return self.rows != 0 and all(call.replay is not None for call in batch.calls)

    def _try(self, call: Call) -> int:
        if call.replay is None:
            return 0
        wish = self.step_length.rows if isinstance(self.step_length, Quadratic) else call.n
        self.each, self.cuts = call.replay.each, call.replay.cuts
        part = (min(wish, max(1, call.n // 2)),) if self.each else ()
        for rows in (*part, call.n):
            if _reproduced(call, rows):
                return wish if rows < call.n else -1
        return 0

    def _rows(self, batch: Batch) -> int | None:
        """Return how many rows to look at; None for all of a batch unlike the one first tried."""
        unlike = any(
            call.replay is None or (call.replay.each, call.replay.cuts) != (self.each, self.cuts)
            for call in batch.calls
        )
        (others,) = batch.world.sum([unlike])
        return None if self.rows == -1 or others else self.rows

    def model(self, batch: Batch, direction: Direction, damping: float) -> QuadraticModel | None:
        """Return the quadratic model along a direction; None if it cannot be had.

        May change the direction's `disturbed` parameters in their last bits.

        Args:
            batch: The batch.
            direction: d.
            damping: λ.
        """
        if isinstance(self.step_length, EqualShare) or not direction.slope > 0:
            return equal_shares(direction)
        if not self.reproduces(batch):
            return None
        rows = self._rows(batch)
        pieces = batch.first(rows)
        if isinstance(self.step_length, PerLayer):
            return self._shares(batch, pieces, direction, damping)
        exact = pieces[0].output.dtype == pieces[0].call.output.dtype  # not under autocast
        everything = batch.first(None) if exact and rows and rows < batch.n else pieces
        epsilon = self._epsilon(pieces, direction, batch)
        found = self._along(batch, pieces, direction, damping, epsilon)
        missed = direction.batch_slope - found.slope
        if everything is not pieces and not -1 < missed / direction.slope < 0.5:
            # The direction owes its slope to data that the rows lack, and bends there too.
            found = self._along(batch, everything, direction, damping, epsilon)
        return found if found.bend > 0 else equal_shares(direction)

    def _shares(
        self, batch: Batch, pieces: list[Piece], direction: Direction, damping: float
    ) -> QuadraticModel:
        """Rescale every part to its share, and return the model of a unit step."""
        velocities: list[list[Tensor]] = []
        for part in direction.parts:
            velocities.append(_velocities(pieces, part, self._epsilon(pieces, part, batch)))
        gram = torch.zeros(len(velocities), len(velocities), dtype=torch.float64)
        for i, piece in enumerate(pieces):
            flat = torch.stack([v[i].reshape(-1) for v in velocities]).double()
            products = [self.likelihood.fisher_product(piece.output, v[i]) for v in velocities]
            pushed = torch.stack([p.reshape(-1) for p in products]).double()
            gram += piece.weight * (flat @ pushed.mT).cpu()
        batch.world.add_up([gram])
        gram += damping * torch.diag(torch.tensor(direction.squares).double())
        slopes = torch.tensor([part.slope for part in direction.parts]).double()
        eps = torch.finfo(pieces[0].output.dtype).eps
        shares = _solve_shares(gram, slopes, 10 * math.sqrt(eps))
        total = direction.slope
        direction.rescale(shares.tolist())
        share = direction.slope / total * direction.depth
        bend = float(shares @ gram @ shares)
        return QuadraticModel(1.0, direction.batch_slope, bend, pieces, share)

    def state_dict(self) -> dict[str, Any]:
        """Return what was tried."""
        return {"rows": self.rows, "each": self.each, "cuts": self.cuts, "alone": self.alone}

    def check_state(self, state: Any, where: str, steps: int) -> None:
        """Raise unless a state after so many steps can be loaded."""
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
        """Take a checked state."""
        self.rows, self.each = state["rows"], state["each"]
        self.cuts, self.alone = list(state["cuts"]), state["alone"]

    def losses(self, batch: Batch, pieces: list[Piece]) -> tuple[float, float] | None:
        """Return the average loss of some data before the step and now."""
        if any(piece.call.replay is None or piece.call.y is None for piece in pieces):
            return None
        before = [p.sum_of_losses(self.likelihood, p.output) for p in pieces]
        now = [p.sum_of_losses(self.likelihood, p.outputs_again()) for p in pieces]
        return batch.average(before, pieces), batch.average(now, pieces)

    def _epsilon(self, pieces: list[Piece], direction: Direction | Part, batch: Batch) -> float:
        """Return how far to go along d for difference quotients of the outputs.

        ε moves the outputs by 10 √eps of their own size, or of their velocity if that is larger, in
        the likelihood's metric, where the blocks expect a squared velocity of gᵀd: small enough to
        be a derivative, large enough to rise above rounding.
        """
        small = 10 * math.sqrt(torch.finfo(pieces[0].output.dtype).eps)
        slope = direction.slope
        size = self._size(batch, pieces)
        return min(small * math.sqrt(1 + size / slope), 1.0) if slope > 0 else small

    def _along(
        self,
        batch: Batch,
        pieces: list[Piece],
        direction: Direction,
        damping: float,
        epsilon: float,
    ) -> QuadraticModel:
        """Return the model over pieces, whose outputs at θ the training pass has left."""
        bends, slopes = [], []
        velocities = _velocities(pieces, direction, epsilon)
        for piece, velocity in zip(pieces, velocities, strict=True):
            product = self.likelihood.fisher_product(piece.output, velocity)
            bends.append(float((velocity * product).sum()))
            if piece.call.y is not None:
                labels, scale = piece.call.y[: piece.rows], self.likelihood.scale(piece.rows)
                gradient = self.likelihood.gradient(piece.output, labels)
                slopes.append(float((gradient * velocity).sum()) / scale)
        bend = damping * direction.square + batch.average(bends, pieces)
        slope = batch.average(slopes, pieces) if slopes else direction.batch_slope
        alpha = direction.slope / bend if bend > 0 else math.inf
        return QuadraticModel(alpha, slope, bend, pieces, alpha * direction.depth)

    def rounding(self, batch: Batch, loss: float) -> float:
        """Return a change of the loss that rounding of losses and outputs can cause."""
        call = batch.largest
        eps = 10 * torch.finfo(call.output.dtype).eps
        (size,) = batch.world.sum([self._square(call.output) / call.n / batch.world.size])
        return eps * abs(loss) + eps**2 * size

    def _size(self, batch: Batch, pieces: list[Piece]) -> float:
        """Return fᵀFf, the outputs' size in the likelihood's metric, averaged over data."""
        return batch.average([self._square(p.output) for p in pieces], pieces)

    def _square(self, f: Tensor) -> float:
        """Return Σ fᵀFf; rounding, where labels are nearly certain, may leave less than nothing."""
        return max(0.0, float((f * self.likelihood.fisher_product(f, f)).sum()))


def _velocities(pieces: list[Piece], direction: Direction | Part, epsilon: float) -> list[Tensor]:
    """Return J d for every piece, by the difference quotient of the outputs."""
    with direction.nudged(epsilon):
        return [(piece.output - piece.outputs_again()) / epsilon for piece in pieces]


def equal_shares(direction: Direction) -> QuadraticModel:
    """Return the model whose minimum is an equal share for every block.

    [BLH18] footnote 1, with the sign of a decrease and the step length counted once.
    """
    share = 1 / direction.depth
    return QuadraticModel(share, direction.batch_slope, direction.slope / share, share=1.0)


def _solve_shares(gram: Tensor, slopes: Tensor, rtol: float) -> Tensor:
    """Return the shortest solution of gram · c = slopes, in units of each block's own step."""
    scale = gram.diagonal().clamp(min=torch.finfo(gram.dtype).tiny).rsqrt()
    unit = gram * scale[:, None] * scale
    inverse = torch.linalg.pinv((unit + unit.mT) / 2, rtol=rtol, hermitian=True)
    shares: Tensor = scale * (inverse @ (scale * slopes))
    return shares


def _reproduced(call: Call, rows: int) -> bool:
    assert call.replay is not None
    try:
        again = call.replay.outputs(None if rows == call.n else rows)
    except Exception:
        if rows == call.n:
            raise
        return False  # a model may fail in any way if only some of its arguments were cut
    wanted = call.output[:rows]
    if again.shape != wanted.shape:
        return False
    tolerance = math.sqrt(torch.finfo(wanted.dtype).eps) * float(wanted.abs().max())
    return float((again - wanted).abs().max()) <= tolerance
