"""Typography of the site: docstrings read as meant, formulas with real indices, wide pictures."""

import re
import struct
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes


def as_meant(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring so that reStructuredText reads it as people do.

    What is no markup is escaped, and an indented equation gets blank lines around it.
    """
    text, inside, example = [], False, False
    for line in lines:
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        equation = line.startswith("    ") and (inside or bool(text and _PROSE.match(text[-1])))
        if equation != inside:
            text.append("")
        inside = equation
        text.append(line if example else _PAGE.sub(r":doc:`/\1`", escaped(line)))
    lines[:] = text


# A page of the site, as a docstring names it.
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")

# A line of prose, not the name of a section such as "Args:", an item of a list or an example.
_PROSE = re.compile(r"(?![-*>|]|\d+\.|.*:$)\S")
_KEPT = r"(``?[^`]+``?|(?<!\w)\*{1,2}[^*\s][^*]*\*{1,2})"  # code and emphasis
_PLAIN = r"(\||(?<=\w)_(?=\W|$)|(?<=[\w‖)⟩])\*|(?<!\w)\*(?=[\s,.;:)]))"


def escaped(text: str) -> str:
    """Return a line of a docstring in which only code and emphasis are markup."""

    def replace(found: re.Match[str]) -> str:
        if not found[1]:
            return f"\\{found[0]}"
        ends = re.match(r"$|[\s.,;:!?)\]}'\"/-]", text[found.end() :])
        return found[1] if ends else f"{found[1]}\\ "  # markup must be followed by such a sign

    return re.sub(f"{_KEPT}|{_PLAIN}", replace, text)


# A power, or an index: in braces after any sign, or some letters after a symbol. A symbol is one
# letter, possibly with an accent, or a sign; `snake_case` has none.
_SCRIPT = re.compile(
    r"([_^])(?:\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}"
    r"|(?<=\^)([A-Za-zͰ-Ͽ∞]{1,3})(?!\w)"
    r"|(?<=(?<![A-Za-z_])[^\W\d_]_)([A-Za-zͰ-Ͽ]{1,3})(?![A-Za-z_(])"
    r"|(?<=[∇∏Σ∫‖*⁺\u0300-\u036f]_)([A-Za-zͰ-Ͽ∞]{1,3})(?![A-Za-z_(]))"
)
_AS_TYPED = (
    nodes.literal,
    nodes.doctest_block,
    nodes.raw,
    nodes.comment,
    addnodes.desc_signature,
    addnodes.desc_name,
)
# One or two lines of mathematics: more are tables and output, others are commands.
_EQUATION = re.compile(r"(?!natgrad|make|pip|python)[^\n]*[Σ∇βλσ≥≤‖⊙ᵀℓ][^\n]*\n?[^\n]*")


def typeset(app: Any, doctree: nodes.document, name: str) -> None:
    """Lower indices, raise powers, and set equations apart that the sources show as code."""
    for block in list(doctree.findall(nodes.literal_block)):
        plain = block.get("language", "default") in ("default", "none", "text")
        if plain and _EQUATION.fullmatch(block.astext()):
            lines = [nodes.line("", line) for line in block.astext().splitlines()]
            block.replace_self(nodes.line_block("", *lines, classes=["equation"]))
    for text in list(doctree.findall(nodes.Text)):
        if not _typed(text) and _SCRIPT.search(text):
            text.parent.replace(text, _with_scripts(text))


def _typed(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, (*_AS_TYPED, nodes.literal_block)):
            return True
    return False


def _with_scripts(text: str) -> list[nodes.Node]:
    found, end = [], 0
    for script in _SCRIPT.finditer(text):
        found.append(nodes.Text(text[end : script.start()]))
        kind = nodes.subscript if script[1] == "_" else nodes.superscript
        inner = next(filter(None, script.groups()[1:]))
        found.append(kind("", "", *_with_scripts(inner)))
        end = script.end()
    return [*found, nodes.Text(text[end:])]


def mark_wide(app: Any, doctree: nodes.document) -> None:
    """Mark pictures of several panels and tables of many columns, which need a page's width."""
    for table in doctree.findall(nodes.tgroup):
        if table["cols"] >= 5:
            table.parent["classes"].append("wide")
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir) / image["uri"]
        if path.suffix == ".png" and path.is_file():
            width, height = struct.unpack(">II", path.read_bytes()[16:24])
            if width >= 1000 and width >= 1.5 * height:
                image["classes"].append("wide")
