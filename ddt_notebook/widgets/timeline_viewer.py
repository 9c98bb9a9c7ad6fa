"""The interactive timeline as a widget, which anywidget brings to any notebook."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from ..views import viewer, viewer_data
from ..views.timeline import TimelineView


class TimelineViewer(anywidget.AnyWidget):  # type: ignore[misc]
    """A timeline to zoom, search and filter; a saved notebook shows the view as it is without it.

    Parameters
    ----------
    view
        What is looked at.
    """

    _esm = viewer.source()
    data = traitlets.Unicode("").tag(sync=True)

    def __init__(self, view: TimelineView) -> None:
        super().__init__(data=viewer_data.encode(view.snapshot))
        self._view = view

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        shown = super()._repr_mimebundle_(**kwargs)
        bundle, about = shown if isinstance(shown, tuple) else (shown, {})
        still = {"text/html": self._view.to_html(), "text/plain": str(self._view)}
        return {**(bundle or {}), **still}, about
