"""A cell: a pure function of a config, with a name by which any process can import it."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from natgrad._checks import describe
from natgrad.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Cell", "Result", "canonical", "find"]

Result = Mapping[str, "npt.NDArray[Any]"]
"""What a cell returns: arrays by name."""


@dataclass(frozen=True)
class Cell:
    """One unit of work of a sweep.

    Attributes:
        function: A function at the top of a module that takes the config and returns arrays by
            name. It must depend on nothing else: equal configs give equal bits.
        config: A frozen dataclass of numbers, strings, booleans, None, tuples of these, and other
            such dataclasses.
        label: A few words that describe the cell in progress and failures.
        data: If not None, the function's second argument: arrays too large for a config, such as a
            table in memory. It is sent with the cell to the process that runs it. The config must
            identify it by its contents, for instance by a hash: results are stored by config.

    Example:
        >>> import numpy as np
        >>> @dataclass(frozen=True)
        ... class Square:
        ...     x: float
        >>> def square(config):
        ...     return {"y": np.asarray(config.x**2)}
        >>> canonical(Cell(square, Square(x=3.0), "3²").config)
        '{"x":3.0}'
    """

    function: Callable[..., Result]
    config: Any
    label: str = ""
    data: Any = None

    @property
    def name(self) -> str:
        """Return the module and the function, joined by a colon; workers import it by that name."""
        module = self.function.__module__
        if module == "__main__":  # run by python -m, but workers import it by its real name
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            module = spec.name if spec else module
        return f"{module}:{self.function.__qualname__}"

    def run(self) -> Result:
        """Return the function's result for the config, and for the data if there are any."""
        return self.function(self.config, *(() if self.data is None else (self.data,)))


def canonical(config: Any) -> str:
    """Return the canonical JSON text of a config: sorted keys, floats with shortest exact digits.

    Raises:
        InvalidInputError: If it is not a dataclass, or holds a value of another type.

    Example:
        >>> @dataclass(frozen=True)
        ... class Fit:
        ...     seed: int = 0
        ...     depths: tuple[int, ...] = (1, 4)
        >>> canonical(Fit())
        '{"depths":[1,4],"seed":0}'
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise InvalidInputError(f"a config is an instance of a dataclass, not {describe(config)}.")
    try:
        return json.dumps(_plain(config), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError as error:
        raise InvalidInputError("a config is nested too deeply.") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}  # JSON has no infinity
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidInputError(
        "a config holds numbers, strings, booleans, None and tuples of these, not "
        f"{describe(value)}."
    )


def find(name: str) -> Callable[..., Result]:
    """Return the function with this `Cell.name`.

    Raises:
        InvalidInputError: If there is none.

    Example:
        >>> find("natgrad.lab.cell:canonical").__name__
        'canonical'
    """
    try:
        module, _, function = name.partition(":")
        found: Callable[..., Result] = getattr(import_module(module), function)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(f"there is no function {describe(name)}.") from error
    return found
