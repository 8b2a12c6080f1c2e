"""Which source files stand behind a cell, found by reading imports, and their hash.

The module that defines the cell's function counts, and with it every module of natgrad, or of the
folder that holds the cell's module, that it imports, also inside functions, and what those import.
A package counts when names are taken from it; merely passing through it does not. The laboratory
itself does not count: it knows no mathematics. Other packages do not either: of those only torch's
version is part of a result's name. Imports by `importlib` are not seen.
"""

import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from natgrad._checksum import digest
from natgrad.errors import InvalidInputError

_PACKAGE = "natgrad"
_NATGRAD = Path(__file__).parents[3]  # the folder that holds the package
_INSTALLED = {
    Path(path).resolve()
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
}


def fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of the sources behind a function.

    Example:
        >>> from natgrad.lab.cell import canonical, find
        >>> fingerprint(canonical) == fingerprint(find)  # of one module
        True
    """
    files = closure(function)
    hashes = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return digest(*(text for pair in hashes.items() for text in pair))


def closure(function: Callable[..., Any]) -> dict[str, Path]:
    """Return the files behind a function by the names of their modules, sorted.

    Raises:
        InvalidInputError: If the function was not defined in a file.
    """
    name, file = _origin(function)
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    found = {name: file}
    ahead = [name]
    while ahead:
        current = ahead.pop()
        for target in _targets(current, found[current], root, own=name.partition(".")[0]):
            path = _locate(target, root)
            if target not in found and path is not None:
                found[target] = path
                ahead.append(target)
    return dict(sorted(found.items()))


def _origin(function: Callable[..., Any]) -> tuple[str, Path]:
    """Return the name and the file of the module that defines a function."""
    name = function.__module__
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        raise InvalidInputError(
            f"{function.__qualname__} was not defined in a file, so its results could not be told "
            "from those of another version. Move it to a module."
        )
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = spec.name if spec else Path(file).stem
    return name, Path(file).resolve()


def _targets(name: str, file: Path, root: Path, own: str) -> Iterator[str]:
    """Yield the modules that a module imports, of those that count."""
    for target, member in _resolved(name, file):
        top = target.partition(".")[0]
        if top not in (_PACKAGE, own) and not _beside(top, root):
            continue
        path, inner = _locate(target, root), f"{target}.{member}"
        if f"{target}.".startswith(f"{_PACKAGE}.lab.") or inner == f"{_PACKAGE}.lab":
            continue
        if member and _locate(inner, root) is not None:
            yield inner
            if path is not None and not _defines(target, path, member):
                continue  # `from natgrad import limits` takes a module, and no name, from natgrad
        yield target


def _resolved(name: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, member) of each import of a module; no member for `import module`."""
    package = (name if file.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    for level, module, member in _imports(file.read_bytes()):
        base = package[: len(package) - level + 1] if level else []
        yield ".".join([*base, *([module] if module else [])]), member


def _defines(package: str, file: Path, name: str) -> bool:
    """Tell whether a package's own file may give a name another meaning than its module's."""
    taken = {member: target for target, member in _resolved(package, file)}
    return taken.get(name, taken.get("*", package)) != package or name in _names(file.read_bytes())


def _beside(top: str, root: Path) -> bool:
    """Return whether a module is one of those written together with the cell's."""
    if root in _INSTALLED:  # where every package lies beside every other
        return False
    return (root / top).is_dir() or (root / f"{top}.py").is_file()


def _locate(name: str, root: Path) -> Path | None:
    """Return the file of a module below natgrad or below the root, if there is one."""
    top, *rest = name.split(".")
    base = (_NATGRAD if top == _PACKAGE else root).joinpath(top, *rest)
    for path in (base / "__init__.py", base.with_name(base.name + ".py")):
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=1024)
def _imports(source: bytes) -> list[tuple[int, str, str]]:
    """Return (level, module, member) of each import; no member for `import module`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append((0, alias.name, ""))
                if alias.asname is None:  # binds the top, and with it all that the top offers
                    found.append((0, alias.name.partition(".")[0], ""))
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names]
    return found


@lru_cache(maxsize=1024)
def _names(source: bytes) -> frozenset[str]:
    """Return the names that a module defines itself, imports aside."""
    tree = ast.parse(source)
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, named)}
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(found | {node.id for node in stored if isinstance(node.ctx, ast.Store)})
