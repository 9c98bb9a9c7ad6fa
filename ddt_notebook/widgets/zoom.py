"""The timeline with a slider: a shorter time span is drawn in more detail.

Only the slider is a widget. The picture is an ordinary display that is updated in place, so that it
stays in a saved notebook as it was last shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..views.figures import MIME
from ..views.timeline import TimelineView

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: Positions of the slider from end to end.
_STEPS = 1000


class TimelineZoom:
    """Shows a part of a timeline; moving the slider shows another part.

    Parameters
    ----------
    view
        What is looked at.
    shell
        The notebook's shell.
    """

    def __init__(self, view: TimelineView, shell: InteractiveShell) -> None:
        import ipywidgets

        self.view = view
        self._shell = shell
        self._id = uuid4().hex
        whole = max(view.duration_ms, 1.0)
        self.slider = ipywidgets.FloatRangeSlider(
            value=(0.0, whole),
            min=0.0,
            max=whole,
            step=whole / _STEPS,
            description="show ms",
            tooltip="milliseconds since the cell began",
            readout_format=".0f" if whole >= _STEPS else ".2f",
            continuous_update=False,
            layout=ipywidgets.Layout(width="95%"),
        )
        self.slider.observe(self._on_moved, names="value")

    def _on_moved(self, _: Any) -> None:
        self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        start_ms, end_ms = self.slider.value
        bundle = self.view._repr_mimebundle_(exclude=(MIME,))
        bundle[MIME] = self.view.zoom(start_ms, end_ms)
        self._shell.display_pub.publish(bundle, transient={"display_id": self._id}, update=update)

    def _ipython_display_(self) -> None:
        bundle = self.slider._repr_mimebundle_()
        bundle["text/plain"] = (
            "a slider that chooses the time span; it works while the notebook is open"
        )
        self._shell.display_pub.publish(bundle)
        self._publish(update=False)
