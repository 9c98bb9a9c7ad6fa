"""Whatever a run, a file or a log contains, views show it as text."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import time
import types
import zlib
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.assistant.assistant import Assistant
from ddt_notebook.assistant.panel import Panel
from ddt_notebook.classroom.submissions import Row, write_csv
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.host.listeners import Moment
from ddt_notebook.jobs.recorded_job import snapshot_of_folder
from ddt_notebook.model import Position, RankError, Snapshot
from ddt_notebook.model.hosts import HostFacts, Trial
from ddt_notebook.model.preflight import Check, Preflight
from ddt_notebook.model.replay import Departure, InputCall, ReplayOutcome
from ddt_notebook.preflight.hosts import host_checks, links
from ddt_notebook.views import exported_page, panel, viewer, viewer_data
from ddt_notebook.views.preflight import PreflightView
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.replay import ReplayView
from ddt_notebook.views.report import show
from ddt_notebook.widgets import lab_output, pages
from ddt_notebook.widgets.lab_output import LabOutput
from ddt_notebook.widgets.running_cell import RunningCell
from ddt_notebook.wire import job_files
from ddt_notebook.wire.job_files import RankStarted
from ddt_notebook.wire.messages import CellEnded
from ddt_notebook.wire.records import CallRecord, Group
from ddt_notebook.wire.ring import RingWriter

from ...fixtures.cases import FOLDER
from ...strangers import CORPUS, infected, plain_of, runs, texts_in, unsafe
from ..test_job_folder import rank
from ..test_shared_answers import ENTRY, on_two_hosts
from .test_html import KEPT

#: Elements of our own pages and pictures.
OURS = KEPT | {"style", "svg", "g", "rect", "text", "line", "path", "polyline", "title", "code"}
OURS |= {"circle", "polygon", "html", "head", "meta", "body", "main", "h1", "h2", "p", "section"}
OURS |= {"script", "br", "i", "ol", "a", "defs", "clippath", "pattern"}


class Elements(HTMLParser):
    """Collects what a browser could execute or load."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in OURS:
            self.strange.add(tag)
        if tag == "script" and attrs != [("type", "text/plain"), ("id", "ddt-viewer-data")]:
            self.strange.add(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "srcdoc", "x", "http"):
                self.strange.add(name)
            if name == "href" and "javascript:" in (value or ""):
                self.strange.add(str(value))


def strange(html: str) -> set[str]:
    """Elements and attributes of a page that are not ours."""
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser.strange


def outputs(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """What a terminal shows, what a browser shows, and data for a front end."""
    report = diagnose(snapshot)
    shown = show(report, snapshot)
    for view in (shown, *(one.of(snapshot) for one in VIEWS.values())):
        bundle = view._repr_mimebundle_()
        yield "text", bundle.pop("text/plain")
        yield "html", bundle.pop("text/html")
        yield "figure", bundle
        if hasattr(view, "to_json"):
            json.dumps(view.to_json())
    yield "text", str(ddt.compare(snapshot, snapshot))
    yield "html", ddt.compare(snapshot, snapshot).to_html()
    page, script = exported_page.page(snapshot), viewer.script()
    assert page.endswith(f"{script}</body>\n</html>\n") or "<script" not in page
    yield "html", page.removesuffix(f"{script}</body>\n</html>\n")
    yield "data", viewer_header(snapshot)
    yield "data", panel.of_report(report, snapshot)


def viewer_header(snapshot: Snapshot) -> Any:
    """The texts that the interactive viewer shows."""
    packed = viewer_data.encode(snapshot)
    if not packed:
        return {}
    raw = zlib.decompress(base64.b64decode(packed))
    header = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
    for group in header["groups"]:
        del group["name"]  # marks are made of it; it is not shown
    return header


@pytest.mark.parametrize("stranger", CORPUS)
def test_strings_of_strangers_stay_text_in_every_view(stranger: str) -> None:
    for name, plain in runs():
        for kind, output in outputs(infected(plain, CORPUS[stranger])):
            for text in texts_in(output):
                assert not unsafe(text), (name, kind)
                if kind == "html":
                    assert not strange(text), name
            if kind == "figure" and output:
                # Plotly interprets some HTML in the texts of a figure
                assert not any("<a " in t or "<script" in t for t in texts_in(output)), name


#: Saved runs whose findings say more about ranks than those of `runs`.
FURTHER = ("barrier-in-finally", "threads-beside-the-main-threads", "teachers-of-their-own-kind")
FEW = ("image", "clipboard of the terminal", "over the line")


@pytest.mark.parametrize(("name", "stranger"), list(zip(FURTHER, FEW, strict=True)))
def test_strings_of_strangers_stay_text_in_further_findings(name: str, stranger: str) -> None:
    plain = plain_of(FOLDER / f"{name}.ddt.json")
    for stranger_ in (stranger, "title of the terminal"):
        for kind, output in outputs(infected(plain, CORPUS[stranger_])):
            for text in texts_in(output):
                assert not unsafe(text), kind
                if kind == "html":
                    assert not strange(text)


@pytest.mark.parametrize("stranger", CORPUS)
def test_what_hosts_and_packages_tell_the_doctor_stays_text(stranger: str) -> None:
    text = CORPUS[stranger][:2000]
    other = HostFacts(
        versions={"torch": text, text: text},
        variables={"GLOO_SOCKET_IFNAME": text, text: text},
        name=text,
        name_addresses=(text,),
        gloo_interface=text,
        address=text,
        interface=text,
        mtu=9000,
        wall_s=1e5,
    )
    for count in (2, 8, 20):
        names = [f"{number}{text}" for number in range(count)]
        facts = dict.fromkeys(names, other) | {names[0]: replace(other, versions={}, mtu=1500)}
        trials = {
            pair: Trial(end="refused", error=text)
            if pair[0] == names[1]
            else Trial(end="passed", round_trip_s=1e-3, bytes_per_s=1e6)
            for pair in itertools.permutations(names, 2)
        }
        ahead_s = dict.fromkeys(names, 0.0) | {names[0]: 9.0}
        found = tuple(host_checks(facts, ahead_s, {f"lost{text}": text}, trials))
        package = Check("versions", "frameworks", "ok", text)
        view = PreflightView(
            Preflight(
                machine=text, checks=(*found, package), facts={text: text}, links=links(trials)
            )
        )
        assert {check.verdict for check in view.checks} == {"ok", "warning", "error"}
        assert not unsafe(view.to_text())
        assert not strange(view.to_html())
        assert not unsafe(view.to_html())


@pytest.mark.parametrize("stranger", CORPUS)
def test_a_replay_of_a_stranger_stays_text(stranger: str) -> None:
    text = CORPUS[stranger]
    where = Position(file=text, line=1, function=text, code=text)
    error = RankError(type=text, message=text, traceback=text, where=where)
    call = InputCall(op=text, dtypes=(text,), shapes=((1,),), details={text: text}, where=where)
    departure = Departure(
        number=1, what="operation", recorded=call, replayed=call, libraries=(text,)
    )
    for agreement, end in (("departed", departure), ("record ended", None), ("other end", None)):
        outcome = ReplayOutcome(
            rank=0,
            world_size=2,
            served=1,
            recorded=2,
            at=call,
            departure=end,
            unequal=(departure,),
            reason=text,
            names=(text,),
        )
        view = ReplayView(
            outcome,
            agreement,
            error=error,
            recorded_error=error,
            script=f"/{text}",
            changed=True,
            run=None,
            session=types.SimpleNamespace(stopped=False),
        )
        assert not unsafe(view.to_text())
        assert not unsafe(view.to_html())
        assert not strange(view.to_html())


@pytest.mark.parametrize("stranger", CORPUS)
def test_a_pasted_text_stays_text(stranger: str) -> None:
    text = f"RuntimeError: Connection closed by peer {CORPUS[stranger]}\n{CORPUS[stranger]}"
    report = ddt.diagnose_text(text)
    assert not unsafe(report.to_text())
    assert not strange(report.to_html())
    try:
        page = ddt.explain(text[:5000])
    except ddt.DdtError as error:
        shown = str(error), ""
    else:
        shown = page.to_text(), page.to_html()
    assert not unsafe(shown[0])
    assert not strange(shown[1])


@pytest.mark.parametrize("stranger", CORPUS)
def test_the_code_of_a_stranger_stays_text(stranger: str) -> None:
    quoted = repr(CORPUS[stranger])
    code = (
        f"if rank == 0:  # {CORPUS[stranger].splitlines()[0]}\n    dist.all_reduce(x, {quoted})\n"
    )
    found = ddt.lint(code)
    assert not unsafe(found.to_text())
    assert not strange(found.to_html())


def recorded(folder: Path, stranger: str) -> Snapshot:
    """A folder in which two ranks of hosts with this name have called what has this name."""
    text = stranger.encode(errors="replace").decode()[:2000]
    for number, host in enumerate("ab"):
        file = rank(folder, number, host)
        started = RankStarted(
            rank=number,
            world_size=2,
            host=host + text,
            pid=os.getpid(),
            born_s=psutil.Process().create_time(),
            started_s=time.monotonic(),
            wall_s=time.time(),
            script=text,
            arguments=(text,),
            directory=text,
            launcher=text,
            allocation=text,
            torch_version=text,
        )
        job_files.write(file, started)
        ring = RingWriter(folder / f"{host}-{os.getpid()}.calls")
        group = Group(f"0{text}", (0, 1))
        call = CallRecord(op=f"op{text}", group=group, dtypes=(text,), file=text, line=1)
        if not number:
            ring.begin(replace(call, function=text, library=text), time.monotonic(), blocking=True)
        error = RankError(type=f"Error{text}", message=text, traceback=text)
        ended = CellEnded(error=error if number else None, ended_s=time.monotonic())
        job_files.write(file.with_suffix(".end"), ended)
    return snapshot_of_folder(folder)


@pytest.mark.parametrize("stranger", CORPUS)
def test_a_recorded_folder_of_a_stranger_stays_text(stranger: str, tmp_path: Path) -> None:
    snapshot = recorded(tmp_path, CORPUS[stranger])
    assert {report.rank for report in snapshot.ranks} == {0, 1}
    for kind, output in outputs(snapshot):
        for text in texts_in(output):
            assert not unsafe(text), kind
            if kind == "html":
                assert not strange(text)


@pytest.mark.parametrize("stranger", ["script", "clipboard of the terminal", "over the line"])
def test_answers_of_another_host_stay_text(
    stranger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CORPUS[stranger].encode(errors="replace").decode()[:2000]
    here, there = on_two_hosts(tmp_path, monkeypatch)
    where = Position(file=text, line=1, function=text, code=text)
    assert there.runs[1].handle.recorder is not None
    entry = replace(ENTRY, op=f"op{text}", dtypes=(text,), where=where, library=text)
    there.runs[1].handle.recorder.add_flight([entry])
    there.runs[1].library_wait = ("0", 7), time.monotonic()
    there.share()
    assert list(tmp_path.glob("*.answers"))
    here.take_shared()
    snapshot = here.snapshot()
    blocked = snapshot.ranks[1].blocked_call
    assert blocked is not None
    assert text in blocked.op, "the string arrived"
    for kind, output in outputs(snapshot):
        for shown in texts_in(output):
            assert not unsafe(shown), kind
            if kind == "html":
                assert not strange(shown)


def test_a_million_characters_are_bounded_in_every_view() -> None:
    name, plain = runs()[1]
    for kind, output in outputs(infected(plain, "y" * 10**6)):
        if kind != "figure":
            assert sum(map(len, texts_in(output))) < 4_000_000, (name, kind)


@pytest.mark.parametrize("stranger", CORPUS)
def test_grades_of_strangers_stay_text(stranger: str) -> None:
    text, file = CORPUS[stranger], io.StringIO()
    row = Row(student=text, notebook=text, exercise=text, message=text)
    write_csv([row], file)
    assert not unsafe(file.getvalue().replace("\r\n", "\n"))


def sent_while_a_cell_runs(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """What the live panel displays, and what JupyterLab's side panel gets over its comm."""
    for outcome in (None, snapshot.outcome):
        moment = Moment(cell=1, elapsed_s=3.0, reports=snapshot.ranks, outcome=outcome)
        view = RunningCell().view(moment, ())
        bundle = view._repr_mimebundle_()
        yield "text", bundle["text/plain"]
        yield "html", bundle["text/html"]
        yield "data", panel.of_view(view, {})


def widgets_of_the_assistant(snapshot: Snapshot, run: Any) -> Iterator[tuple[str, Any]]:
    """Texts and labels of the buttons of ``%ddt_debug``."""
    assistant = Assistant.about(show(diagnose(snapshot), snapshot), run)
    made = Panel(assistant, shell=None)  # type: ignore[arg-type]
    yield "widget", [text.value for text in made._texts.values()]
    buttons = (*made._buttons.values(), *made._choices, *made._views.values())
    yield "data", [(button.description, button.tooltip) for button in buttons]


@pytest.mark.parametrize("stranger", CORPUS)
def test_messages_to_the_front_end_contain_text_only(
    stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    seen: list[tuple[str, str]] = []
    for name, plain in runs():
        snapshot = infected(plain, CORPUS[stranger])
        run = types.SimpleNamespace(
            snapshot=snapshot, outputs=dict.fromkeys(range(2), CORPUS[stranger])
        )
        known = types.SimpleNamespace(last_run=lambda run=run: run, get=lambda: None)
        monkeypatch.setattr(pages, "active", known)
        monkeypatch.setattr(lab_output, "active", known)
        LabOutput(sent.append).asked({"run": 0, "after": 0})
        assert sent[-1]["output"]["lines"]
        answers = [pages.answer(CORPUS[stranger][:1000]), *map(pages.answer, VIEWS)]
        shown = [("html", answer.pop("html")) for answer in answers]
        answers[0].pop("page")  # what the front end has asked for
        shown += sent_while_a_cell_runs(snapshot)
        shown += widgets_of_the_assistant(snapshot, run)
        for kind, output in [*shown, ("data", sent), ("data", answers)]:
            for text in texts_in(output):
                assert not unsafe(text), (name, kind)
                if kind in ("html", "widget"):
                    assert not strange(text), name
        seen += [(kind, str(output)) for kind, output in shown]
    if stranger == "script":
        assert "pwn(1)" in str(sent)
        for kind in ("html", "widget", "data"):
            assert any("pwn(1)" in output for one, output in seen if one == kind), kind
