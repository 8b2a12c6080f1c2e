"""The arrays behind a figure: named axes, coordinates, one file without pickle, and CSV."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from natgrad._checks import dense, describe, instance, nearest
from natgrad._checks import path as as_path
from natgrad._checksum import DTYPES, checksum, raw, verify
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.lab.failures import StoreError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Arrays", "Coordinate"]

_FORMAT = "natgrad arrays 2"
_WITHOUT_CHECKSUM = "natgrad arrays 1"  # the format of natgrad 0.1

Coordinate: TypeAlias = "Sequence[str] | Sequence[int] | Sequence[float] | npt.NDArray[Any]"


class Arrays:
    """Arrays by name; each axis has a name, and may have coordinates.

    Example:
        >>> import numpy as np
        >>> arrays = Arrays(n=[250, 500], method=["EGD", "NGD"])
        >>> arrays.add("accuracy", np.array([[0.6, 0.6], [0.7, 0.65]]), "n", "method")
        >>> arrays["accuracy"][1, 0]
        np.float64(0.7)
        >>> print(arrays.csv("accuracy"))
        n,method,accuracy
        250,EGD,0.6
        250,NGD,0.6
        500,EGD,0.7
        500,NGD,0.65
    """

    def __init__(self, **coordinates: Coordinate) -> None:
        self.coordinates: dict[str, list[Any]] = {
            name: _coordinate(name, values) for name, values in coordinates.items()
        }
        self.dims: dict[str, tuple[str, ...]] = {}
        self._values: dict[str, npt.NDArray[Any]] = {}

    def add(self, name: str, values: "npt.ArrayLike", *dims: str) -> None:
        """Add an array under a name, with one name for each of its axes.

        Raises:
            ShapeError: If axes and names do not match.
            DtypeError: If the values are not real numbers or booleans, or a name is not a string.
        """
        for text in (name, *dims):
            instance(text, "the name of an array or an axis", str)
        array = _array(name, values)
        if array.dtype.str[1:] not in DTYPES:
            raise DtypeError(f"{name} must hold real numbers or booleans, not {array.dtype}.")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.ndim != len(dims):
            raise ShapeError(f"{name} has {array.ndim} axes, but got {len(dims)} names: {dims}.")
        for dim, size in zip(dims, array.shape, strict=True):
            known = self.coordinates.get(dim)
            if known is not None and len(known) != size:
                raise ShapeError(
                    f"axis {dim} has {len(known)} coordinates, but {name} has {size} along it."
                )
        self._values[name], self.dims[name] = array, dims

    def __getitem__(self, name: str) -> "npt.NDArray[Any]":
        if not isinstance(name, str) or name not in self._values:
            raise InvalidInputError(
                f"there is no array {describe(name)}. {nearest(str(name), self._values)}"
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values))  # the order of the file, whatever the order of `add`

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._values

    def save(self, path: Path) -> None:
        """Write one safetensors file; `load` reads it back bit for bit.

        Equal arrays give equal files, whatever the order in which they were added.

        Raises:
            StoreError: If the file cannot be written.
        """
        import numpy as np
        from safetensors.numpy import save_file

        path = as_path(path, "the path")
        header = {"format": _FORMAT, "coordinates": self.coordinates, "dims": self.dims}
        tensors = {name: np.asarray(self[name], order="C") for name in self}
        header["checksum"] = checksum(header, raw(tensors))
        # A single entry, because safetensors writes several in an order that changes between files.
        metadata = {"natgrad": json.dumps(header, sort_keys=True)}
        try:
            save_file(tensors, str(path), metadata=metadata)
        except Exception as error:  # safetensors' own class, also for a full disk
            raise StoreError(f"cannot write the arrays to {path}: {error}") from error

    @classmethod
    def load(cls, path: Path) -> "Arrays":
        """Read a file that `save` wrote.

        Files of natgrad 0.1 have no checksum. All others must match theirs.

        Raises:
            InvalidInputError: If `save` did not write the file, or a bit of it has changed.
        """
        from safetensors import safe_open

        path = as_path(path, "the path")
        try:
            with safe_open(str(path), framework="numpy") as file:
                header = json.loads((file.metadata() or {})["natgrad"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            verify(header, raw(tensors), now=_FORMAT, before=_WITHOUT_CHECKSUM)
            arrays = cls(**header["coordinates"])
            for name, dims in header["dims"].items():
                arrays.add(name, tensors[name], *dims)
        except Exception as error:  # safetensors does not export its own class
            raise InvalidInputError(
                f"{path} cannot be read as arrays of a figure: {type(error).__name__}: {error}"
            ) from error
        return arrays

    def csv(self, name: str) -> str:
        """Return one array as text: a line per element, which starts with its coordinates."""
        values, dims = self[name], self.dims[name]
        axes = [
            self.coordinates.get(dim, range(size))
            for dim, size in zip(dims, values.shape, strict=True)
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*dims, name])
        for labels, value in zip(product(*axes), values.ravel().tolist(), strict=True):
            writer.writerow([*labels, value])
        return text.getvalue()


def _array(name: str, values: Any) -> "npt.NDArray[Any]":
    import numpy as np
    from torch import Tensor

    try:
        if isinstance(values, Tensor):
            values = dense(values, name).detach().cpu().numpy()
        return np.array(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(f"{name} must be an array, but is {describe(values)}.") from error


def _coordinate(name: str, values: Any) -> list[Any]:
    array = _array(f"the coordinates of {name}", values)
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise DtypeError(
            f"the coordinates of {name} must be a sequence of numbers or strings, but are "
            f"{describe(values)}."
        )
    return list(array.tolist())
