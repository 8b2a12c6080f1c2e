"""QR with column pivoting: rank and minimum-norm solve at a fraction of the cost of an SVD."""

from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import number, tensor
from natgrad.linalg._precision import default_rtol, widen


@dataclass(frozen=True)
class PivotedQR:
    """A P = Q R with |r₁₁| ≥ |r₂₂| ≥ …, cut where the diagonal falls below the cut-off.

    Attributes:
        q: Orthonormal columns that span the range of A, shape `(m, rank)`.
        r: The rows of R that are kept, shape `(rank, n)`.
        order: The permutation: column `order[k]` of A became column k.
        rank: Number of diagonal entries above the cut-off.
    """

    q: Tensor
    r: Tensor
    order: Tensor
    rank: int

    def solve(self, b: Tensor) -> Tensor:
        """Return the shortest x that minimizes ‖A x − b‖, b of shape `(m, k)`, in b's dtype.

        Where columns are dependent, [R₁₁ R₁₂]ᵀ = Z T makes R triangular from both sides.
        """
        c = self.q.mT @ widen(b)
        n = len(self.order)
        if self.rank == n:
            x = torch.linalg.solve_triangular(self.r, c, upper=True)
        else:
            z, t = torch.linalg.qr(self.r.mT)
            x = z @ torch.linalg.solve_triangular(t.mT, c, upper=False)
        out = torch.empty_like(x)
        out[self.order] = x
        return out.to(b)


def pivoted_qr(a: Tensor, *, rtol: float | None = None) -> PivotedQR:
    """Return the rank-revealing decomposition of a matrix, computed in double precision.

    Args:
        a: Matrix, shape `(m, n)`.
        rtol: Diagonal entries at or below `rtol` × the first count as zero. Default: the larger
            side × machine epsilon of the dtype of `a`.

    Example:
        >>> found = pivoted_qr(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
        >>> found.rank, found.solve(torch.tensor([[1.0], [2.0]]))
        (1, tensor([[0.2000],
                [0.4000]]))
    """
    import scipy.linalg  # imported here to keep `import natgrad` light

    tensor(a, "the matrix", shape=("m", "n"), empty=True)
    rtol = None if rtol is None else number(rtol, "rtol", low=0)
    rtol = default_rtol(*a.shape, dtype=a.dtype) if rtol is None else rtol
    wide = widen(a)
    q, r, order = scipy.linalg.qr(wide.cpu().numpy(), mode="economic", pivoting=True)
    diagonal = abs(r.diagonal())
    rank = int((diagonal > rtol * diagonal[0]).sum()) if diagonal.size and diagonal[0] > 0 else 0
    return PivotedQR(
        torch.from_numpy(q[:, :rank].copy()).to(wide),
        torch.from_numpy(r[:rank].copy()).to(wide),
        torch.from_numpy(order.astype("int64")).to(wide.device),
        rank,
    )
