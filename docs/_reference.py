"""Write the pages of the API reference, one per room, from what the package exports."""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import _typeset

import natgrad

# Applications: their interface is the command line.
APPLICATIONS = {"cli", "experiments", "verify", "playground"}


def rooms() -> list[str]:
    """Return the public rooms below the package, by name."""
    found = (module.name for module in pkgutil.iter_modules(natgrad.__path__))
    return sorted(n for n in found if not n.startswith("_") and n not in APPLICATIONS)


def modules(room: str) -> list[str]:
    """Return a room and the public modules in it, by dotted name, the room first."""
    name = f"natgrad.{room}"
    path = getattr(importlib.import_module(name), "__path__", [])
    inner = (module.name for module in pkgutil.walk_packages(path, f"{name}."))
    return [name, *(m for m in inner if not any(p.startswith("_") for p in m.split(".")))]


def exports(module: str) -> Iterator[tuple[str, Any]]:
    """Yield what a module exports and is not itself a module."""
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", ()):
        if not inspect.ismodule(getattr(found, name)):
            yield name, getattr(found, name)


def documented() -> dict[int, str]:
    """Return where each exported object is documented: the first, shortest name below a room."""
    places: dict[int, str] = {}
    for room in rooms():
        for module in modules(room):
            for name, value in exports(module):
                places.setdefault(id(value), f"{module}.{name}")
    for name, value in exports("natgrad"):  # what the applications lend to the package
        places.setdefault(id(value), f"natgrad.{name}")
    return places


def write(folder: Path) -> None:
    """Write the pages, and remove those of rooms that are gone."""
    folder.mkdir(exist_ok=True)
    pages = {f"{room}.rst": _page(room, documented()) for room in rooms()}
    pages["index.rst"] = _index(documented())
    for path in folder.glob("*.rst"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _page(room: str, places: dict[int, str]) -> str:
    lines = []
    for k, module in enumerate(modules(room)):
        title = f"natgrad.{room}" if k == 0 else module.removeprefix("natgrad.")
        lines += [title, ("=" if k == 0 else "-") * len(title), ""]
        lines += [f".. automodule:: {module}", "   :no-members:", ""]
        for name, value in exports(module):
            if places[id(value)] == f"{module}.{name}":
                lines += _entry(module, name, value)
    return "\n".join(lines)


def _entry(module: str, name: str, value: Any) -> list[str]:
    if isinstance(value, types.GenericAlias):  # its docstring is that of the class behind it
        place = f"   :module: {module}"
        return [f".. py:data:: {name}", place, "", f"   Short for ``{value}``.", ""]
    if inspect.isclass(value):
        return [f".. autoclass:: {module}.{name}", "   :members:", ""]
    kind = "function" if inspect.isroutine(value) else "data"
    return [f".. auto{kind}:: {module}.{name}", ""]


def _index(places: dict[int, str]) -> str:
    names = sorted(exports("natgrad"), key=lambda export: export[0].lower())
    here = [(name, value) for name, value in names if places[id(value)] == f"natgrad.{name}"]
    below = [(room, importlib.import_module(f"natgrad.{room}")) for room in rooms()]
    return "\n".join(
        [
            "Reference",
            "=========",
            "",
            "Every public name, from the docstrings. Most people need those at the top of the "
            "package, ``import natgrad as ng``:",
            "",
            *_table((f":py:obj:`ng.{name} <{places[id(value)]}>`", value) for name, value in names),
            "All others are in these modules:",
            "",
            *_table((f":doc:`natgrad.{room} <{room}>`", module) for room, module in below),
            ".. toctree::",
            "   :hidden:",
            "",
            *(f"   {room}" for room in rooms()),
            "",
            *(line for name, value in here for line in _entry("natgrad", name, value)),
        ]
    )


def _table(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Return a table of links and the first lines of docstrings."""
    lines = [".. list-table::", "   :widths: auto", ""]
    for link, value in rows:
        first = (inspect.getdoc(value) or "").partition("\n")[0]
        lines += [f"   * - {link}", f"     - {_typeset.escaped(first)}"]
    return [*lines, ""]
