"""Max margins in other norms against CVXPY with Clarabel: seconds, gap, and equal values."""

import math
from typing import Any

import cvxpy
import torch
from harness import Row, interleaved, report

from natgrad import limits
from natgrad.linalg.norms import Group, Lp, Norm, Nuclear, Spectral

F64 = torch.float64


def classes(n: int, d: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, dtype=F64, generator=source)
    return x, (x @ torch.randn(d, k, dtype=F64, generator=source)).argmax(1)


def pairs(x: torch.Tensor, y: torch.Tensor, k: int) -> Any:
    """Return the rows (e_y − e_c) xᵀ, flattened."""
    own = torch.eye(k, dtype=F64)[y]
    rows = torch.einsum("nck,nd->nckd", own[:, None] - torch.eye(k, dtype=F64), x)
    return rows[own == 0].flatten(1).numpy()


def by_cvxpy(x: torch.Tensor, y: torch.Tensor, k: int, norm: Norm) -> float:
    b = cvxpy.Variable((k, x.shape[1]))
    lengths: dict[str, Any] = {
        "Lp(p=3.0)": lambda: cvxpy.norm(cvxpy.vec(b, order="C"), 3),
        "Lp(p=inf)": lambda: cvxpy.norm(cvxpy.vec(b, order="C"), "inf"),
        "Spectral()": lambda: cvxpy.sigma_max(b),
        "Nuclear()": lambda: cvxpy.normNuc(b),
        "Group(groups='columns', p=1)": lambda: cvxpy.sum(cvxpy.norm(b, 2, axis=0)),
    }
    rules = [pairs(x, y, k) @ cvxpy.vec(b, order="C") >= 1]
    problem = cvxpy.Problem(cvxpy.Minimize(lengths[repr(norm)]()), rules)
    problem.solve(solver="CLARABEL")
    return 1 / float(problem.value)


def main() -> None:
    rows = []
    x, y = classes(60, 20, 4)
    for norm in (Lp(3), Lp(math.inf), Group("columns"), Spectral(), Nuclear()):
        found = limits.multiclass_max_margin(x, y, norm)
        truth = by_cvxpy(x, y, 4, norm)
        assert abs(found.value - truth) <= 1e-6 * truth, (norm, found.value, truth)
        ours, peer = interleaved(
            lambda norm=norm: limits.multiclass_max_margin(x, y, norm),
            lambda norm=norm: by_cvxpy(x, y, 4, norm),
            rounds=3,
        )
        detail = f"{ours:.3f} s against {peer:.3f} s, gap {found.certificate:.1e}"
        name = f"{norm!r}, 60 × 20, 4 classes"
        rows.append(Row(name, ours / peer, "× its time", "", None, detail))
    found = limits.multiclass_max_margin(x, y, Spectral())
    weights = found.dual
    assert weights is not None
    (seconds,) = interleaved(
        lambda: limits.certify(found.solution, weights, x, y, Spectral()), rounds=20
    )
    share = limits.certify(found.solution, weights, x, y, Spectral()).fraction
    rows.append(
        Row("certify, spectral", seconds, "s", "≤ 0.05", seconds <= 0.05, f"fraction {share:.10f}")
    )
    report("max margins in other norms", rows)


if __name__ == "__main__":
    main()
