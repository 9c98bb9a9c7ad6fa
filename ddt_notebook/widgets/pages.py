"""What JupyterLab's front end asks for as a page: a view of the last run, or the whole report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.session import active
from ..views import safe, viewer_data
from ..views.registry import VIEWS

if TYPE_CHECKING:
    from ..model import Snapshot

#: Name of the page that holds everything, and of the view that has an interactive part.
REPORT, TIMELINE = "report", "timeline"


def answer(name: object) -> dict[str, str]:
    """Return one page as HTML, or the reason why there is none.

    No rank is asked: this may run while the main thread exchanges messages with them.

    Parameters
    ----------
    name
        Of a view, or `REPORT`.

    Returns
    -------
    dict
        ``page``: the name; ``html``: the page, empty if there is none; ``missing``: why;
        ``viewer``: for the timeline, the data of the interactive one.
    """
    run = active.last_run()
    page, missing, data = "", "", ""
    if name != REPORT and name not in VIEWS:
        missing = f"there is no view {safe.one_line(str(name), 40)}"
    elif run is None:
        missing = "nothing has run on ranks yet: put %%ddt or %%ddt_debug on top of a cell"
    else:
        try:
            page, missing = _page(str(name), run.snapshot)
            data = viewer_data.encode(run.snapshot) if name == TIMELINE else ""
        except Exception as error:  # noqa: BLE001  (the front end needs an answer)
            missing = f"{name} cannot be drawn: {safe.one_line(repr(error))}"
    return {"page": str(name), "html": page, "missing": missing, "viewer": data}


def _page(name: str, snapshot: Snapshot) -> tuple[str, str]:
    if name == REPORT:
        from ..views import exported_page

        return exported_page.page(snapshot), ""
    view = VIEWS[name]
    missing = view.missing(snapshot)
    return ("", missing) if missing else (view.of(snapshot).to_html(), "")
