"""The playground: an interactive page of plain HTML, CSS and JavaScript that needs no network.

`natgrad playground` opens it. Its numbers are tested against the library's.
"""

from pathlib import Path

__all__ = ["PAGE"]

PAGE: Path = Path(__file__).parent / "index.html"
"""The page. It reads the files beside it, so copy the whole folder."""
