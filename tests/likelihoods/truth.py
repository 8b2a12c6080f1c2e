"""Likelihoods in many digits, by their textbook formulas, and what is close to them."""

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

DIGITS = 400  # 1 − (1 − e⁻⁷⁰⁰) takes 304
PRECISIONS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
GAPS = [0, 1e-3, 1, 5, 10, 14, 17, 20, 30, 35, 38, 50, 80, 87, 88, 104, 300, 350, 700]


def exact(x: Tensor) -> list:
    """The entries of a tensor as they are, nested as it is."""
    if x.ndim == 0:
        return mpf(x.item())
    return [exact(row) for row in x]


def probabilities(f: list) -> list:
    e = [mpmath.exp(x) for x in f]
    return [x / mpmath.fsum(e) for x in e]


def fisher(p: list) -> list:
    k = range(len(p))
    return [[(p[i] if i == j else 0) - p[i] * p[j] for j in k] for i in k]


def misses(actual, true, dtype: torch.dtype, scale=None, units: float = 8) -> list[str]:
    """Where entries are further than `units` of machine epsilon from the truth.

    Relatively where the true value, or the `scale` of an entry where one is given, is a normal
    number of the dtype, else within the smallest normal number. Too large for the dtype: infinite.
    """
    if isinstance(true, list):
        assert len(actual) == len(true)
        scales = [None] * len(true) if scale is None else scale
        parts = zip(actual, true, scales, strict=True)
        found = [(i, misses(a, t, dtype, s, units)) for i, (a, t, s) in enumerate(parts)]
        return [f"[{i}]{text}" for i, texts in found for text in texts]
    info = torch.finfo(dtype)
    size = abs(true if scale is None else scale)
    if abs(true) > info.max:
        return [] if mpmath.isinf(actual) else [f" is {float(actual):.4g}, not infinite"]
    if size < info.tiny:
        good = abs(actual - true) <= info.tiny
    else:
        good = abs(actual - true) <= units * info.eps * size
    if good:
        return []  # never with a NaN
    error = float(abs(actual - true) / size / info.eps) if size else float("inf")
    return [f" is {mpmath.nstr(actual, 6)}, not {mpmath.nstr(true, 6)}: {error:.3g} epsilon"]


def smallest_eigenvalue(matrix: list):
    with mpmath.workdps(60):
        return min(mpmath.eigsy(mpmath.matrix(matrix), eigvals_only=True))


def indefinite(matrix: list, dtype: torch.dtype) -> list[str]:
    """Whether an eigenvalue is more negative than rounding may make it."""
    least, largest = smallest_eigenvalue(matrix), max(r[i] for i, r in enumerate(matrix))
    if least >= -4 * torch.finfo(dtype).eps * largest:
        return []
    return [f" has an eigenvalue of {float(least):.3g}, its largest entry is {float(largest):.3g}"]


def report(wrong: dict[str, list[str]]) -> None:
    """Fail with the first cases, by name, if there are any."""
    lines = [f"{name}: {text}" for name, texts in wrong.items() for text in texts]
    assert not lines, f"{len(lines)} entries are off:\n" + "\n".join(lines[:20])
