"""The question of a lesson in a notebook, with a button for each choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddt_notebook.assistant.saved_panel import SavedPanel, style_sheet
from ddt_notebook.views import safe
from ddt_notebook.views.html import Markup

from .prediction import PredictionView, Question

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class PredictionPanel(SavedPanel):
    """Shows the choices as buttons; a press shows why the choice is right or wrong.

    Parameters
    ----------
    asked
        The question.
    shell
        The notebook's shell.
    """

    def __init__(self, asked: Question, shell: InteractiveShell) -> None:
        import ipywidgets

        super().__init__(
            shell,
            "the buttons of the question work while the notebook is open; "
            f"%ddt_predict {asked.code} shows them",
        )
        self._asked = asked
        self._view = PredictionView(asked)
        title = ipywidgets.HTML(Markup(style_sheet() + self._view.title_html()))
        self._answer = ipywidgets.HTML()
        buttons = [self._button(number) for number in range(1, len(asked.choices) + 1)]
        choices = ipywidgets.VBox(buttons)
        choices.add_class("ddt-choices")
        self._widget = ipywidgets.VBox([title, choices, self._answer])
        self._widget.add_class("ddt-assistant")

    @property
    def shown(self) -> PredictionView:
        """The choices, or what is said about the one that was pressed last."""
        return self._view

    @property
    def widget(self) -> Any:
        """The buttons, and the answer below them."""
        return self._widget

    def _button(self, number: int) -> Any:
        import ipywidgets

        choice = safe.one_line(self._asked.choices[number - 1].replace("`", ""), 1000)
        button = ipywidgets.Button(
            description=f"{number}   {choice}", tooltip="chooses this, and shows why or why not"
        )
        button.on_click(lambda _: self._choose(number))
        return button

    def _choose(self, number: int) -> None:
        self._view = PredictionView(self._asked, number)
        self._answer.value = self._view.to_html()
        self.update()
