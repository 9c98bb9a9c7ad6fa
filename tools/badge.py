"""Makes the badge that opens the project on Binder from ``binder/repository.txt``.

python tools/badge.py    # prints it as Markdown, for the README and the guide
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ROOT / "binder" / "repository.txt"
FIRST_PAGE = "lab/tree/notebooks/01-tour.ipynb"


def link() -> str:
    """The address at which Binder builds and starts the project, with JupyterLab on the tour."""
    name = REPOSITORY.read_text(encoding="utf-8").strip()
    return f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath={quote(FIRST_PAGE, safe='')}"


def badge() -> str:
    """The picture with the link, as Markdown."""
    return f"[![Binder](https://mybinder.org/badge_logo.svg)]({link()})"


if __name__ == "__main__":
    print(badge())
