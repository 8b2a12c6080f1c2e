"""All errors that natgrad raises on purpose.

Each message says what was expected, what was given, and what to try. All classes derive from
`NatgradError`; most also derive from the built-in error that a caller would expect.
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
    """Tensors are on different devices."""


class LabelError(InvalidInputError):
    """Labels are outside the likelihood's range."""


class NonFiniteError(InvalidInputError):
    """A tensor holds NaN or an infinity."""


class SaddlePointError(InvalidInputError):
    """All factors are zero: every direction has zero velocity in hypothesis space."""


class ModuleError(InvalidInputError):
    """A `torch.nn.Module` cannot be differentiated as a pure function of its parameters."""


class RankDeficientError(NatgradError, ArithmeticError):
    """The rank of a matrix is too low for the requested answer."""


class VelocityOverflowError(NatgradError, OverflowError):
    """The true natural velocity is larger than the dtype can hold."""


class ConvergenceError(NatgradError, ArithmeticError):
    """An iterative solver did not reach its tolerance."""


class UnsupportedError(NatgradError, NotImplementedError):
    """natgrad has no exact method for a combination of arguments."""
