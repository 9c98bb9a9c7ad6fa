from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.host.listeners import DisplayMessage
from ddt_notebook.magics import output_stream
from ddt_notebook.magics.output_stream import OutputStreamer
from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.waits import Waiting


class Publisher:
    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []

    def publish(self, data: dict[str, Any], **settings: Any) -> None:
        self.published.append({"data": data, **settings})


class Shell:
    def __init__(self, *, notebook: bool) -> None:
        self.kernel = object() if notebook else None
        self.display_pub = Publisher()


class Scene:
    def __init__(self, ranks: int, *, notebook: bool = False, hosts: str = "") -> None:
        self.now = 0.0
        self.shell = Shell(notebook=notebook)
        self.streamer = OutputStreamer(
            self.shell,  # type: ignore[arg-type]
            range(ranks),
            lambda rank, name: Path(f"/out/rank{rank}.{name[3:]}"),
            clock=lambda: self.now,
            hosts=dict(enumerate(hosts.split())),
        )

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.streamer.on_tick(self.now)

    @property
    def published(self) -> list[dict[str, Any]]:
        return self.shell.display_pub.published


PNG = {"image/png": "aaaa", "text/plain": "<Figure>"}


def test_lines_are_labelled_and_equal_ones_merged(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.streamer.on_output(rank, "stdout", f"epoch 1\nloss {rank % 2}\n")
    scene.streamer.on_end()
    assert capsys.readouterr().out == (
        "[ranks 0-3] epoch 1\n[ranks 0, 2] loss 0\n[ranks 1, 3] loss 1\n"
    )


def test_labels_name_the_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(4, hosts="a a b b")
    for rank in range(4):
        scene.streamer.on_output(rank, "stdout", f"same\nhalf {rank // 2}\nown {rank}\n")
    scene.streamer.on_end()
    assert capsys.readouterr().out == (
        "[ranks 0-3] same\n[ranks 0, 1 · a] half 0\n[ranks 2, 3 · b] half 1\n"
        "[rank 0 · a] own 0\n[rank 1 · a] own 1\n[rank 2 · b] own 2\n[rank 3 · b] own 3\n"
    )


def test_output_streams_while_the_cell_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(2)
    scene.streamer.on_output(0, "stdout", "early\n")
    scene.wait(0.05)
    assert capsys.readouterr().out == ""
    scene.wait(0.2)
    assert capsys.readouterr().out == "[rank 0] early\n"


def test_stderr_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(1)
    scene.streamer.on_output(0, "stderr", "warning\n")
    scene.streamer.on_end()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "[rank 0] warning\n")


def test_a_flood_is_cut_and_the_file_named(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(1)
    for number in range(output_stream.LINES_SHOWN + 500):
        scene.streamer.on_output(0, "stdout", f"line {number}\n")
    scene.streamer.on_output(0, "stdout", "z" * 10_000_000)
    scene.streamer.on_end()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == output_stream.LINES_SHOWN + 1
    assert lines[-1] == "[rank 0] … more output is in /out/rank0.out"


def test_many_ranks_share_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = 4 * output_stream.RANKS_IN_FULL
    scene = Scene(ranks)
    for rank in range(ranks):
        for number in range(output_stream.LINES_SHOWN):
            scene.streamer.on_output(rank, "stdout", f"line {number} of {rank}\n")
    scene.streamer.on_end()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == ranks * (output_stream.LINES_SHOWN // 4 + 1)
    for rank in range(ranks):
        assert f"[rank {rank}] … more output is in /out/rank{rank}.out" in lines


def test_one_long_line_is_cut_too(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(1)
    scene.streamer.on_output(0, "stdout", "z" * 10_000_000)
    scene.streamer.on_end()
    out = capsys.readouterr().out
    assert len(out) < 2 * output_stream.CHARACTERS_SHOWN
    assert out.endswith("… more output is in /out/rank0.out\n")


def test_a_progress_bar_is_live_and_ends_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(2, notebook=True)
    for percent in range(100):
        for rank in range(2):
            scene.streamer.on_output(rank, "stderr", f"\r{percent}% of {rank}")
        scene.wait(0.02)
    assert capsys.readouterr().err == ""
    assert 5 <= len(scene.published) <= 11
    first, last = scene.published[0], scene.published[-1]
    assert not first["update"]
    assert last["update"]
    assert first["transient"] == last["transient"]
    assert "[rank 1] 9" in last["data"]["text/plain"]
    scene.streamer.on_end()
    assert scene.published[-1]["data"] == {"text/plain": "", "text/html": ""}
    assert capsys.readouterr().err == "[rank 0] 99% of 0\n[rank 1] 99% of 1\n"


def waiting(waited_s: float) -> Waiting:
    at_work = RankReport(rank=1, state="running", position=Position(file="cell[1]", line=3))
    call = Call(index=0, op="barrier", sequence=3, members=(0, 1))
    return Waiting(ranks=(0,), call=call, waited_s=waited_s, awaited=(at_work,))


def test_the_line_about_a_wait_comes_and_goes() -> None:
    scene = Scene(2, notebook=True)
    scene.streamer.on_waiting(waiting(4.2))
    scene.wait(0.3)
    text = scene.published[-1]["data"]["text/html"]
    assert "rank 0 has been waiting in barrier #3 for 4.2 s · rank 1 is at work" in text
    scene.streamer.on_waiting(None)
    scene.wait(0.3)
    assert scene.published[-1]["data"]["text/plain"] == ""


def test_a_long_wait_is_shown_anew_once_a_second_in_one_place() -> None:
    scene = Scene(2, notebook=True)
    for tick in range(1000):
        scene.streamer.on_waiting(waiting(0.03 * tick))
        scene.wait(0.03)
    assert 25 <= len(scene.published) <= 31
    assert all(shown["update"] for shown in scene.published[1:])
    scene.streamer.on_end()
    assert scene.published[-1]["data"] == {"text/plain": "", "text/html": ""}


def test_a_wait_fills_a_few_lines_of_a_terminal_and_leaves_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    scene = Scene(2)
    scene.streamer.on_waiting(waiting(4.2))
    scene.wait(0.3)
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 2
    assert max(map(len, shown.splitlines())) < 80
    scene.streamer.on_end()
    assert capsys.readouterr().err == "\r\x1b[2K\x1b[1A\x1b[2K"


def test_a_wait_is_noted_a_few_times_where_output_goes_to_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = Scene(2)
    for second in range(1800):
        scene.streamer.on_waiting(waiting(float(second)))
        scene.wait(1.0)
    scene.streamer.on_waiting(None)
    scene.streamer.on_waiting(waiting(4.0))
    scene.streamer.on_end()
    noted = capsys.readouterr().err.splitlines()
    assert len(noted) == 3
    assert all("rank 1 is at work in cell[1] line 3" in line for line in noted)


def test_a_quiet_cell_publishes_nothing() -> None:
    scene = Scene(2, notebook=True)
    scene.wait(1.0)
    scene.streamer.on_end()
    assert scene.published == []


def test_a_figure_has_a_label_and_keeps_its_place_in_the_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = Scene(2, notebook=True)
    scene.streamer.on_output(1, "stdout", "before\n")
    scene.streamer.on_display(1, DisplayMessage("display", PNG))
    scene.streamer.on_end()
    assert capsys.readouterr().out == "[rank 1] before\n"
    label, figure = scene.published
    assert label["data"]["text/plain"] == "[rank 1]"
    assert figure["data"] == PNG
    assert not figure["update"]


def test_equal_rich_results_are_shown_once_and_different_ones_apart() -> None:
    scene = Scene(3, notebook=True)
    for rank in range(3):
        scene.streamer.on_display(rank, DisplayMessage("result", {"text/html": "<b>1</b>"}))
        other = PNG | {"image/png": f"image {rank // 2}"}
        scene.streamer.on_display(rank, DisplayMessage("display", other))
    scene.streamer.on_end()
    labels = [p["data"]["text/plain"] for p in scene.published[::2]]
    assert labels == ["[ranks 0-2]", "[ranks 0, 1]", "[rank 2]"]


def test_plain_results_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(2, notebook=True)
    for rank in range(2):
        scene.streamer.on_display(rank, DisplayMessage("result", {"text/plain": "[[1],\n [2]]"}))
    scene.streamer.on_end()
    assert capsys.readouterr().out == "[ranks 0, 1] [[1],\n[ranks 0, 1]  [2]]\n"


def test_updates_reach_the_display_of_their_own_rank() -> None:
    scene = Scene(2, notebook=True)
    for rank in range(2):
        shown = DisplayMessage("display", PNG, transient={"display_id": "loss"})
        scene.streamer.on_display(rank, shown)
    for rank in (1, 0):
        new = PNG | {"image/png": f"new {rank}"}
        scene.streamer.on_display(
            rank, DisplayMessage("display", new, transient={"display_id": "loss"}, update=True)
        )
    scene.streamer.on_end()
    first, second = (p["transient"]["display_id"] for p in scene.published[1:4:2])
    updates = {p["data"]["image/png"]: p for p in scene.published[4:]}
    assert first != second
    assert updates["new 0"]["transient"]["display_id"] == first
    assert updates["new 1"]["transient"]["display_id"] == second
    assert all(p["update"] for p in updates.values())


def test_after_clear_output_a_rank_rewrites_its_own_figure() -> None:
    scene = Scene(2, notebook=True)
    for step in range(3):
        scene.streamer.on_display(0, DisplayMessage("clear"))
        scene.streamer.on_display(0, DisplayMessage("display", PNG | {"image/png": str(step)}))
    scene.streamer.on_end()
    figures = [p for p in scene.published if "image/png" in p["data"]]
    assert [f["update"] for f in figures] == [False, True, True]
    assert len({f["transient"]["display_id"] for f in figures}) == 1


def test_a_terminal_shows_the_text_of_rich_output(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(2)
    scene.streamer.on_display(1, DisplayMessage("display", PNG))
    scene.streamer.on_end()
    assert capsys.readouterr().out == "[rank 1] <Figure>\n"
    assert scene.published == []
