from dataclasses import dataclass, field, replace

from ddt_notebook.model import Position
from ddt_notebook.model.torch_features import LOADERS, MissingFeature
from ddt_notebook.views.session_status import StatusView


@dataclass
class Rank:
    rank: int
    pid: int = 4000
    alive: bool = True
    state: str = "idle"
    position: Position | None = None
    memory_bytes: int | None = 210_000_000
    share_bytes: int = 60_000_000
    host: str = ""
    device: str = "cpu"


@dataclass
class Versions:
    host: str
    python: str = "3.12.1"
    torch: str = "2.13.0"


@dataclass
class Status:
    ranks: list[Rank]
    backend: str = "gloo"
    uptime_s: float = 12.0
    has_group: bool = True
    framework: str = ""
    frozen: bool = False
    simulated_gpus: int = 0
    seed: int | None = None
    missing_features: tuple[MissingFeature, ...] = ()
    versions: tuple[Versions, ...] = ()
    world_size: int = field(init=False)

    def __post_init__(self) -> None:
        self.world_size = len(self.ranks)


def test_one_row_for_each_rank() -> None:
    busy = Rank(1, 4001, state="running", position=Position(file="cell[3]", line=7, code="f()"))
    assert repr(StatusView(Status([Rank(0), busy]))).splitlines() == [
        "2 ranks · gloo · 120 MB of memory together · up 12 s",
        "  rank  pid   state    memory (RSS)  at",
        "  0     4000  idle     210 MB",
        "  1     4001  running  210 MB        cell[3] line 7: f()",
    ]


def test_the_framework_of_prepared_ranks_stands_in_place_of_a_group() -> None:
    status = Status([Rank(0)], has_group=False, framework="tensorflow")
    assert repr(StatusView(status)).startswith("1 rank · for TensorFlow · 60.0 MB")


def test_notes_are_shown_below_the_table() -> None:
    view = StatusView(Status([Rank(0)]), "all variables are gone")
    assert repr(view).splitlines()[-1] == "  note all variables are gone"
    assert "all variables are gone" in view.to_html()
    assert "note" not in StatusView(Status([Rank(0)])).to_html()


def test_features_that_this_torch_lacks_are_shown_below_the_table() -> None:
    missing = MissingFeature(feature=LOADERS.id, names=("torch:gone",))
    view = StatusView(Status([Rank(0)], missing_features=(missing,)))
    for shown in (repr(view), view.to_html()):
        assert LOADERS.lost in shown
        assert "torch:gone" in shown


def test_many_ranks_share_rows_by_state() -> None:
    ranks = [Rank(number, 4000 + number) for number in range(64)]
    ranks[5].alive = False
    shown = repr(StatusView(Status(ranks, has_group=False, frozen=True)))
    assert "64 ranks · no process group" in shown
    assert "a hang is held: %ddt_release ends it" in shown
    assert "0-4, 6-63" in shown
    assert "4005  died" in shown
    assert len(shown.splitlines()) == 4
    assert "<table" in StatusView(Status(ranks)).to_html()


def test_hosts_are_named() -> None:
    few = StatusView(Status([Rank(0, host="nodeA"), Rank(1, host="nodeB")]))
    assert [line.split("  ")[1] for line in repr(few).splitlines()[2:]] == [
        "0 · nodeA",
        "1 · nodeB",
    ]
    many = StatusView(Status([Rank(r, host="nodeA" if r < 6 else "nodeB") for r in range(12)]))
    assert [line.split("  ")[1] for line in repr(many).splitlines()[2:]] == [
        "0-5 · nodeA",
        "6-11 · nodeB",
    ]


def test_devices_are_shown_beside_the_hosts() -> None:
    ranks = [Rank(r, host=f"node{r // 2}", device=f"cuda:{r % 2}") for r in range(4)]
    assert [line.split()[:4] for line in repr(StatusView(Status(ranks))).splitlines()[1:]] == [
        ["rank", "device", "pid", "state"],
        *([str(r), "·", f"node{r // 2}", f"cuda:{r % 2}"] for r in range(4)),
    ]
    here = [replace(rank, host="") for rank in ranks]
    assert "cuda:1" in repr(StatusView(Status(here)))
    assert "cuda:1" not in repr(StatusView(Status(here, simulated_gpus=2)))


def test_versions_that_differ_between_hosts_are_named_in_one_line() -> None:
    alike = (Versions("nodeA"), Versions("nodeB"), Versions("nodeC", python=""))
    assert "versions" not in repr(StatusView(Status([Rank(0)], versions=alike)))
    other = (*alike, Versions("nodeD", torch="2.12.1"))
    assert " ".join(repr(StatusView(Status([Rank(0)], versions=other))).split()).endswith(
        "note the hosts have other versions: torch 2.13.0 on nodeA, nodeB, nodeC, 2.12.1 on nodeD; "
        "%ddt_doctor says more"
    )
