"""The site: `make docs` builds it, `make docs-open` opens it. Nothing on it needs the network."""

import base64
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import natgrad
from natgrad.playground import PAGE

sys.path.insert(0, str(Path(__file__).parent))
import _figures
import _papers
import _reference
import _typeset

project = "natgrad"
author = "The natgrad developers"
copyright = author
version = release = natgrad.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "notebooks"]
suppress_warnings = ["toc.not_included"]  # a test asks that README or a page links each page
myst_heading_anchors = 4  # the anchors that the repository's pages link to

html_theme = "furo"
html_title = "natgrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # pages opened from files may not fetch one another
html_show_sphinx = False

# The notebooks run when the site is built, and an error in one of them stops the build.
sphinx_gallery_conf = {
    "examples_dirs": "notebooks",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "capture_repr": (),  # what a cell prints is shown, not what its last line returns
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "write_computation_times": False,
    "min_reported_time": 60,
}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "code"  # docstrings write `name` as Markdown does


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the methods that scikit-learn adds to estimators, which its own pages explain."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def _write_pages(app: Any) -> None:
    """Write what is made of the package itself: reference, gallery, identities."""
    folder = Path(app.srcdir)
    _reference.write(folder / "reference")
    _figures.write(folder / "figures", folder.parent / "runs")
    _papers.write(folder)


def _link_papers(app: Any, name: str, source: list[str]) -> None:
    """Link the names in the paper map, which the repository shows as plain code."""
    if name == "paper_map":
        source[0] = _papers.linked(source[0])


def _copy_playground(app: Any, error: Exception | None) -> None:
    """Put the playground beside the pages; the landing page shows it."""
    if error is None and app.builder.name == "html":
        target = Path(app.outdir) / "playground"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(PAGE.parent, target, ignore=shutil.ignore_patterns("*.py", "__pycache__"))


def _embed_downloads(app: Any, error: Exception | None) -> None:
    """Put the files of tutorials into their pages: browsers show a linked file, and save none."""
    if error is not None or app.builder.name != "html":
        return
    for page in (Path(app.outdir) / "tutorials").glob("*.html"):

        def embedded(link: re.Match[str], page: Path = page) -> str:
            data = base64.b64encode((page.parent / link[2]).read_bytes()).decode()
            name = Path(link[2]).name
            return f'download="{name}" href="data:application/octet-stream;base64,{data}"'

        found = r'download="([^"]*)" href="(\.\./_downloads/[^"]+)"'
        page.write_text(re.sub(found, embedded, page.read_text()))


def setup(app: Any) -> None:
    """Connect the hooks above."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _link_papers)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _typeset.as_meant, priority=400)  # before napoleon
    app.connect("doctree-read", _typeset.mark_wide)
    app.connect("doctree-resolved", _typeset.typeset)
    app.connect("build-finished", _copy_playground)
    app.connect("build-finished", _embed_downloads)
