"""The share of each layer in a step, from the second derivatives between layers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad.optim._capture.batch import Batch, Piece
from natgrad.optim._steps.direction import Direction


def solve(
    batch: Batch,
    pieces: Sequence[Piece],
    velocities: Sequence[Sequence[Tensor]],
    direction: Direction,
    damping: float,
) -> tuple[list[float], float]:
    """Return every part's share c, and the second derivative along the sum of all shares.

    The shares minimize the quadratic model: Σⱼ dᵢᵀ(F + λ)dⱼ cⱼ = gᵀdᵢ.

    Args:
        batch: The batch.
        pieces: The samples.
        velocities: J dᵢ of every part, for every piece.
        direction: d.
        damping: λ.
    """
    gram = torch.zeros(len(velocities), len(velocities), dtype=torch.float64)
    for i, piece in enumerate(pieces):
        flat = torch.stack([v[i].reshape(-1) for v in velocities]).double()
        products = [piece.call.likelihood.fisher_product(piece.output, v[i]) for v in velocities]
        pushed = torch.stack([p.reshape(-1) for p in products]).double()
        gram += piece.weight * (flat @ pushed.mT).cpu()
    batch.world.add_up([gram])
    weights = [p.unit * s for p, s in zip(direction.parts, direction.squares, strict=True)]
    gram += damping * torch.diag(torch.tensor(weights).double())
    slopes = torch.tensor([part.slope for part in direction.parts]).double()
    eps = torch.finfo(pieces[0].output.dtype).eps
    shares = _shortest(gram, slopes, 10 * math.sqrt(eps))
    return shares.tolist(), float(shares @ gram @ shares)


def _shortest(gram: Tensor, slopes: Tensor, rtol: float) -> Tensor:
    """Return the shortest solution of gram · c = slopes, in units of each block's own step."""
    scale = gram.diagonal().clamp(min=torch.finfo(gram.dtype).tiny).rsqrt()
    unit = gram * scale[:, None] * scale
    inverse = torch.linalg.pinv((unit + unit.mT) / 2, rtol=rtol, hermitian=True)
    shares: Tensor = scale * (inverse @ (scale * slopes))
    return shares
