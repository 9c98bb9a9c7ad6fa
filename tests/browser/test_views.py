"""Views of the last run beside the notebook, the ranks' devices, and the report as a file."""

from __future__ import annotations

import re
import shutil

from playwright.sync_api import Locator, expect

from .lab import SIZE, THEMES, Lab, Page

START = "%load_ext ddt_notebook\n%ddt_start -n 2"
HOSTILE = "<img src=x onerror='window.hit=1'>"
TRAIN = f"""%%ddt_debug
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
dist.barrier()  # {HOSTILE}"""
WAITS = "%%ddt\nimport time\nif rank == 0:\n    time.sleep(60)\ndist.barrier()"
REPORTED = ("Placement", "Memory", "Partition", "Collectives", "Timeline", "Parity")
VIEWS = ("Memory", "Timeline", "Collectives", "Placement", "Partition", "Parity")


def view(page: Page, name: str) -> Locator:
    """A view that was opened."""
    return page.tab.locator(f".ddt-lab-snapshot[id^='ddt-notebook-{name.lower()}-']")


def test_views_open_beside_the_notebook_and_follow_the_last_run(page: Page, lab: Lab) -> None:
    page.open(lab.write("train.ipynb", START, "%%ddt\ndist.barrier()", TRAIN, WAITS))
    page.open_panel()
    expect(page.button("Memory")).to_have_count(0)
    page.run_to_end(0)
    page.button("Memory").click()
    expect(view(page, "Memory")).to_contain_text("nothing has run on ranks yet")
    page.run_to_end(1)
    expect(view(page, "Memory")).to_contain_text("nothing was recorded for memory in cell[2]")
    expect(view(page, "Memory")).to_contain_text("%%ddt_debug")
    page.run_to_end(2)
    for name in VIEWS:
        page.button(name).click()
        expect(view(page, name)).to_be_visible()
        expect(view(page, name)).to_contain_text(f"{name.lower()} · after cell[3]")
    expect(page.tab.get_by_role("tab", name="Memory · train.ipynb")).to_have_count(1)
    look_in_every_theme(page)
    pick_in_the_timeline(page)
    assert page.tab.evaluate("() => window.hit") is None

    page.run(3)
    expect(page.row(1)).to_contain_text("waits")
    page.button("Collectives").click()
    expect(view(page, "Collectives")).to_contain_text(
        "Cell[4] is running: this view shows the last run"
    )
    expect(view(page, "Collectives")).to_contain_text("collectives · after cell[3]")
    page.picture("view-while-a-cell-blocks")
    page.button("Interrupt").click()
    page.ended(3)
    expect(view(page, "Collectives")).to_contain_text("collectives · after cell[4]")
    expect(view(page, "Collectives")).not_to_contain_text("is running: this view")


def look_in_every_theme(page: Page) -> None:
    """The views are accessible, and scroll where they are wider than the page."""
    for theme in THEMES:
        page.theme(theme)
        for name in VIEWS:
            page.button(name).click()
            expect(view(page, name)).to_contain_text(f"{name.lower()} · after cell[3]")
            page.picture(f"view-{name.lower()}-{theme.replace(' ', '-').lower()}")
            assert page.violations(f"[id^='ddt-notebook-{name.lower()}-']") == []

    page.button("Timeline").click()
    shown = view(page, "Timeline")
    expect(shown).to_be_visible()
    page.tab.set_viewport_size({"width": 1000, "height": 700})
    shown.locator("tbody tr").first.locator("td").last.hover(position={"x": 1, "y": 1})
    page.tab.mouse.wheel(2000, 0)
    page.picture("view-narrow")
    moved = (
        "node => [...node.querySelectorAll('*'), node].filter(part => part.scrollLeft > 0)"
        ".map(part => getComputedStyle(part).overflowX)"
    )
    page.tab.wait_for_function(f"node => ({moved})(node).length", arg=shown.element_handle())
    assert "auto" in shown.evaluate(moved)
    page.tab.set_viewport_size(SIZE)


def pick_in_the_timeline(page: Page) -> None:
    """A collective is searched for; the other views mark it, and its line is a link."""
    page.button("Timeline").click()
    timeline = view(page, "Timeline")
    timeline.get_by_label("Search").fill("barrier")
    timeline.get_by_label("Search").press("Enter")
    picked = timeline.locator(".ddt-viewer-picked")
    expect(picked).to_contain_text(HOSTILE)
    page.picture("view-timeline-picked")
    page.button("Collectives").click()
    marked = view(page, "Collectives").locator("tr.ddt-picked")
    expect(marked).to_have_count(2)
    expect(marked.first).to_contain_text("barrier")
    page.button("Timeline").click()
    picked.get_by_role("button").click()
    expect(page.cell(2).locator(".cm-content")).to_be_focused()


def test_a_kernel_that_answers_only_between_cells_reports_it(page: Page, lab: Lab) -> None:
    """As ipykernel 6 does, which has no subshells."""
    page.open(lab.write("older.ipynb", START, "%%ddt\ndist.barrier()", WAITS))
    page.tab.evaluate(
        "() => { const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;"
        " Object.defineProperty(kernel, 'supportsSubshells', { value: false });"
        # of comms that had one already
        " kernel.requestDeleteSubshell = () => ({ done: Promise.resolve() }); }"
    )
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    page.run(2)
    expect(page.row(1)).to_contain_text("waits")
    page.button("Collectives").click()
    expect(view(page, "Collectives")).to_contain_text("This kernel answers when cell[3] has ended")
    page.button("Export…").click()
    expect(page.tab.get_by_role("alert")).to_contain_text("this kernel answers only when")
    page.button("Interrupt").click()
    page.ended(2)
    expect(view(page, "Collectives")).to_contain_text("collectives · after cell[3]")
    expect(view(page, "Collectives")).not_to_contain_text("This kernel answers")


def test_each_rank_has_its_device_and_its_memory_against_its_cap(page: Page, lab: Lab) -> None:
    start = "%load_ext ddt_notebook\n%ddt_start -n 2 --memory 400M"
    simulate = "%ddt_stop\n%ddt_start -n 2 --simulate cuda:2"
    page.open(lab.write("devices.ipynb", start, "%%ddt\nx = bytearray(300_000_000)", simulate))
    page.open_panel()
    page.run_to_end(0)
    expect(page.row(0)).to_contain_text(re.compile(r"ready.*cpu · \d.* MB"))
    page.run_to_end(1)
    expect(page.row(1)).to_contain_text(" of 419 MB allocated")
    assert page.row(1).locator("meter").evaluate("meter => meter.value") > 0.6
    for theme in THEMES:
        page.theme(theme)
        page.picture(f"devices-{theme.replace(' ', '-').lower()}")
        assert page.violations("#ddt-notebook-ranks") == []
    page.run_to_end(2)
    expect(page.row(1)).to_contain_text("cuda:1 (simulated)")
    expect(page.row(1).locator("meter")).to_have_count(0)


def test_a_kernel_that_has_gone_is_reported(page: Page, lab: Lab) -> None:
    page.open(lab.write("gone.ipynb", START, "%%ddt\ndist.barrier()"))
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    page.menu("Ranks", "View of Last Run", "Timeline")
    expect(view(page, "Timeline")).to_contain_text("timeline · after cell[2]")
    page.tab.keyboard.press("Control+Shift+C")
    page.tab.get_by_placeholder("SEARCH", exact=True).fill("show view: parity")
    page.tab.keyboard.press("Enter")
    expect(view(page, "Parity")).to_be_visible()
    page.menu("Ranks", "View of Last Run", "Timeline")
    page.tab.evaluate(
        "() => window.jupyterapp.shell.widgets('main').find(w => w.sessionContext)"
        ".sessionContext.session.kernel.restart()"
    )
    expect(view(page, "Timeline")).to_contain_text("The kernel has gone: this view is from before.")
    enabled = "() => window.jupyterapp.commands.isEnabled('ddt-notebook:export-report')"
    assert page.tab.evaluate(enabled) is False


def test_the_report_is_written_beside_the_notebook(page: Page, lab: Lab) -> None:
    """By the keyboard; asks before it replaces a file.

    It can be read without JupyterLab, in light and dark.
    """
    page.open(lab.write("job.ipynb", START, TRAIN, WAITS))
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    page.run(2)
    expect(page.row(1)).to_contain_text("waits")
    page.button("Collectives").click()  # shown meanwhile, and written
    expect(view(page, "Collectives")).to_contain_text("collectives · after cell[2]")
    page.button("Export…").focus()
    page.tab.keyboard.press("Enter")
    dialog = page.tab.get_by_role("dialog")
    expect(dialog.get_by_role("textbox")).to_have_value("job-report.html")
    page.tab.keyboard.press("Enter")
    written = page.tab.get_by_text("Report written: job-report.html")
    expect(written.first).to_be_visible()
    page.picture("report-written")
    report = lab.folder / "job-report.html"
    alone = lab.folder / "alone.html"
    shutil.copy(report, alone)
    page.tab.get_by_role("button", name="Open", exact=True).first.click()
    expect(page.tab.get_by_role("tab", name="job-report.html")).to_be_visible()
    page.button("Interrupt").click()

    report.write_text("mine")
    page.tab.get_by_role("tab", name="job.ipynb").first.click()
    page.button("Export…").click()
    expect(dialog.get_by_role("textbox")).to_be_focused()
    page.tab.keyboard.press("Enter")
    expect(dialog).to_contain_text("job-report.html exists already.")
    page.tab.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert report.read_text() == "mine"

    page.tab.goto(alone.as_uri())
    for scheme in ("light", "dark"):
        page.tab.emulate_media(color_scheme=scheme)
        page.picture(f"report-{scheme}")
        assert page.violations("body") == []
    expect(page.tab.locator("h2")).to_have_text(["Diagnosis", "Explore the timeline", *REPORTED])
    assert page.tab.evaluate("() => window.hit") is None
