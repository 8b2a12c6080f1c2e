"""natgrad: exact natural gradients, and the solutions they pick."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad import data, diagnostics, limits, reference, stopping
    from natgrad.directions import (
        Fisher,
        GaussianInputs,
        LayerShares,
        euclidean,
        natural,
        natural_ntk,
        ntk,
    )
    from natgrad.experiments.compare import compare
    from natgrad.experiments.complete import complete
    from natgrad.flows import Trajectory, descend, integrate
    from natgrad.likelihoods import Bernoulli, Categorical, Gaussian
    from natgrad.optim import NGD, GaussNewton, diagnose
    from natgrad.parametrizations import DeepLinear, Diagonal, Direct, MatrixProduct, Network

__version__ = "0.2.0"

__all__ = [
    "NGD",
    "Bernoulli",
    "Categorical",
    "DeepLinear",
    "Diagonal",
    "Direct",
    "Fisher",
    "GaussNewton",
    "Gaussian",
    "GaussianInputs",
    "LayerShares",
    "MatrixProduct",
    "Network",
    "Trajectory",
    "compare",
    "complete",
    "data",
    "descend",
    "diagnose",
    "diagnostics",
    "euclidean",
    "integrate",
    "limits",
    "natural",
    "natural_ntk",
    "ntk",
    "reference",
    "stopping",
]

# Names are imported on first use, so that `natgrad --help` does not wait for torch.
_HOMES = {
    "directions": (
        "Fisher",
        "GaussianInputs",
        "LayerShares",
        "euclidean",
        "natural",
        "natural_ntk",
        "ntk",
    ),
    "experiments.compare": ("compare",),
    "experiments.complete": ("complete",),
    "flows": ("Trajectory", "descend", "integrate"),
    "likelihoods": ("Bernoulli", "Categorical", "Gaussian"),
    "optim": ("NGD", "GaussNewton", "diagnose"),
    "parametrizations": ("DeepLinear", "Diagonal", "Direct", "MatrixProduct", "Network"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("data", "diagnostics", "limits", "reference", "stopping")
_MOVED = {
    name: f"natgrad.stopping.{name}"
    for name in (
        "direction_settled",
        "loss_below",
        "margin_above",
        "steps_reached",
        "time_reached",
        "wall_clock",
    )
}


def __getattr__(name: str) -> Any:
    """Return a public name, imported now."""
    if name in _HOME:
        if _HOME[name].startswith("experiments.") and (refuse := _without_lab()):
            return refuse
        value = getattr(import_module(f"natgrad.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"natgrad.{name}")
    if name in _MOVED:
        import warnings

        warnings.warn(
            f"natgrad.{name} is now {_MOVED[name]}; version 0.3 removes the old name.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module("natgrad.stopping"), name)
    import difflib

    # Ignore case: `ngd` is a likely first guess for `NGD`.
    known = {one.lower(): one for one in __all__}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f". Did you mean {known[near[0]]!r}?" if near else ""
    raise AttributeError(f"module 'natgrad' has no attribute {name!r}{hint}")


def _without_lab() -> Callable[..., Any] | None:
    """Return a stand-in for a function of the laboratory whose packages are missing.

    The name can still be imported, also by `from natgrad import *`; a call says what to install.
    """
    from natgrad.lab._extra import missing, require_lab

    def refuse(*arguments: Any, **options: Any) -> None:
        """Raise the error that says what to install."""
        require_lab()

    return refuse if missing() else None


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
