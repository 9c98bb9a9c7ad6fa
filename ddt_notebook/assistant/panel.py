"""The assistant's panel in a notebook: three columns of text with a button for every step."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..host.errors import SessionError
from ..views import html, safe
from ..views.html import Markup
from .assistant import EXPLAIN, FIX, Assistant
from .errors import in_magics
from .saved_panel import SavedPanel, style_sheet
from .view import AssistantView, whose

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_LEFT = "you left the assistant; %ddt_debug opens it again"
_TEXTS = ("path", "middle", "changes", "check", "fix", "run", "explain", "note", "opened")
_ROWS = ("steps", "views", "check", "fix", "run", "explain")
_HEADINGS = {
    "finding": "what was found",
    "question": "the question",
    "symptom": "which of these faults is it?",
    "fault": "the fault",
}
#: Label and tooltip of each button whose label does not change.
_BUTTONS = {
    "undo": ("Back", "takes the last step back"),
    "restart": ("Restart", "goes back to the start"),
    "leave": ("Leave", "ends the assistant; its last state stays visible"),
    "check": ("Check it for me", "does what the text beside it says, and answers the question"),
    "unknown": ("I don't know", "leaves this question open and asks another one"),
    "fix": ("Try the fixed cell", "shows a cell without the fault below, with the change"),
    "run": ("Run it now", "runs the corrected cell, and says whether the symptom is gone"),
    "explain": ("Explain", "shows the page about this fault below, like %ddt_explain"),
}


class Panel(SavedPanel):
    """Shows an assistant, and takes a step when the user presses a button.

    Parameters
    ----------
    assistant
        The conversation.
    shell
        The notebook's shell.
    on_step
        Called with the assistant after every step.
    """

    def __init__(
        self,
        assistant: Assistant,
        shell: InteractiveShell,
        on_step: Callable[[Assistant], None] = lambda assistant: None,
    ) -> None:
        import ipywidgets

        super().__init__(
            shell,
            "the buttons of the assistant work while the notebook is open; %ddt_debug shows them",
        )
        self.assistant = assistant
        self._on_step = on_step
        self._one_at_a_time = Lock()
        self._widgets = ipywidgets
        # The widgets stay while their content changes, so that the keyboard focus stays, too.
        self._texts = {name: ipywidgets.HTML() for name in _TEXTS}
        self._buttons = {
            name: self._button(label, tooltip, name) for name, (label, tooltip) in _BUTTONS.items()
        }
        self._choices: list[Any] = []
        self._views: dict[str, Any] = {}
        self._rows = {name: ipywidgets.Box(layout=self._wrapping()) for name in _ROWS}
        self._choice_box = ipywidgets.VBox()
        self._choice_box.add_class("ddt-choices")
        self._panel = self._arranged()
        self._draw()

    # -- steps ---------------------------------------------------------------------------------

    def _pressed(self, button: str, about: str) -> None:
        """Take one step and show its result; a second press meanwhile does nothing."""
        if not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            note = ""
            try:
                self._take(button, about)
            except (SessionError, ValueError) as error:
                note = safe.one_line(in_magics(error), 1000)
            except KeyboardInterrupt:
                note = "interrupted"
            self._on_step(self.assistant)
            self._draw(note)
            self.update()
            self._move_focus(button)
        finally:
            self._one_at_a_time.release()

    def _take(self, button: str, about: str) -> None:
        match button:
            case "choose":
                self.assistant.take(about)
            case "view":
                self.assistant.toggle(about)
            case "fix":
                self.assistant.toggle(FIX)
            case "explain":
                self.assistant.toggle(EXPLAIN)
            case "run":
                self._say("the corrected cell is running …")
                self.assistant.run_fixed_cell()
            case word:
                self.assistant.take(word, self._say)

    def _say(self, note: str) -> None:
        """Show a line about what is going on."""
        self._texts["note"].value = _plain(note)

    # -- what is shown -------------------------------------------------------------------------

    def _draw(self, note: str = "") -> None:
        state, view = self.assistant.state, self.assistant.view()
        self._view = view
        fixed = whose(view.fixed_cell) if view.fixed_cell is not None else ""
        run = self.assistant.offer_to_run()
        texts = {
            "path": Markup(style_sheet() + _titled("the path so far", view.path_html())),
            "middle": _titled(_HEADINGS[state.at], view.middle_html()),
            "changes": _titled("what to change", view.changes_html()),
            "check": _plain(view.offer),
            "fix": _plain(fixed),
            "run": _plain(run),
            "explain": _plain(f"lesson {view.lesson}" if view.lesson else ""),
            "note": _plain(_LEFT if self.assistant.left else note),
            "opened": view.opened_html(),
        }
        for name, markup in texts.items():
            if self._texts[name].value != markup:
                self._texts[name].value = markup
        shown = {"check": view.offer, "unknown": state.question, "fix": fixed, "run": run}
        for name, there in (shown | {"explain": state.symptom}).items():
            _show(self._buttons[name], bool(there))
        for name in ("undo", "restart"):
            self._buttons[name].disabled = state.previous is None
        self._draw_choices(state.choices)
        self._draw_views(state.views if view.snapshot is not None else (), state.opened)
        if self.assistant.left:
            for button in (*self._buttons.values(), *self._choices, *self._views.values()):
                button.disabled = True

    def _draw_choices(self, choices: tuple[str, ...]) -> None:
        while len(self._choices) < len(choices):
            self._choices.append(self._button("", "", "choose", str(len(self._choices) + 1)))
            self._choice_box.children = tuple(self._choices)
        for index, button in enumerate(self._choices):
            if index < len(choices):
                button.description = f"{index + 1}   {safe.one_line(choices[index])}"
            _show(button, index < len(choices))

    def _draw_views(self, names: tuple[str, ...], opened: str) -> None:
        for name in names:
            if name not in self._views:
                tooltip = f"shows this view below, like %ddt_show {name}"
                self._views[name] = self._button("", tooltip, "view", name)
                self._rows["views"].children = tuple(self._views.values())
        for name, button in self._views.items():
            button.description = f"{'Hide' if name == opened else 'Show'} {name}"
            _show(button, name in names)

    def _move_focus(self, pressed: str) -> None:
        """Move the keyboard focus to the likely next button, if the pressed one is gone or new."""
        button = self._buttons.get(pressed)
        if pressed == "view" or (button is not None and _can_be_pressed(button)):
            return
        for button in (*self._choices, self._buttons["fix"], self._buttons["leave"]):
            if _can_be_pressed(button):
                button.focus()
                return

    # -- the layout ----------------------------------------------------------------------------

    def _button(self, label: str, tooltip: str, name: str, about: str = "") -> Any:
        button = self._widgets.Button(description=label, tooltip=tooltip)
        button.on_click(lambda _: self._pressed(name, about))
        return button

    def _arranged(self) -> Any:
        text, button, rows = self._texts, self._buttons, self._rows
        rows["steps"].children = (button["undo"], button["restart"], button["leave"])
        for name in ("check", "fix", "run", "explain"):
            text[name].layout.flex = "1 1 12em"  # else it is as narrow as its longest word
            rows[name].children = (button[name], text[name])
        columns = (
            self._column("1 1 14em", text["path"], rows["steps"]),
            self._column(
                "3 1 26em",
                text["middle"],
                rows["views"],
                self._choice_box,
                button["unknown"],
                rows["check"],
                text["note"],
            ),
            self._column("2 1 18em", text["changes"], rows["fix"], rows["run"], rows["explain"]),
        )
        side_by_side = self._widgets.Box(columns, layout=self._wrapping())
        side_by_side.add_class("ddt-columns")
        panel = self._widgets.VBox([side_by_side, text["opened"]])
        panel.add_class("ddt-assistant")
        return panel

    def _column(self, flex: str, *content: Any) -> Any:
        column = self._widgets.VBox(content, layout=self._widgets.Layout(flex=flex))
        column.add_class("ddt-column")
        return column

    def _wrapping(self) -> Any:
        layout = self._widgets.Layout
        return layout(display="flex", flex_flow="row wrap", align_items="flex-start")

    # -- outputs -------------------------------------------------------------------------------

    @property
    def shown(self) -> AssistantView:
        """The present state without buttons."""
        return self._view

    @property
    def widget(self) -> Any:
        """The columns with their buttons."""
        return self._panel


def _titled(title: str, content: Markup) -> Markup:
    """A heading, also for screen readers."""
    heading = f'<div class="ddt-heading" role="heading" aria-level="4">{html.escape(title)}</div>'
    return Markup(heading + content)


def _plain(text: str) -> Markup:
    return html.view(html.line(html.prose(text))) if text else Markup("")


def _show(button: Any, visible: bool) -> None:
    display = None if visible else "none"
    if button.layout.display != display:
        button.layout.display = display


def _can_be_pressed(button: Any) -> bool:
    return button.layout.display != "none" and not button.disabled
