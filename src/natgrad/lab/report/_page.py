"""The HTML page: all claims first, then each figure with its claims, config and data."""

import base64
import hashlib
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

from natgrad._checks import path as as_path
from natgrad.errors import InvalidInputError
from natgrad.lab import _formats as formats
from natgrad.lab._store.atomic import write_text
from natgrad.lab._store.reading import read_json
from natgrad.lab.report._entries import Entry, is_run, read_entry

_IDENTITY = {"id": str, "statement": str, "source": str, "holds": bool}


def write_report(out: Path) -> Path:
    """Write `report.html` in the folder of all runs, or of one, and return its path.

    The page contains everything it shows and needs no network. Runs that cannot be read are listed
    with the reason.

    Raises:
        InvalidInputError: If there is no such folder.
        StoreError: If the page cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as out:
        ...     write_report(Path(out)).name
        'report.html'
    """
    out = as_path(out, "the path")
    if not out.is_dir():
        raise InvalidInputError(
            f"there is no folder {out}; `natgrad reproduce --out {out}` makes one."
        )
    found = [out] if is_run(out) else [path for path in out.iterdir() if path.is_dir()]
    entries = [read_entry(path) for path in sorted(found, key=_natural) if is_run(path)]
    path = out / "report.html"
    write_text(path, _render(entries, *_verify(out / "verify.json")))
    return path


def _render(entries: list[Entry], identities: list[dict[str, Any]], problem: str) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("natgrad.lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    folder = files("natgrad.lab.report") / "templates"
    css, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    verdicts = Counter(row.verdict.kind for entry in entries for row in entry.rows)
    return environment.get_template("page.html").render(
        policy=(
            f"default-src 'none'; img-src data:; style-src {_hash(css)}; "
            f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
        ),
        css=Markup(css),
        script=Markup(script),
        runs=[entry for entry in entries if entry.report],
        broken=[entry for entry in entries if not entry.report],
        verdicts=verdicts,
        identities=identities,
        verify_problem=problem,
        number=formats.number,
        duration=formats.duration,
        counted=counted,
    )


def counted(count: int, word: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "claim"), counted(3, "claim")
        ('1 claim', '3 claims')
    """
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _natural(path: Path) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _verify(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the outcomes of `natgrad verify`, and the problem if they cannot be read."""
    if not path.exists():
        return [], ""
    try:
        found = read_json(path)
    except InvalidInputError as error:
        return [], str(error)
    if not isinstance(found, list) or not all(_is_outcome(item) for item in found):
        return [], f"{path} is not a list of outcomes of natgrad verify."
    return found, ""


def _is_outcome(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and all(isinstance(item.get(key), kind) for key, kind in _IDENTITY.items())
        and all(
            item.get(key) is None or isinstance(item[key], int | float)
            for key in ("residual", "tolerance")
        )
    )
