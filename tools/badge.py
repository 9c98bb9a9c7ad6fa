"""Makes the badge that opens the project on Binder from ``binder/repository.txt``.

python tools/badge.py            # prints it as Markdown
python tools/badge.py --write    # writes it into README.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ROOT / "binder" / "repository.txt"
README = ROOT / "README.md"
FIRST_PAGE = "lab/tree/notebooks/00-quickstart.ipynb"
_BADGE = re.compile(r"\[!\[Binder\]\(.*?\)\]\(.*?\)")


def link() -> str:
    """The address at which Binder starts the project, with JupyterLab on the quick start."""
    name = REPOSITORY.read_text(encoding="utf-8").strip()
    return f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath={quote(FIRST_PAGE, safe='')}"


def badge() -> str:
    """The picture with the link, as Markdown."""
    return f"[![Binder](https://mybinder.org/badge_logo.svg)]({link()})"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        README.write_text(_BADGE.sub(badge(), README.read_text(encoding="utf-8"), 1), "utf-8")
    print(badge())
