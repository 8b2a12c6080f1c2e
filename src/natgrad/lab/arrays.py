"""The arrays behind a figure: named axes, coordinates, one file without pickle, CSV for others."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

from natgrad.errors import InvalidInputError, ShapeError

_FORMAT = "natgrad arrays 1"

Coordinate = Sequence[str] | Sequence[int] | Sequence[float] | npt.NDArray[Any]


class Arrays:
    """Arrays by name; each axis has a name, and may have coordinates.

    Example:
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
            name: np.asarray(values).tolist() for name, values in coordinates.items()
        }
        self.dims: dict[str, tuple[str, ...]] = {}
        self._values: dict[str, npt.NDArray[Any]] = {}

    def add(self, name: str, values: npt.ArrayLike, *dims: str) -> None:
        """Keep an array under a name, one name of an axis for each of its axes.

        Raises:
            ShapeError: If axes and names do not match.
        """
        array = np.array(values)
        if array.ndim != len(dims):
            raise ShapeError(f"{name} has {array.ndim} axes, but {len(dims)} names came: {dims}.")
        for dim, size in zip(dims, array.shape, strict=True):
            known = self.coordinates.get(dim)
            if known is not None and len(known) != size:
                raise ShapeError(
                    f"axis {dim} has {len(known)} coordinates, but {name} has {size} along it."
                )
        self._values[name], self.dims[name] = array, dims

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def save(self, path: Path) -> None:
        """Write one safetensors file; `load` gives it back bit for bit."""
        header = {"format": _FORMAT, "coordinates": self.coordinates, "dims": self.dims}
        tensors = {name: np.asarray(a, order="C") for name, a in self._values.items()}
        # One entry: safetensors writes several in an order that changes from file to file.
        metadata = {"natgrad": json.dumps(header, ensure_ascii=False)}
        save_file(tensors, str(path), metadata=metadata)

    @classmethod
    def load(cls, path: Path) -> "Arrays":
        """Read a file that `save` wrote.

        Raises:
            InvalidInputError: If the file is no such file.
        """
        try:
            with safe_open(str(path), framework="numpy") as file:
                header = json.loads((file.metadata() or {})["natgrad"])
                if header["format"] != _FORMAT:
                    raise ValueError(f"its format is {header['format']!r}, not {_FORMAT!r}")
                arrays = cls(**header["coordinates"])
                for name, dims in header["dims"].items():
                    arrays.add(name, file.get_tensor(name), *dims)
        except Exception as error:  # safetensors raises a class of its own that it does not export
            raise InvalidInputError(
                f"{path} cannot be read as arrays of a figure: {type(error).__name__}: {error}"
            ) from error
        return arrays

    def csv(self, name: str) -> str:
        """Return one array as text, a line for each element, after the coordinates of its axes."""
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
