"""How Sphinx builds the guide: ``make docs``, without a network and without a warning."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import derived  # noqa: E402

from ddt_notebook import __version__  # noqa: E402

project = "ddt_notebook"
author = "the authors of ddt_notebook"
project_copyright = author
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "views_*.md"]
html_theme = "furo"
html_title = "ddt_notebook"
html_show_sourcelink = False

# Notebooks are shown as they are committed. What they put out is complete without JavaScript; the
# scripts that myst-nb would fetch for widgets are not wanted.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "text/plain", 20)]
nb_merge_streams = True
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Advice quotes code, which typographic quotes would break.
smartquotes = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_ivar = True

# A cell that begins with a magic is not Python; it is shown without colours.
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type"]


def _link_pages(app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Have links in outputs of notebooks, which name notebooks, open the pages made of these."""
    folder = posixpath.dirname(page)

    def to_page(link: re.Match[str]) -> str:
        name = posixpath.normpath(posixpath.join(folder, link[1]))
        return f'href="{link[1]}.html"' if name in app.env.found_docs else link[0]

    if "body" in context:
        context["body"] = re.sub(r'href="([^":#]+)\.ipynb"', to_page, context["body"])


def setup(app: Any) -> None:
    """Change pages after they were made."""
    app.connect("html-page-context", _link_pages)


derived.write(HERE)
