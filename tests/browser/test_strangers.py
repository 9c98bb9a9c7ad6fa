"""Strings of strangers in a real browser: all outputs of all views on one page.

The same page with harmless strings says which elements belong there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Request, expect

import ddt_notebook as ddt
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Snapshot
from ddt_notebook.views import exported_page, panel, viewer, viewer_data
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.report import show

from ..strangers import CORPUS, infected, plain_of, runs, texts_in
from .lab import Lab, Page
from .test_output import opened

pytestmark = pytest.mark.timeout(600)

#: Those that mean something to a browser.
FOR_BROWSERS = (
    *("script", "image", "end of an attribute", "end of a style sheet", "link", "Markdown"),
    *("entities", "comment", "template"),
)
#: What has to be in the page for a call of ``pwn`` to be noticed.
_BEGIN = "<!doctype html><meta charset=utf-8><script>pwned = []; pwn = n => pwned.push(n)</script>"
#: Elements of which the strings are made, or that they end.
TAGS = ["script", "img", "a", "svg", "iframe", "style", "pre", "table", "details"]
#: How many of those elements the views have, which elements and attributes there are on the whole
#: page, and what could run, load or lead elsewhere.
_COUNT = """tags => {
  const counts = {}, kinds = {}, strange = [];
  for (const one of document.body.querySelectorAll('*')) {
    kinds[one.localName] = true;
    if (tags.includes(one.localName) && one.closest('section'))
      counts[one.localName] = (counts[one.localName] || 0) + 1;
    for (const {name, value} of one.attributes) {
      kinds[`${one.localName} ${name}`] = true;
      const leads = ['href', 'src', 'srcdoc', 'action', 'formaction', 'data', 'xlink:href'];
      if (name.startsWith('on') || (leads.includes(name) && !value.startsWith('#')))
        strange.push(`${one.localName} ${name}=${value.slice(0, 80)}`);
    }
  }
  return [counts, Object.keys(kinds), strange, pwned];
}"""
_MEDIA = "application/vnd.plotly.v1+json"
_DRAW = """async (figures) => {
  for (const figure of figures) {
    const at = document.body.appendChild(document.createElement('div'));
    await Plotly.newPlot(at, figure.data, figure.layout, {displayModeBar: false});
    for (let curve = 0; curve < figure.data.length; curve++)
      if (figure.data[curve].type !== 'table')
        Plotly.Fx.hover(at, [{curveNumber: curve, pointNumber: 0}]);
  }
  await new Promise(done => setTimeout(done, 0));
}"""


#: What could run, load or lead elsewhere in what ddt_notebook shows in JupyterLab.
_STRANGE = """() => {
  const strange = [];
  const ours = '#ddt-notebook-ranks *, .ddt-lab-output *, .jp-OutputArea-output *';
  for (const one of document.querySelectorAll(ours)) {
    if (['script', 'img', 'iframe'].includes(one.localName)) strange.push(one.outerHTML);
    for (const {name, value} of one.attributes)
      if (name.startsWith('on') || value.startsWith('javascript:'))
        strange.push(one.outerHTML);
  }
  return strange;
}"""
#: Shows the viewer as anywidget does, from the widget's module and its data.
_WIDGET = """async ([source, data]) => {
  const module = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
  const {default: widget} = await import(module);
  const model = {get: () => data, on: () => null, off: () => null};
  await widget.render({model, el: document.body});
}"""


def outputs(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """HTML, and figures, of every view of a run."""
    report = diagnose(snapshot)
    for view in (show(report, snapshot), *(one.of(snapshot) for one in VIEWS.values())):
        bundle = view._repr_mimebundle_()
        yield "html", bundle["text/html"]
        if _MEDIA in bundle:
            yield "figure", bundle[_MEDIA]
    yield "html", ddt.compare(snapshot, snapshot).to_html()
    # JupyterLab's panel puts these texts into elements, and those that begin with a tag as HTML
    for text in texts_in(panel.of_report(report, snapshot)):
        if text.startswith("<"):
            yield "html", text


def made(strings: list[str]) -> tuple[str, list[Any]]:
    """A page with all outputs, and all figures."""
    parts, figures = [], []
    for stranger in strings:
        for _, plain in runs():
            for kind, output in outputs(infected(plain, stranger)):
                if kind == "figure":
                    figures.append(output)
                else:
                    parts.append(output)
    views = "\n".join(f"<section>{part}</section>" for part in parts)
    # how many candidates are found for a text depends on its words
    texts = "\n".join(shown for stranger in strings for shown in pasted(stranger))
    # a whole page, without its policy, which would stop what this test looks for
    for _, plain in runs():
        whole = exported_page.page(infected(plain, strings[0]))
        texts += re.sub("<meta http-equiv=[^>]*>", "", whole)
    return f"{_BEGIN}{views}{texts}", figures


def pasted(stranger: str) -> Iterator[str]:
    """HTML about a text and about code."""
    yield ddt.diagnose_text(f"RuntimeError: Connection closed by peer {stranger}").to_html()
    yield ddt.lint(f"if rank == 0:  # {stranger}\n    dist.all_reduce(x, {stranger!r})\n").to_html()


def harmless(stranger: str) -> str:
    """A string as long, with breaks between words at the same places."""
    return "".join(letter if letter.isspace() else "y" for letter in stranger)


def elements(browser: Browser, file: Path, figures: list[Any]) -> tuple[Counter[str], set[str]]:
    """How many elements of `TAGS` the views have, and all kinds of elements on the page.

    Nothing on it may run, load or ask.
    """
    library = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context()
    tab = context.new_page()

    def dismiss(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    def note(message: ConsoleMessage) -> None:
        said.append(message.text)

    def fail(error: Error) -> None:
        said.append(str(error))

    def ask(request: Request) -> None:
        asked.append(request.url)

    tab.on("dialog", dismiss)
    tab.on("console", note)
    tab.on("pageerror", fail)
    tab.on("request", ask)
    tab.goto(file.as_uri())
    tab.wait_for_selector(".ddt-viewer", state="attached")
    tab.add_script_tag(path=library)
    tab.evaluate(_DRAW, json.loads(json.dumps(figures)))
    counts, kinds, strange, pwned = tab.evaluate(_COUNT, TAGS)
    context.close()
    assert pwned == []
    assert strange == []
    assert said == []
    assert asked == [file.as_uri()]
    return Counter(counts), set(kinds)


def test_no_string_of_a_stranger_adds_an_element_or_runs(browser: Browser, tmp_path: Path) -> None:
    hostile = [CORPUS[name] for name in FOR_BROWSERS]
    seen = {}
    for name, strings in (("hostile", hostile), ("harmless", [*map(harmless, hostile)])):
        page, figures = made(strings)
        assert figures, "hover texts are shown, too"
        if name == "hostile":
            assert page.count("pwn(") > 1000, "the strings are shown"
        file = tmp_path / f"{name}.html"
        file.write_text(page, encoding="utf-8", errors="replace")
        seen[name] = elements(browser, file, figures)
    (counts, kinds), (expected, known) = seen["hostile"], seen["harmless"]
    assert counts == expected, (counts - expected, expected - counts)
    assert kinds <= known
    assert counts["table"] > 100


def test_live_messages_of_strangers_stay_text_in_jupyterlab(page: Page, lab: Lab) -> None:
    """The panel and the output of the ranks while a cell runs and after it, and the finding."""
    texts = [CORPUS[name] for name in FOR_BROWSERS]
    given = f"%%ddt\nimport time\ntexts = {texts!r}\n"
    waits = "print(*texts, sep='\\n')\nif rank == 0:\n    time.sleep(300)  # {}\ndist.barrier()"
    raises = "if rank == 0:\n    raise ValueError(*texts)\ndist.barrier()"
    page.tab.add_init_script("pwned = []; pwn = n => pwned.push(n)")
    start = "%load_ext ddt_notebook\n%ddt_start -n 2"
    cells = start, given + waits.format(" ".join(texts)), given + raises
    page.open(lab.write("strangers.ipynb", *cells), anew=True)
    page.open_panel()
    page.run_to_end(0)
    lines = opened(page)
    page.run(1)
    expect(page.row(0)).to_contain_text("time.sleep(300)  # <script>pwn(1)</script>")
    for text in texts:
        expect(lines).to_contain_text(text)
    page.button("Interrupt").click()
    page.ended(1)
    page.run_to_end(2)
    expect(page.panel).to_contain_text("ValueError: ('<script>pwn(1)</script>'")
    assert page.tab.evaluate(_STRANGE) == []
    assert page.tab.evaluate("pwned") == []


@pytest.mark.parametrize("stranger", ["script", "end of a style sheet"])
def test_the_data_of_the_widget_stays_text(browser: Browser, root: Path, stranger: str) -> None:
    plain = plain_of(root / "docs/gallery/hang-broken.ddt.json")
    data = viewer_data.encode(infected(plain, CORPUS[stranger]))
    context = browser.new_context()
    tab = context.new_page()
    tab.evaluate("() => { window.pwned = []; window.pwn = n => pwned.push(n); }")
    tab.evaluate(_WIDGET, [viewer.source(), data])
    search = tab.get_by_label("Search")
    search.fill("all_reduce")
    search.press("Enter")
    expect(tab.locator(".ddt-viewer-picked")).to_contain_text(CORPUS[stranger][:12])
    assert tab.locator(".ddt-viewer >> css=img, script, iframe, svg, a, style").count() == 0
    assert tab.evaluate("pwned") == []
    context.close()
