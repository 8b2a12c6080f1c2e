"""Turn the names in the paper map into links: to the reference, to identities, to tests.

The links show the last words of a name alone, so that five columns fit on a page.
"""

import importlib
import inspect
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import _reference

from natgrad.verify import identities

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"[a-z_]\w*(\.\w+)+")


def linked(text: str) -> str:
    """Return the map with every name in its tables as a link."""
    places = _reference.documented()

    def link(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("tests/"):
            return f"{{doc}}`{Path(name).name} <sources/{_slug(name)}>`"
        if name in {claim.id for claim in identities()}:
            return f"{{ref}}`{name} <{_label(name)}>`"
        return _to_function(name, places) if _NAME.fullmatch(name) else found[0]

    rows = text.splitlines(keepends=True)
    return "".join(re.sub(r"`([^`]+)`", link, x) if x.startswith("|") else x for x in rows)


def write(folder: Path) -> None:
    """Write a page with the code of every identity, and one for each file that the map names."""
    (folder / "identities.rst").write_text(_identities())
    sources = folder / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    wanted = set(re.findall(r"<sources/([^>]+)>", linked((folder / "paper_map.md").read_text())))
    for slug in sorted(wanted):
        (sources / f"{slug}.rst").write_text(_listing(f"{slug.replace('-', '/')}.py"))


def _to_function(name: str, places: dict[int, str]) -> str:
    """Return a link to the reference, to the gallery for a figure, or else to the source."""
    found = _resolve(name)
    if found is None:
        return f"`{name}`"
    module, owner, value, member = found
    short = name if owner is value else f"{owner.__name__}.{member}"
    short = member if inspect.ismodule(owner) else short
    if (figure := getattr(value, "folder", None)) and name.endswith("EXPERIMENT"):
        return f"{{ref}}`{value.name} <figure-{figure}>`"
    if id(value) in places:
        return f"{{py:obj}}`{short} <{places[id(value)]}>`"
    if id(owner) in places:
        documented = member in vars(owner) and getattr(vars(owner)[member], "__doc__", None)
        inner = f".{member}" if documented else ""
        return f"{{py:obj}}`{short} <{places[id(owner)]}{inner}>`"
    return f"{{doc}}`{short} <sources/{_slug(_file(module))}>`"


def _resolve(name: str) -> tuple[Any, Any, Any, str] | None:
    """Return module, owner (a class or the module), value and last word of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(["natgrad", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        owner = value = module
        for part in parts[cut:]:
            owner, value = value, getattr(value, part)
        return module, owner, value, parts[-1]
    return None


def _identities() -> str:
    lines = [
        "Identities",
        "==========",
        "",
        "Every identity that ``natgrad verify`` checks: the statement, and the code that measures "
        "by how much it fails. A *counter* shows that the check can fail: it measures a statement "
        "that is wrong.",
        "",
    ]
    for claim in identities():
        code = textwrap.dedent(inspect.getsource(claim.residual))
        code = code[code.index("def ") :] if "def " in code else code
        lines += [f".. _{_label(claim.id)}:", "", claim.id, "-" * len(claim.id), ""]
        statement = claim.statement.replace("*", r"\*").replace("|", r"\|")
        lines += [f"{statement}. Source: {claim.source}. Tolerance {claim.tolerance:g}.", ""]
        lines += [".. code-block:: python", "", textwrap.indent(code, "   "), ""]
    return "\n".join(lines)


def _listing(path: str) -> str:
    title = path.removeprefix("src/")
    include = f".. literalinclude:: ../../{path}\n   :language: python\n   :linenos:\n"
    return f":orphan:\n:nosearch:\n\n{title}\n{'=' * len(title)}\n\n{include}"


def _file(module: Any) -> str:
    return str(Path(inspect.getfile(module)).resolve().relative_to(ROOT))


def _slug(path: str) -> str:
    return path.removesuffix(".py").replace("/", "-")


def _label(id: str) -> str:
    return "identity-" + re.sub(r"[^a-z0-9]", "-", id)
