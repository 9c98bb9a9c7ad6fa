"""The assistant's panel: three columns of texts and buttons, and what lies open below them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..views import html, words
from ..views.consultation import ConsultationView, repaired
from ..views.html import Markup

#: Takes the name of a step, and what it is about: the number of a choice, the name of a view.
Press = Callable[..., None]

_TEXTS = ("path", "middle", "changes", "offer", "repair", "run", "lesson", "note", "detail")
_ROWS = ("steps", "check", "views", "repair", "run", "explain")
_HEADINGS = {
    "finding": "what was found",
    "question": "the question",
    "symptom": "which of these faults is it?",
    "fault": "the fault",
}
#: Label and tooltip of each button that does not depend on what is shown.
_BUTTONS = {
    "back": ("Back", "takes the last step back"),
    "restart": ("Restart", "goes back to the beginning"),
    "leave": ("Leave", "ends the assistant; what is shown stays"),
    "check": ("Check it for me", "does what is said beside it, and answers the question with it"),
    "unknown": ("I don't know", "leaves this question open and asks another"),
    "repair": ("Try the fixed cell", "opens a cell without the fault below, with what is changed"),
    "run": ("Run it now", "runs the corrected cell, and says whether the symptom is gone"),
    "explain": ("Explain", "opens the page on this fault below, as %ddt_explain does"),
}


class Controls:
    """Texts and buttons that stay while their content changes, so that the keyboard stays, too.

    Parameters
    ----------
    press
        Called with a step when its button is pressed.

    Attributes
    ----------
    panel
        The widget that holds all of them.
    """

    def __init__(self, press: Press) -> None:
        import ipywidgets

        self._widgets = ipywidgets
        self._press = press
        self._texts = {name: ipywidgets.HTML() for name in _TEXTS}
        self._buttons = {
            name: self._button(label, tooltip, name) for name, (label, tooltip) in _BUTTONS.items()
        }
        self._choices: list[Any] = []
        self._views: dict[str, Any] = {}
        self._rows = {name: ipywidgets.Box(layout=self._wrapping()) for name in _ROWS}
        self._choice_box = ipywidgets.VBox()
        self._choice_box.add_class("ddt-choices")
        self.panel = self._arranged()

    def draw(self, view: ConsultationView, *, note: str, runs: str) -> None:
        """Show where a consultation stands.

        Parameters
        ----------
        view
            Where it stands.
        note
            What else is to be said.
        runs
            What running the corrected cell would do, empty if it cannot be run.
        """
        now = view.consultation
        repair = repaired(view.repair) if view.repair is not None else ""
        texts = {
            "path": Markup(style_sheet() + _titled("the path so far", view.path_html())),
            "middle": _titled(_HEADINGS[now.stand], view.middle_html()),
            "changes": _titled("what to change", view.changes_html()),
            "offer": _plain(view.offer),
            "repair": _plain(repair),
            "run": _plain(runs),
            "lesson": _plain(f"lesson: {view.lesson}" if view.lesson else ""),
            "note": _plain(note),
            "detail": view.detail_html(),
        }
        for name, markup in texts.items():
            if self._texts[name].value != markup:
                self._texts[name].value = markup
        shown = {"check": view.offer, "unknown": now.question, "repair": repair, "run": runs}
        for name, there in (shown | {"explain": now.symptom}).items():
            _show(self._buttons[name], bool(there))
        for name in ("back", "restart"):
            self._buttons[name].disabled = now.earlier is None
        self._draw_choices(now.choices)
        self._draw_views(now.views if view.snapshot is not None else (), now.detail)

    def say(self, note: str) -> None:
        """Say at once what is going on."""
        self._texts["note"].value = _plain(note)

    def close(self) -> None:
        """Take no step any more."""
        for button in (*self._buttons.values(), *self._choices, *self._views.values()):
            button.disabled = True

    def move_on(self, step: str) -> None:
        """Put the keyboard where the next step is likely to be, if its place has changed."""
        pressed = self._buttons.get(step)
        if step != "choose" and (pressed is None or _can_be_pressed(pressed)):
            return
        for button in (*self._choices, self._buttons["repair"], self._buttons["leave"]):
            if _can_be_pressed(button):
                button.focus()
                return

    def _draw_choices(self, choices: tuple[str, ...]) -> None:
        while len(self._choices) < len(choices):
            self._choices.append(self._button("", "", "choose", len(self._choices)))
            self._choice_box.children = tuple(self._choices)
        for number, button in enumerate(self._choices):
            if number < len(choices):
                button.description = f"{number + 1}   {words.one_line(choices[number])}"
            _show(button, number < len(choices))

    def _draw_views(self, names: tuple[str, ...], opened: str) -> None:
        for name in names:
            if name not in self._views:
                tooltip = f"opens the view below, as %ddt_show {name} does"
                self._views[name] = self._button("", tooltip, "open", name)
                self._rows["views"].children = tuple(self._views.values())
        for name, button in self._views.items():
            button.description = f"{'Hide' if name == opened else 'Show'} {name}"
            _show(button, name in names)

    def _button(self, label: str, tooltip: str, *step: object) -> Any:
        button = self._widgets.Button(description=label, tooltip=tooltip)
        button.on_click(lambda _: self._press(*step))
        return button

    def _arranged(self) -> Any:
        text, button, rows = self._texts, self._buttons, self._rows
        rows["steps"].children = (button["back"], button["restart"], button["leave"])
        for name in ("check", "repair", "run", "explain"):
            beside = {"check": "offer", "explain": "lesson"}.get(name, name)
            rows[name].children = (button[name], text[beside])
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
            self._column("2 1 18em", text["changes"], rows["repair"], rows["run"], rows["explain"]),
        )
        beside_each_other = self._widgets.Box(columns, layout=self._wrapping())
        beside_each_other.add_class("ddt-columns")
        panel = self._widgets.VBox([beside_each_other, text["detail"]])
        panel.add_class("ddt-assistant")
        return panel

    def _column(self, flex: str, *content: Any) -> Any:
        column = self._widgets.VBox(content, layout=self._widgets.Layout(flex=flex))
        column.add_class("ddt-column")
        return column

    def _wrapping(self) -> Any:
        layout = self._widgets.Layout
        return layout(display="flex", flex_flow="row wrap", align_items="flex-start")


@functools.cache
def style_sheet() -> Markup:
    """The sheet for the panel, which also hides the saved form wherever the panel is there."""
    lines = (Path(__file__).parent / "assets" / "assistant.css").read_text(encoding="utf-8")
    return Markup(f"<style>{''.join(line.strip() for line in lines.splitlines())}</style>")


def _titled(title: str, content: Markup) -> Markup:
    """A heading for those who cannot see that it is one, too."""
    heading = f'<div class="ddt-heading" role="heading" aria-level="4">{html.escape(title)}</div>'
    return Markup(heading + content)


def _plain(said: str) -> Markup:
    return html.view(html.line(html.prose(said))) if said else Markup("")


def _show(button: Any, visible: bool) -> None:
    display = None if visible else "none"
    if button.layout.display != display:
        button.layout.display = display


def _can_be_pressed(button: Any) -> bool:
    return button.layout.display != "none" and not button.disabled
