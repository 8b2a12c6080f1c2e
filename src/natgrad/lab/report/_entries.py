"""A run's folder as the page shows it; each file that cannot be read becomes a sentence."""

import base64
import gzip
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from natgrad.errors import NatgradError
from natgrad.lab import _formats as formats
from natgrad.lab._boxes import Box, read_boxes
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.arrays import Arrays
from natgrad.lab.report._command import command

# Browsers follow data links of at most 2 MB, and base64 needs 4 characters for 3 bytes.
CSV_BYTES = 1_000_000
CSV_BYTES_PER_RUN = 4_000_000
PICTURE_BYTES = 3_000_000

_TYPES = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
    "gz": "application/gzip",
}
_FILES = ("report.json", "config.toml", "arrays.safetensors", "failures.json", "figure.svg")


@dataclass(frozen=True)
class Row:
    """A claim in a table."""

    id: str
    statement: str
    measured: str
    value: float | None
    required: str
    verdict: formats.Verdict
    source: str


@dataclass(frozen=True)
class Download:
    """A file inside the page; `href` is empty if it is the picture itself or made of it."""

    words: str
    name: str
    href: str = ""
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One run.

    Attributes:
        slug: The target of links within the page.
        name: Name of the folder.
        report: `report.json`, or None if it cannot be read.
        problems: Sentences about files that are missing or broken.
        rows: The claims.
        picture: The picture as a data address, or empty.
        panels: Where its panels are, for narrow screens; empty if that is not known.
        pictures: The picture's files to save.
        tables: The arrays to save, as CSV.
        omitted: Sentences about arrays that are too large for the page.
        settings: The config by name, as text.
        changed: Names of options that differ from the preset.
        command: The command that repeats the run, word by word.
        facts: Preset, time, seeds, cells and revision, by name.
        environment: Versions and machine, by name.
        failures: Cells that failed in a later run.
    """

    slug: str
    name: str
    report: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    picture: str = ""
    panels: list[Box] = field(default_factory=list)
    pictures: list[Download] = field(default_factory=list)
    tables: list[Download] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    command: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> str:
        """Return how many claims have which verdict, in words."""
        return formats.counts(row.verdict for row in self.rows)

    @property
    def fails(self) -> bool:
        """Return whether a claim fails."""
        return any(row.verdict.kind == "fails" for row in self.rows)


def is_run(path: Path) -> bool:
    """Return whether a folder holds any file that a run leaves."""
    return any(os.path.exists(path / name) for name in _FILES)  # unlike Path.exists, never raises


def read_entry(path: Path) -> Entry:
    """Return the contents of a run's folder; a broken folder does not raise."""
    folder, problems = RunFolder(path), []
    slug = "run-" + re.sub(r"[^A-Za-z0-9-]", lambda sign: f"_{ord(sign[0]):x}_", path.name)

    def attempt(read: Any, otherwise: Any) -> Any:
        try:
            return read()
        except NatgradError as error:
            problems.append(str(error))
            return otherwise

    failures = attempt(folder.failures, [])
    report = attempt(folder.report, None)
    if report is None:
        return Entry(slug, path.name, problems=problems, failures=failures)
    settings = attempt(folder.settings, None)
    arrays = attempt(folder.arrays, None)
    picture, pictures, panels = _pictures(path, problems)
    tables, omitted = _tables(path.name, arrays)
    options = {name: (settings or {}).get(name, v) for name, v in report["options"].items()}
    return Entry(
        slug,
        path.name,
        report=report,
        problems=problems,
        rows=[_row(claim) for claim in report["claims"]],
        picture=picture,
        panels=panels,
        pictures=pictures,
        tables=tables,
        omitted=omitted,
        settings={name: _text(value) for name, value in (settings or {}).items()},
        changed=frozenset(options),
        command=command(report, options),
        facts=_facts(report),
        environment={name: _text(value) for name, value in report["environment"].items()},
        failures=failures,
    )


def _row(claim: dict[str, Any]) -> Row:
    return Row(
        id=claim["id"],
        statement=claim["statement"],
        measured=formats.measured(claim),
        value=claim["value"],
        required=formats.required(claim),
        verdict=formats.verdict(claim["holds"], claim["expected"]),
        source=claim["source"],
    )


def _facts(report: dict[str, Any]) -> dict[str, str]:
    cells, seeds = report["cells"], report["seeds"]
    facts = {
        "Preset": report["preset"] + (", with options changed" if report["options"] else ""),
        "Time": formats.duration(report["seconds"]),
        "Seeds": _text(seeds) if seeds is not None else "",
        "Cells": ", ".join(f"{count} {name}" for name, count in cells.items()),
        "Revision": report["revision"] or "",
    }
    return {name: text for name, text in facts.items() if text}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{name} {_text(item)}" for name, item in value.items())
    return value if isinstance(value, str) else repr(value)


def _pictures(path: Path, problems: list[str]) -> tuple[str, list[Download], list[Box]]:
    """Return the picture to show, as vectors if not too large, the files to save, its panels."""
    found = {}
    for kind in ("svg", "png", "pdf"):
        try:
            data = (path / f"figure.{kind}").read_bytes()
        except OSError:
            continue
        if len(data) <= PICTURE_BYTES and _is_picture(kind, data):
            found[kind] = data
    shown = next((kind for kind in ("svg", "png") if kind in found), None)
    if shown is None:
        problems.append(f"{path} has no picture that can be shown; try natgrad draw {path}.")
    # The browser makes a PNG of the SVG when asked: half of the page's bytes would be PNGs.
    made = {shown, "png"} if shown else set()
    files = [
        Download(kind.upper(), f"{path.name}.{kind}", "" if kind in made else _address(kind, data))
        for kind, data in found.items()
        if kind in made or len(data) <= CSV_BYTES
    ]
    panels = read_boxes(found["svg"]) if shown == "svg" else []
    return _address(shown, found[shown]) if shown else "", files, panels


def _is_picture(kind: str, data: bytes) -> bool:
    if kind == "png":
        return data.startswith(b"\x89PNG\r\n\x1a\n")
    if kind == "pdf":
        return data.startswith(b"%PDF-")
    try:
        return ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"
    except ElementTree.ParseError:
        return False


def _tables(run: str, arrays: Arrays | None) -> tuple[list[Download], list[str]]:
    """Return the arrays as CSV, and a sentence for each that is too large for a page."""
    tables: list[Download] = []
    omitted: list[str] = []
    if arrays is None:
        return tables, omitted
    room = CSV_BYTES_PER_RUN
    for name in arrays:
        values, dims = arrays[name], arrays.dims[name]
        least = 2 * values.size * (len(dims) + 1)  # bytes: a digit and a comma for each field
        text = arrays.csv(name).encode() if least <= CSV_BYTES else b""
        shape = " × ".join(f"{dim} {n}" for dim, n in zip(dims, values.shape, strict=True))
        if not text or len(text) > min(CSV_BYTES, room):
            omitted.append(
                f"{name} ({shape}: {values.size} numbers) is too large for this page. "
                f"It is in {run}/arrays.safetensors; natgrad.lab.arrays.Arrays.load reads it."
            )
            continue
        room -= len(text)
        file = re.sub(r"[^\w.-]+", "-", f"{run}-{name}.csv")
        note = ", ".join(part for part in (shape, formats.size(len(text))) if part)
        packed = gzip.compress(text, 9, mtime=0)
        tables.append(Download(name, f"{file}.gz", _address("gz", packed), note))
    return tables, omitted


def _address(kind: str, data: bytes) -> str:
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"
