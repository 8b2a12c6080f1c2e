"""Checks at the border of the diagnostics."""

from torch import Tensor

from natgrad.errors import DtypeError, LabelError, ShapeError


def check_real(t: Tensor, name: str, ndim: int = 1) -> None:
    """Raise unless t is a floating-point tensor of at least `ndim` dimensions."""
    if not isinstance(t, Tensor) or not t.is_floating_point():
        kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
        raise DtypeError(f"{name} must be a floating-point tensor, but is {kind}.")
    if t.ndim < ndim or t.shape[-1] == 0:
        raise ShapeError(
            f"{name} must have at least {ndim} dimensions and not be empty, but has shape "
            f"{tuple(t.shape)}."
        )


def check_same_length(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Raise unless the last dimensions agree."""
    for t, name in zip((a, b), names, strict=True):
        check_real(t, name)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"{names[0]} and {names[1]} must have equal last dimensions, but have shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}."
        )


def check_labelled(x: Tensor, y: Tensor) -> None:
    """Raise unless x is `(n, d)` and y holds n labels −1 and +1."""
    check_real(x, "X", 2)
    if not isinstance(y, Tensor):
        raise DtypeError(f"labels must be a torch.Tensor, but got {type(y).__name__}.")
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ShapeError(
            f"X must have shape (n, d) and y (n,), but have {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if not bool((y.abs() == 1).all()):
        wrong = y[y.abs() != 1][0].item()
        raise LabelError(f"labels must be −1 or +1, but one is {wrong:g}.")
