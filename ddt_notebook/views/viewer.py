"""The interactive timeline as a part of a page: its place, its data, and the script.

Without scripts nothing of it is shown; the views below say the same.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

from ..model import Snapshot
from . import viewer_data
from .html import Markup

#: The built script; its sources are in extension/src/viewer.
SCRIPT = Path(__file__).parent / "assets" / "viewer.js"


def section(snapshot: Snapshot) -> Markup:
    """The place of the viewer with its data; empty if the run has no times."""
    data = viewer_data.encode(snapshot)
    if not data:
        return Markup()
    # base64 has no character that could end the element
    return Markup(
        '<section id="ddt-viewer" hidden><h2>Explore the timeline</h2></section>'
        f'<script type="text/plain" id="ddt-viewer-data">{data}</script>'
    )


def script() -> Markup:
    """The script, for the end of the page."""
    return Markup(f'<script type="module">{source()}</script>')


@functools.cache
def policy() -> str:
    """The source in a content security policy that allows this script and no other."""
    digest = hashlib.sha256(source().encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@functools.cache
def source() -> str:
    """The script, a module: it shows the viewer of its page, and exports it for anywidget."""
    return SCRIPT.read_text(encoding="utf-8")
