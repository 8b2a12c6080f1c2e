"""Imports point one way. The tables below are the architecture; the code must follow them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import natgrad

ROOT = Path(natgrad.__file__).parent

# From left to right: a module imports only from its own layer and those to the left. Names in one
# set are in the same layer and do not import each other.
LAYERS: list[set[str]] = [
    {"errors", "_checksum", "_warn", "playground"},
    {"_checks", "_renamed", "_show"},
    {"_named"},
    {"linalg", "data", "lab"},
    {"likelihoods"},
    {"parametrizations", "reference"},
    {"directions", "optim", "stopping"},
    {"flows"},
    {"diagnostics", "limits"},
    {"fits"},
    {"experiments", "sklearn", "verify"},
    {"cli"},
    {"__main__"},
]

# Modules with a list of their own, narrower than the layers.
ONLY: dict[str, set[str]] = {
    "errors": set(),
    "_checksum": set(),
    "_warn": set(),
    "playground": set(),
    "_checks": {"errors"},
    "_named": {"errors", "_checks"},
    "_renamed": {"errors"},
    "_show": {"errors"},
    "linalg": {"errors", "_checks", "_named"},
    "data": {"errors", "_checks", "_named"},
    "lab": {"errors", "_checks", "_named", "_checksum"},
    "optim": {
        "errors",
        "_checks",
        "_named",
        "_show",
        "_warn",
        "linalg",
        "likelihoods",
        "parametrizations",
    },
    "reference": {"errors", "_checks", "_named", "likelihoods"},
    "limits": {
        "errors",
        "_checks",
        "_named",
        "_show",
        "_renamed",
        "linalg",
        "likelihoods",
        "parametrizations",
    },
    "diagnostics": {"errors", "_checks", "_named", "linalg", "likelihoods", "parametrizations"},
    "fits": {
        "errors",
        "_checks",
        "likelihoods",
        "parametrizations",
        "directions",
        "optim",
        "stopping",
        "flows",
        "limits",
    },
}

# Who may import these, besides tests and the package's own __init__.
IMPORTED_BY: dict[str, set[str]] = {"reference": {"verify"}}

# The package's own __init__ gathers names for `import natgrad`; only these may use it.
MAY_IMPORT_THE_PACKAGE: set[str] = {"cli", "__main__", "verify"}

PACKAGE = "natgrad"


def modules() -> dict[str, Path]:
    """Dotted names below the package, `__init__` of a sub-package as the sub-package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
        found[".".join(parts)] = path
    return found


def imports(name: str, path: Path, *, types: bool = True) -> Iterator[str]:
    """Yield dotted names below the package that a module imports, "" for the package itself.

    Without `types`, imports under `if TYPE_CHECKING` do not count: nothing runs them.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [] if name == "__init__" else package
    tree = ast.parse(path.read_text())
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            node.body = [ast.Pass()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield alias.name.removeprefix(PACKAGE).removeprefix(".")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                source = ".".join([*base, *([node.module] if node.module else [])])
            elif node.module and node.module.split(".")[0] == PACKAGE:
                source = node.module.removeprefix(PACKAGE).removeprefix(".")
            else:
                continue
            for alias in node.names:
                dotted = f"{source}.{alias.name}" if source else alias.name
                yield dotted if dotted in MODULES else source


MODULES = modules()
IMPORTS = {name: set(imports(name, path)) for name, path in MODULES.items()}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def top(name: str) -> str:
    return name.split(".")[0]


def test_the_reader_of_imports_sees_them():
    assert "linalg._precision" in IMPORTS["linalg._cholesky"]
    assert "reference" in IMPORTS["__init__"]
    assert "verify" in {top(target) for target in IMPORTS["cli._verify"]}
    assert "lab.engines._dask" in IMPORTS["lab.engines"]  # inside a function


def arrows() -> Iterator[tuple[str, str]]:
    """Yield every import of one module by another, the package's own `__init__` left out."""
    for name, used in IMPORTS.items():
        if name != "__init__":
            yield from ((name, target) for target in sorted(used - {"", "__init__"}))


def test_every_module_has_a_layer():
    assert {top(name) for name in MODULES} - {"__init__"} <= set(RANK)


def test_no_module_imports_from_a_layer_to_its_right():
    wrong = [
        f"{name} imports {target}"
        for name, target in arrows()
        if top(target) != top(name) and not RANK[top(target)] < RANK[top(name)]
    ]
    assert not wrong


def test_the_whole_package_is_imported_only_at_the_border():
    users = {name for name, used in IMPORTS.items() if "" in used} - {"__init__"}
    assert not {name for name in users if top(name) not in MAY_IMPORT_THE_PACKAGE}


def test_modules_with_narrow_imports():
    assert set(map(top, MODULES)) >= set(ONLY)
    wrong = [
        f"{name} imports {target or PACKAGE}"
        for name, used in IMPORTS.items()
        for target in used
        if top(name) in ONLY and top(target) not in ONLY[top(name)] | {top(name)}
    ]
    assert not wrong


def test_modules_that_few_may_import():
    for target, allowed in IMPORTED_BY.items():
        users = {top(name) for name, used in IMPORTS.items() if target in map(top, used)}
        assert users - {"__init__", target} <= allowed, target


def test_no_cycles_among_modules():
    """Follow imports of single modules; a sub-package stands for its `__init__`."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        for target in sorted(imports(name, MODULES[name], types=False)):
            if target in MODULES:
                visit(target, (*trail, name))
        done.add(name)

    for name in MODULES:
        visit(name, ())


def test_no_cycles_among_sub_packages():
    edges = {
        (top(name), top(target))
        for name, used in IMPORTS.items()
        if name != "__init__"
        for target in used
        if target and top(target) != top(name)
    }
    assert not {(a, b) for a, b in edges if (b, a) in edges}
    order = sorted({a for edge in edges for a in edge}, key=RANK.__getitem__)
    assert all(order.index(b) < order.index(a) for a, b in edges)
