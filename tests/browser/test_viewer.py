"""The interactive timeline in an exported page, by keys and pointer, with hostile strings.

The page needs no JupyterLab, and its policy allows no script but the viewer's.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

from ddt_notebook.model import Snapshot
from ddt_notebook.views import exported_page, marks, viewer, viewer_data

from ..strangers import CORPUS, infected, plain_of
from .lab import THEMES, Lab, Page

HANG = "docs/gallery/hang-broken.ddt.json"
#: A cell that shows the widget of a saved run, as ``%ddt_show timeline --zoom`` does.
WIDGET = """from ddt_notebook.model import Snapshot
from ddt_notebook.views.timeline import TimelineView
from ddt_notebook.widgets.timeline_viewer import TimelineViewer
TimelineViewer(TimelineView(Snapshot.load("hang.ddt.json")))"""
#: The frame of an output, as VS Code and Colab have one: its origin is its own. Here it cannot load
#: anything. anywidget imports the module of a widget from a blob, too.
FRAME = """<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"
content="default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'">
<div id="output"></div><script>
const [source, data] = SOURCE_AND_DATA
const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }))
import(url).then(widget => widget.default.render({
  model: { get: () => data }, el: document.getElementById('output')
}))
</script>"""
SHOWN = re.compile(r"(\S+) (\S+) to (\S+) (\S+) of (.+)")


def opened(browser: Browser, page: str, file: Path, *, scripts: bool = True) -> Tab:
    """The page in a tab of its own; whatever it asks for or says fails the test."""
    file.write_text(page, encoding="utf-8", errors="replace")
    context = browser.new_context(java_script_enabled=scripts, bypass_csp=False)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: dialog.dismiss())
    tab.on("request", lambda request: said.append(request.url))
    tab.goto(file.as_uri())
    assert said == [file.as_uri()]
    return tab


def stretch(tab: Tab) -> str:
    """The part of the run that is shown."""
    return tab.locator(".ddt-viewer-range").inner_text()


def drawn_anew(tab: Tab) -> bool:
    """Whether the picture, of which a move draws a part only, is what a change of theme draws."""
    equal: bool = tab.evaluate(
        """async () => {
          const canvas = document.querySelector('.ddt-viewer-chart canvas');
          const frame = () => new Promise(requestAnimationFrame);
          const frames = () => frame().then(frame);
          await frames();
          const moved = canvas.toDataURL();
          document.body.dataset.jpThemeName = String(performance.now());
          await frames();
          return moved === canvas.toDataURL();
        }"""
    )
    return equal


def test_search_pick_filter_and_zoom(browser: Browser, root: Path, tmp_path: Path) -> None:
    run = Snapshot.load(root / HANG)
    group, last = max(
        (call.group, call.sequence or 0)
        for report in run.ranks
        for call in report.calls
        if call.kind == "collective"
    )
    tab = opened(browser, exported_page.page(run), tmp_path / "page.html")
    picked = tab.locator(".ddt-viewer-picked")
    whole = stretch(tab)

    # search for a collective: it is marked in the lanes and in the other views
    search = tab.get_by_label("Search")
    search.fill(f"#{last}")
    expect(tab.get_by_text("3 found")).to_be_visible()
    search.press("Enter")
    expect(picked).to_contain_text(f"#{last}")
    expect(picked).to_contain_text("3 of 4 ranks entered")
    expect(picked).to_contain_text(re.compile(r"cell\[\d+\] line \d+: .*all_reduce"))
    mark = marks.role(marks.of_call(group, last))
    marked = tab.locator(f".ddt-{mark}")
    assert marked.count() > 1, "the picture of the hang and the list of collectives show it"
    for element in marked.all():
        expect(element).to_have_class(re.compile("ddt-picked"))
    assert tab.locator(".ddt-picked").count() > marked.count(), "its line is marked, too"

    # a button leads to what another view shows of its line
    picked.get_by_role("button").click()
    where = next(call.where for call in run.ranks[0].calls if call.sequence == last and call.where)
    expect(tab.locator(f".ddt-{marks.role(marks.of_line(where))}").first).to_be_in_viewport()

    # by keys only: zoom, move, the next event, the rank below, and back
    search.fill("")
    search.press("Tab")
    chart = tab.get_by_role("application")
    chart.focus()
    chart.press("+")
    expect(tab.locator(".ddt-viewer-range")).not_to_have_text(whole)
    near = stretch(tab)
    chart.press("ArrowLeft")
    expect(tab.locator(".ddt-viewer-range")).not_to_have_text(near)
    assert drawn_anew(tab)
    chart.press("Shift+ArrowLeft")
    expect(picked).to_contain_text(f"#{last - 1}")
    before = picked.inner_text()
    chart.press("ArrowDown")
    expect(picked).not_to_have_text(before)
    chart.press("Home")
    expect(tab.locator(".ddt-viewer-range")).to_have_text(whole)
    chart.press("Escape")
    assert tab.locator(".ddt-picked").count() == 0

    # fewer ranks are a lower picture
    full = chart.bounding_box()
    tab.get_by_role("textbox", name="Ranks").fill("0,2-3")
    expect(tab.get_by_role("textbox", name="Ranks")).to_have_attribute("aria-invalid", "false")
    fewer = chart.bounding_box()
    assert full
    assert fewer
    assert fewer["height"] < full["height"]
    tab.get_by_role("textbox", name="Ranks").fill("many")
    expect(tab.get_by_role("textbox", name="Ranks")).to_have_attribute("aria-invalid", "true")

    # the other way round: a click on a collective in the list picks it
    tab.get_by_text("every collective").click()
    tab.locator(f"tr.ddt-{mark}").click()
    expect(picked).to_contain_text(f"#{last}")

    # the pointer: what is below it is said, and the wheel zooms
    tab.get_by_role("textbox", name="Ranks").fill("")
    box = chart.bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] - 40, box["y"] + 45)
    expect(tab.locator(".ddt-viewer-tip")).to_contain_text("waiting for a rank")
    tab.keyboard.down("Control")
    shown = stretch(tab)
    tab.mouse.wheel(0, -200)
    expect(tab.locator(".ddt-viewer-range")).not_to_have_text(shown)
    tab.context.close()


def test_strings_of_strangers_stay_text_in_the_viewer(
    browser: Browser, root: Path, tmp_path: Path
) -> None:
    """Each is found, picked and shown; nothing runs, and no element is added."""
    plain = plain_of(root / HANG)
    for stranger in ("script", "image", "end of a style sheet", "entities"):
        text = CORPUS[stranger]
        page = exported_page.page(infected(plain, text))
        tab = opened(browser, page, tmp_path / f"{stranger}.html")
        search = tab.get_by_label("Search")
        search.fill("all_reduce")
        search.press("Enter")
        expect(tab.locator(".ddt-viewer-picked")).to_contain_text(text[:12])
        inside = "img, script, iframe, svg, a, style"
        assert tab.locator(f".ddt-viewer >> css={inside}").count() == 0
        assert tab.evaluate("typeof pwn") == "undefined"
        tab.context.close()


def test_without_scripts_the_views_are_there(browser: Browser, root: Path, tmp_path: Path) -> None:
    run = replace(Snapshot.load(root / HANG), notes=())
    tab = opened(browser, exported_page.page(run), tmp_path / "page.html", scripts=False)
    expect(tab.get_by_role("heading", name="Explore the timeline")).to_be_hidden()
    expect(tab.get_by_role("heading", name="collectives")).to_be_visible()
    tab.context.close()


def test_the_widget_in_a_closed_frame(browser: Browser, root: Path, tmp_path: Path) -> None:
    given = [viewer.source(), viewer_data.encode(Snapshot.load(root / HANG))]
    inside = FRAME.replace("SOURCE_AND_DATA", json.dumps(given).replace("</", r"<\/"))
    page = f'<iframe width="900" height="700" sandbox="allow-scripts" srcdoc="{escape(inside)}">'
    file = tmp_path / "frame.html"
    file.write_text(page, encoding="utf-8")
    context = browser.new_context()
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(file.as_uri())
    output = tab.frame_locator("iframe").locator("body")
    shown = output.locator(".ddt-viewer-range")
    expect(shown).to_contain_text("0 to ")
    whole = shown.inner_text()
    chart = output.get_by_role("application")
    chart.focus()
    chart.press("+")
    expect(shown).not_to_have_text(whole)
    output.get_by_label("Search").fill("#5")
    output.get_by_label("Search").press("Enter")
    expect(output.locator(".ddt-viewer-picked")).to_contain_text("3 of 4 ranks entered")
    assert said == []
    context.close()


def test_axe_finds_nothing_with_a_picked_event(
    browser: Browser, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(exported_page.page(Snapshot.load(root / HANG)), encoding="utf-8")
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
        tab = context.new_page()
        tab.goto(file.as_uri())
        tab.get_by_label("Search").fill("all_reduce")
        tab.get_by_label("Search").press("Enter")
        expect(tab.locator(".ddt-picked").first).to_be_attached()
        found = Axe().run(tab, options={"resultTypes": ["violations"]})
        assert found.response["violations"] == []
        context.close()


@pytest.mark.parametrize("shell", ["JupyterLab", "Notebook 7"])
def test_the_widget_in_a_notebook(page: Page, lab: Lab, root: Path, shell: str) -> None:
    """Its keys are its own, a line leads to its cell, and a pick is marked in other outputs."""
    shutil.copy(root / HANG, lab.folder / "hang.ddt.json")
    cell = Snapshot.load(root / HANG).cell.source  # it fails here, but has the number of the run
    diagnosis = "import ddt_notebook as ddt; ddt.diagnose(Snapshot.load('hang.ddt.json'))"
    name = lab.write(f"widget of {shell}.ipynb", cell, WIDGET, diagnosis)
    if shell == "Notebook 7":
        pytest.importorskip("notebook", reason="Notebook 7 is not installed")
        page.open_in_notebook_7(name)
    else:
        page.open(name)
    for number in range(3):
        page.run_to_end(number)
    output = page.output(1)
    picked = output.locator(".ddt-viewer-picked")
    chart = output.get_by_role("application")
    chart.focus()
    whole = output.locator(".ddt-viewer-range").inner_text()
    chart.press("+")
    expect(output.locator(".ddt-viewer-range")).not_to_have_text(whole)
    chart.press("Home")
    expect(output.locator(".ddt-viewer-range")).to_have_text(whole)
    chart.press("ArrowDown")
    expect(picked).to_contain_text("all_reduce")
    expect(chart).to_be_focused()

    search = output.get_by_label("Search")
    search.fill("#5")
    search.press("Enter")
    expect(picked).to_contain_text("3 of 4 ranks entered")
    expect(page.output(2).locator(".ddt-picked").first).to_be_attached()
    for theme in THEMES:
        page.theme(theme)
        assert page.violations(".ddt-viewer") == []
        page.picture(f"widget-{shell}-{theme}")
    picked.get_by_role("button").click()
    expect(page.cell(0).locator(".cm-content")).to_be_focused()
    chart.press("Escape")
    expect(page.output(2).locator(".ddt-picked")).to_have_count(0)
    page.output(2).get_by_text("never entered", exact=True).click()
    expect(picked).to_contain_text("#5")
    page.errors[:] = page.ours  # Notebook 7 has errors of its own
