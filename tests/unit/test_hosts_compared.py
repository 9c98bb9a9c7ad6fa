"""What the doctor says of several hosts: what it accuses, and what must stay quiet."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.host.connection_trial import TrialListener, try_connection
from ddt_notebook.host.host_comparison import _rounds
from ddt_notebook.model.hosts import HostFacts, Pair, Trial
from ddt_notebook.model.preflight import Check, Preflight
from ddt_notebook.preflight.doctor import doctor
from ddt_notebook.preflight.hosts import host_checks, links
from ddt_notebook.preflight.links import link_checks
from ddt_notebook.views.preflight import PreflightView

LOOPBACK = "127.0.0.1"


def host(number: int) -> HostFacts:
    return HostFacts(
        versions={"python": "3.12.1", "torch": "2.13.0", "ddt_notebook": "0.1.0"},
        variables={"GLOO_SOCKET_IFNAME": f"eth{number}", "OMP_NUM_THREADS": "1"},
        name=f"node{number}",
        name_addresses=(f"192.0.2.{number}",),
        address=f"192.0.2.{number}",
        interface=f"eth{number}",
        mtu=1500,
        wall_s=0.0,
        shared_bytes=1 << 33,
        shared_free=1 << 32,
    )


PASSED = Trial(end="passed", round_trip_s=0.00012)


def checks(
    second: HostFacts | None = None,
    ahead_s: float = 0.1,
    failed: dict[str, str] | None = None,
    trial: Trial = PASSED,
) -> list[Check]:
    facts = {"node1": host(1), "node2": second or host(2)}
    trials = {("node1", "node2"): trial, ("node2", "node1"): PASSED}
    return list(host_checks(facts, {"node1": 40.0, "node2": 40.0 + ahead_s}, failed or {}, trials))


def troubles(**changed: Any) -> dict[str, str]:
    return {check.name: check.verdict for check in checks(**changed) if check.verdict != "ok"}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"versions": host(2).versions | {"nccl": "2.29.3"}},  # elsewhere, it is the system's
        {"name_addresses": ("127.0.1.1",), "gloo_interface": "eth2"},
        {"name_addresses": ("127.0.1.1", "192.0.2.2")},
        {"name_addresses": ("127.0.1.1",), "address": LOOPBACK},  # two agents on one machine
        {"shared_bytes": None, "shared_free": None},
        {"mtu": 0},
    ],
)
def test_hosts_that_fit_each_other(changed: dict[str, Any]) -> None:
    assert not troubles(second=replace(host(2), **changed))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"versions": host(2).versions | {"torch": "2.12.1"}}, {"torch": "error"}),
        ({"variables": {"OMP_NUM_THREADS": "8"}}, {"OMP_NUM_THREADS": "warning"}),
        ({"name_addresses": ("127.0.1.1",)}, {"name of node2": "warning"}),
        ({"name_addresses": ()}, {"name of node2": "warning"}),
        ({"mtu": 9000}, {"MTU": "warning"}),
        ({"shared_free": 1 << 26}, {"shared memory on node2": "warning"}),
    ],
)
def test_a_host_that_differs(changed: dict[str, Any], expected: dict[str, str]) -> None:
    assert troubles(second=replace(host(2), **changed)) == expected


def test_the_name_of_the_only_host_may_be_a_loopback_address() -> None:
    only = {"node1": replace(host(1), name_addresses=("127.0.1.1",))}
    assert all(check.verdict == "ok" for check in host_checks(only, {"node1": 0.0}, {}, {}))


def test_clocks_are_compared_with_each_other() -> None:
    assert troubles(ahead_s=-37.0) == {"clocks": "warning"}


def test_a_host_that_does_not_answer() -> None:
    assert troubles(failed={"node3": "node3 cannot be reached any more"}) == {"node3": "error"}


@pytest.mark.parametrize("end", ["refused", "no answer", "unreachable", "stalled", "other"])
def test_a_connection_that_fails(end: Any) -> None:
    assert troubles(trial=Trial(end=end)) == {"node1 → node2": "error"}
    (check,) = (check for check in checks(trial=Trial(end=end)) if check.verdict == "error")
    assert "192.0.2.2" in check.seen
    assert check.meaning
    assert check.fix


# -- the matrix ------------------------------------------------------------------------------------


def _trials(
    hosts: int, rates: dict[tuple[int, int], float], usual: float = 1e9
) -> dict[Pair, Trial]:
    """What was measured between hosts; 0 stands for all others of a pair."""
    found = {}
    for one, other in itertools.permutations(range(1, hosts + 1), 2):
        keys = (one, other), (one, 0), (0, other)
        measured = next((rates[key] for key in keys if key in rates), usual)
        trial = Trial(end="passed", round_trip_s=1e-4, bytes_per_s=measured)
        found[f"node{one}", f"node{other}"] = trial
    return found


@pytest.mark.parametrize(
    ("hosts", "rates", "expected"),
    [
        (
            2,
            {(1, 2): 2e7},
            {"bandwidth of 1 connection": "20.0 MB/s node1 → node2; these hosts reach"},
        ),
        (
            3,
            {(3, 0): 2e7, (0, 3): 1e7},
            {"bandwidth of node3": "at most 20.0 MB/s with each other"},
        ),
        (3, {(3, 0): 2e7}, {"bandwidth of what node3 sends": "at most 20.0 MB/s; in the other"}),
        (4, {(0, 3): 2e7}, {"bandwidth of what node3 receives": "at most 20.0 MB/s; in the other"}),
        (
            4,
            {(1, 4): 2e7, (4, 1): 3e7},
            {"bandwidth of 2 connections": "20.0 MB/s node1 → node4 and"},
        ),
        (
            64,
            {(9, 0): 1e7, (0, 9): 1e7},
            {"bandwidth of node9": "at most 10.0 MB/s with each other"},
        ),
    ],
)
def test_what_is_slow_is_named(
    hosts: int, rates: dict[tuple[int, int], float], expected: dict[str, str]
) -> None:
    found = {check.name: check for check in link_checks(_trials(hosts, rates))}
    assert found.keys() == expected.keys()
    for name, words in expected.items():
        assert found[name].seen.startswith(words)
        assert found[name].verdict == "warning"


@pytest.mark.parametrize(
    "rates",
    [{}, {(1, 2): 3e8}, {(3, 0): 3e8, (0, 3): 3e8}, {(0, 2): 3e8}],  # noise of a busy machine
)
def test_hosts_that_are_about_as_fast(rates: dict[tuple[int, int], float]) -> None:
    assert not list(link_checks(_trials(3, rates)))


def test_a_host_whose_processor_was_busy_is_not_called_slow() -> None:
    trials = _trials(3, {(3, 0): 2e7, (0, 3): 2e7})
    assert list(link_checks(trials))
    for pair, trial in trials.items():
        if trial.bytes_per_s == 2e7:
            trials[pair] = replace(trial, at_most=4e8)
    assert not list(link_checks(trials))


@pytest.mark.parametrize("hosts", [0, 1, 2, 3, 7, 8])
def test_no_host_takes_part_in_two_trials_at_once(hosts: int) -> None:
    rounds = list(_rounds(range(hosts)))
    for pairs in rounds:
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
    tried = [tuple(sorted(pair)) for pairs in rounds for pair in pairs]
    assert sorted(tried) == list(itertools.combinations(range(hosts), 2))


def test_short_round_trips_are_not_compared() -> None:
    trials = _trials(3, {})
    trials["node1", "node2"] = replace(trials["node1", "node2"], round_trip_s=9e-4)
    assert not list(link_checks(trials))
    trials["node1", "node2"] = replace(trials["node1", "node2"], round_trip_s=0.05)
    (check,) = link_checks(trials)
    assert check.seen == "50 ms node1 → node2; these hosts reach 1.00 ms with other hosts"


def _rows(text: str, title: str = "") -> list[str]:
    """The names in front of the rows of a matrix, and what follows it."""
    matrix = text.partition(f"{title} from the host of the row to that of the column")[2]
    return [
        re.split(" {2,}", line.strip())[0] for line in matrix.splitlines()[2:]
    ]  # below the head


@pytest.mark.parametrize("hosts", [3, 20, 100])
def test_the_matrix_marks_what_is_slow_and_what_failed(hosts: int) -> None:
    trials = _trials(hosts, {(3, 1): 2e7})
    trials["node2", "node1"] = Trial(end="refused")
    preflight = Preflight(machine="hosts", links=links(trials))
    assert Preflight.from_json(preflight.to_json()) == preflight
    view = PreflightView(preflight)
    text, page = view.to_text(), view.to_html()
    for shown in (text, page):
        assert "▲ 20.0 MB/s" in shown
        assert "✖ refused" in shown
    others = [f"{hosts - 3} equal hosts"] if hosts > 3 else []
    for quantity in ("round trip", "bandwidth"):
        assert _rows(text, quantity)[: 3 + len(others)] == ["node1", "node2", "node3", *others]
    for other in others:
        assert f"{other}: node4 to node{hosts}" in text
        assert f"{other}: node4 to node{hosts}" in page
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("bad", "rows"),
    [
        ([], ["20 equal hosts"]),
        ([(9, 0), (0, 9)], ["node9", "19 equal hosts"]),  # the fault is that of node9
        ([(9, 0)], ["node9", "19 equal hosts"]),
        ([(9, 0), (0, 9), (3, 4)], ["node3", "node4", "node9", "17 equal hosts"]),
    ],
)
def test_what_stands_out_has_a_row_of_its_own(bad: list[tuple[int, int]], rows: list[str]) -> None:
    trials = _trials(20, dict.fromkeys(bad, 2e7))
    text = PreflightView(Preflight(machine="hosts", links=links(trials))).to_text()
    assert _rows(text, "bandwidth")[: len(rows)] == rows


def test_many_hosts_that_stand_out_have_signs() -> None:
    trials = _trials(20, dict.fromkeys([(host, host + 10) for host in range(1, 10)], 2e7))
    text = PreflightView(Preflight(machine="hosts", links=links(trials))).to_text()
    lines = text.partition("(▲ slower than others, ✖ failed)")[2].splitlines()[1:]
    assert lines[0] == "  node1           ········▲·········"
    assert lines[18].split()[0] == "2"


def test_equal_hosts_are_one_line_of_each_check() -> None:
    facts = {f"node{number:02}": host(number) for number in range(1, 21)}
    facts = {name: replace(one, variables={}) for name, one in facts.items()}
    facts = {name: replace(one, interface="eth0") for name, one in facts.items()}
    ahead_s = dict.fromkeys(facts, 40.0)
    well = list(host_checks(facts, ahead_s, {}, {}))
    assert {check.verdict for check in well} == {"ok"}
    assert len(well) == 5
    facts["node07"] = replace(facts["node07"], versions={"torch": "2.12.1"}, mtu=9000)
    for name in ("node03", "node04", "node05"):
        facts[name] = replace(facts[name], name_addresses=("127.0.1.1",))
    failed = {f"node{number}": f"node{number} cannot be reached any more" for number in (21, 22)}
    pairs = [pair for pair in itertools.permutations(facts, 2) if "node09" in pair]
    cut = {pair: Trial(end="no answer") for pair in pairs}
    found = {
        check.name: check.seen
        for check in host_checks(facts, ahead_s | {"node12": 77.0}, failed, cut)
        if check.verdict != "ok"
    }
    others = "node01 to node08 and node10 to node20"
    assert found == {
        "node21 and node22": "each of these 2 hosts cannot be reached any more",
        f"{others} → node09": "no answer at 192.0.2.9",
        f"node09 → {others}": "no answer at 19 addresses",
        "torch": "2.12.1 on node07; 2.13.0 on the other 19",
        "name of node03 to node05": "on each of them, its name is 127.0.1.1",
        "clocks": "37 s apart (against the notebook's machine: +77.0 s on node12; "
        "+40.0 s on the other 19)",
        "MTU": "eth0, MTU 9000, on node07; eth0, MTU 1500, on the other 19",
    }


def test_bandwidth_without_hosts_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="on two or more hosts; start one: %ddt_start --hosts"):
        doctor(bandwidth=True)


# -- trials ----------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[TrialListener]:
    made = TrialListener(LOOPBACK, "a token", 60.0)
    yield made
    made.close()


def test_a_trial_measures(listener: TrialListener) -> None:
    trial = try_connection(LOOPBACK, listener.port, "a token", 30.0, 1 << 20)
    assert trial.end == "passed"
    assert trial.round_trip_s
    assert trial.bytes_per_s
    assert trial.at_most
    assert trial.at_most >= trial.bytes_per_s


def test_a_trial_recognises_another_host(listener: TrialListener) -> None:
    assert try_connection(LOOPBACK, listener.port, "of another", 30.0, 0).end == "other"
    assert try_connection(LOOPBACK, listener.port, "a token", 30.0, 0).end == "passed"


def test_a_trial_without_an_answer() -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        assert try_connection(LOOPBACK, port, "a token", 0.1, 0).end == "no answer"
    assert try_connection(LOOPBACK, port, "a token", 0.1, 0).end == "refused"
