"""Every error natgrad raises on purpose.

Each message says what was expected, what came, and what to try. All derive from
`NatgradError`; most also derive from the built-in error a caller would expect.
"""

__all__ = [
    "ConvergenceError",
    "DeviceError",
    "DtypeError",
    "InvalidInputError",
    "LabelError",
    "ModuleError",
    "NatgradError",
    "NonFiniteError",
    "RankDeficientError",
    "SaddlePointError",
    "ShapeError",
    "UnsupportedError",
    "VelocityOverflowError",
]


class NatgradError(Exception):
    """Base of all errors raised by natgrad."""


class InvalidInputError(NatgradError, ValueError):
    """An argument has the wrong value."""


class ShapeError(InvalidInputError):
    """A tensor has the wrong shape, or a batch is empty."""


class DtypeError(InvalidInputError, TypeError):
    """A tensor has the wrong dtype, or an argument the wrong type."""


class DeviceError(InvalidInputError):
    """Tensors live on different devices."""


class LabelError(InvalidInputError):
    """Labels are outside the likelihood's range."""


class NonFiniteError(InvalidInputError):
    """A tensor holds NaN or an infinity."""


class SaddlePointError(InvalidInputError):
    """All factors are zero: every direction has zero velocity in hypothesis space."""


class ModuleError(InvalidInputError):
    """A `torch.nn.Module` cannot be differentiated as a pure function of its parameters."""


class RankDeficientError(NatgradError, ArithmeticError):
    """A matrix lacks the rank that the requested answer needs."""


class VelocityOverflowError(NatgradError, OverflowError):
    """The true natural velocity is larger than the dtype can hold."""


class ConvergenceError(NatgradError, ArithmeticError):
    """An iterative solver did not reach its tolerance."""


class UnsupportedError(NatgradError, NotImplementedError):
    """A combination of arguments has no exact method here."""
