"""A panel with buttons, and the same content in the saved notebook.

The panel has two outputs. The buttons work while the notebook is open. Beside them is an ordinary
output with the same content, which every step updates: it stays in the saved notebook, where no
button can work. The style sheet hides it where the buttons are shown.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..views import html
from ..views.displayable import Displayable
from ..views.html import Markup

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class SavedPanel(Displayable):
    """Base of panels with buttons.

    Parameters
    ----------
    shell
        The notebook's shell.
    instead
        The line that stands for the buttons where they cannot work.
    """

    def __init__(self, shell: InteractiveShell, instead: str) -> None:
        self._shell = shell
        self._id = uuid4().hex
        self._instead = instead

    @property
    def shown(self) -> Displayable:
        """The present content without buttons."""
        raise NotImplementedError

    @property
    def widget(self) -> Any:
        """The content with buttons; its class in the style sheet is ``ddt-assistant``."""
        raise NotImplementedError

    def to_text(self) -> str:
        """The present content as text."""
        return self.shown.to_text()

    def to_html(self) -> str:
        """The present content without buttons."""
        return self.shown.to_html()

    def update(self) -> None:
        """Bring the output that will be saved up to date."""
        self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        bundle: dict[str, Any] = self.shown._repr_mimebundle_()
        saved = html.tag("div", Markup(bundle["text/html"]), role="saved")
        bundle["text/html"] = f"{style_sheet()}{saved}"
        self._shell.display_pub.publish(bundle, transient={"display_id": self._id}, update=update)

    def _ipython_display_(self) -> None:
        self._publish(update=False)
        bundle = self.widget._repr_mimebundle_()
        bundle["text/plain"] = self._instead
        bundle["text/html"] = html.line(self._instead)
        self._shell.display_pub.publish(bundle)


@functools.cache
def style_sheet() -> Markup:
    """The style sheet of panels; it also hides the saved form where the buttons are shown."""
    lines = (Path(__file__).parent / "panel.css").read_text(encoding="utf-8").splitlines()
    return Markup(f"<style>{''.join(line.strip() for line in lines)}</style>")
