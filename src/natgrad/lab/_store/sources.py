"""The source files that a cell depends on, found by reading imports, and their hash.

These are the module that defines the cell's function, the modules that it imports (also inside
functions), the modules that those import, and so on. Only modules of natgrad, or of the folder that
holds the cell's module, count. A package counts when names are imported from it, but not when it is
only a part of a module's path. The laboratory does not count, because it contains no mathematics.
Of other packages, only the version of torch is part of a result's name. Imports by `importlib` are
not detected.
"""

import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from natgrad import errors
from natgrad._checksum import digest
from natgrad.errors import InvalidInputError

_PACKAGE = "natgrad"
_NATGRAD = Path(errors.__file__).parents[1]  # the folder that holds the package
_INSTALLED = {
    Path(path).resolve()
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
}


def fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of the sources that a function depends on.

    Example:
        >>> from natgrad.lab.cell import canonical, find
        >>> fingerprint(canonical) == fingerprint(find)  # of one module
        True
    """
    files = closure(function)
    hashes = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return digest(*(text for pair in hashes.items() for text in pair))


def closure(function: Callable[..., Any]) -> dict[str, Path]:
    """Return the files that a function depends on, by module name, sorted.

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
            f"{function.__qualname__} was not defined in a file, so its results cannot be told "
            "apart from those of another version. Move it to a module."
        )
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = spec.name if spec else Path(file).stem
    return name, Path(file).resolve()


def _targets(name: str, file: Path, root: Path, own: str) -> Iterator[str]:
    """Yield the modules that count among those that a module imports."""
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
                continue  # `from natgrad import limits` imports a module, not a name
        yield target


def _resolved(name: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, member) of each import; the member is empty for `import module`."""
    package = (name if file.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    for level, module, member in _imports(file.read_bytes()):
        base = package[: len(package) - level + 1] if level else []
        yield ".".join([*base, *([module] if module else [])]), member


def _defines(package: str, file: Path, name: str) -> bool:
    """Return whether a package's file may define a name that is also the name of a module."""
    taken = {member: target for target, member in _resolved(package, file)}
    return taken.get(name, taken.get("*", package)) != package or name in _names(file.read_bytes())


def _beside(top: str, root: Path) -> bool:
    """Return whether a module lies in the same folder as the cell's."""
    if root in _INSTALLED:  # the folder that holds all packages
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
    """Return (level, module, member) of each import; the member is empty for `import module`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append((0, alias.name, ""))
                if alias.asname is None:  # this binds the top package with all its names
                    found.append((0, alias.name.partition(".")[0], ""))
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names]
    return found


@lru_cache(maxsize=1024)
def _names(source: bytes) -> frozenset[str]:
    """Return the names that a module defines itself, without imports."""
    tree = ast.parse(source)
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, named)}
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(found | {node.id for node in stored if isinstance(node.ctx, ast.Store)})
