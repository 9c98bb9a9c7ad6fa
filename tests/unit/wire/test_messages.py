"""Every kind of message arrives as it was sent, and nothing else is taken for a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddt_notebook.model import FormatError, Observation, Position, RankError
from ddt_notebook.model.hosts import HostFacts, Trial
from ddt_notebook.model.memory import RankMemory
from ddt_notebook.model.parity import RankParity
from ddt_notebook.model.replay import InputCall
from ddt_notebook.model.timeline import RankTimeline
from ddt_notebook.model.torch_features import MissingFeature
from ddt_notebook.wire import agent_messages, collector_messages, job_files, messages, rank_inputs
from ddt_notebook.wire.messages import Envelope, Message, decode, encode
from ddt_notebook.wire.records import FlightEntry

LINE = Position(file="cell[3]", line=6, code="loss.backward()")
ENTRY = FlightEntry(
    group="0", number=7, op="all_reduce", shapes=((2, 3), ()), dtypes=("int8",), where=LINE
)
MISSING = MissingFeature(feature="x", names=("torch:y",))
EVERY: list[Message] = [
    messages.Done(),
    messages.Failed(error="no such variable", reason="memory"),
    messages.RankSpec(
        rank=1,
        world_size=4,
        local_rank=1,
        local_world_size=2,
        node=1,
        nodes=2,
        directory="/tmp/ddt-x",
        store_address="192.0.2.1",
        port=29500,
        backend="gloo",
        device="cpu",
        simulated_gpus=0,
        group=True,
        group_timeout_s=60.0,
        memory=None,
        seed=None,
        cwd="/tmp",
        sys_path=("", "/x"),
        environ={"A": "b"},
    ),
    messages.RunCell(cell=3, source="größe = 1\n", first_line=2, group_timeout_s=60.0, trace=True),
    messages.FormGroup(prefix="ddt/1", generation=1, port=29500),
    messages.LeaveGroup(),
    messages.StoreVariable(name="x"),
    messages.FetchVariable(name="x"),
    messages.Observe(probes=("parity", "memory"), names=("model",), options={"share": {"a": "b"}}),
    messages.EndRank(),
    agent_messages.AgentHello(
        host="a", pid=7, address="192.0.2.1", interface="eth0", directory="/tmp/ddt-x", wall_s=1.5
    ),
    agent_messages.AgentWelcome(),
    agent_messages.EndAgent(),
    agent_messages.StartHostRank(key=3, rank=1, fork=True),
    agent_messages.SignalProcess(pid=7, number=2),
    agent_messages.RankBytes(key=3, connection="commands"),
    agent_messages.RankClosed(key=3, connection="questions"),
    agent_messages.Credit(key=3, connection="commands", size=9),
    agent_messages.FileBytes(key=3, file="out", size=0, pieces=((0, 3), (7, 2))),
    agent_messages.AskFile(key=3, file="branches"),
    agent_messages.AskClock(),
    agent_messages.ClockTold(at_s=2.5),
    agent_messages.AskMemory(pid=7, cap_bytes=None),
    agent_messages.MemoryTold(share=1, resident=2),
    agent_messages.ProcessesSeen(at_s=1.5, used_s={7: 0.5}, stopped=(7,)),
    agent_messages.AskFacts(variables=("NCCL_DEBUG",)),
    agent_messages.FactsTold(
        facts=HostFacts(
            versions={"torch": "2.13.0"},
            variables={"NCCL_DEBUG": "INFO"},
            name="a",
            name_addresses=("127.0.1.1",),
            address="192.0.2.1",
            interface="eth0",
            wall_s=1.5,
            shared_bytes=7,
        )
    ),
    agent_messages.ListenForTrials(token="a1", limit_s=9.0),
    agent_messages.TrialListening(port=29500),
    agent_messages.EndTrials(),
    agent_messages.TryConnection(address="192.0.2.1", port=29500, token="a1", limit_s=3.0),
    agent_messages.TrialEnded(trial=Trial(end="passed", round_trip_s=0.5)),
    job_files.RankStarted(
        rank=None,
        world_size=4,
        host="a",
        pid=7,
        born_s=1.5,
        arguments=("--lr", "1"),
        socket="/tmp/s",
    ),
    collector_messages.HostHello(host="node1"),
    collector_messages.HostWelcome(host="node0"),
    collector_messages.JobFile(name="node1-7.rank"),
    collector_messages.StopJob(reason="it hangs"),
    collector_messages.CollectionEnds(),
    job_files.RankGone(exit_status=-9, ended_s=12.5),
    job_files.Build(pid=7, waits_for="lock", file="/tmp/x/lock", held_by=None),
    job_files.Question(name="a1"),
    job_files.RankAnswers(
        question="a1",
        at_s=12.5,
        waits_group="0",
        waits_number=7,
        waits_since_s=11.0,
        flight=(ENTRY,),
        branches=messages.BranchValues(values={3: {"x": "1"}}),
    ),
    messages.RankReady(torch_version="2.13.0", device="cpu", missing_features=(MISSING,)),
    messages.CellEnded(
        error=RankError(type="ValueError", message="x", where=LINE, frames=(LINE,)),
        ended_s=12.5,
        flight=(ENTRY,),
        formed=False,
        names=("x", "y"),
        recorded=Observation(rank=1, timeline=RankTimeline(rank=1, steps_us=(1, 2))),
        observed=Observation(rank=1, parity=RankParity(rank=1, wrapped=("model",))),
        notes=("a note",),
    ),
    messages.GroupFormed(notes=("the DDP model works on",)),
    messages.Observed(
        observed=Observation(rank=1, memory=RankMemory(rank=1)),
        failed={"parity": "there is no 'x'"},
    ),
    messages.ExceptionRaised(),
    messages.DisplayShown(
        kind="display",
        data={"text/plain": "1"},
        metadata={},
        transient={"display_id": "a"},
        update=True,
        stdout_bytes=10,
        stderr_bytes=0,
    ),
    messages.AskStatus(),
    messages.AskFlight(stacks=True),
    messages.AskBranches(),
    messages.BranchValues(values={3: {"loss": "0.5"}}, unobserved="a debugger"),
    messages.AskRunning(probes=("memory",), at_step=7),
    messages.RunningAnswer(failed={"parity": "no"}, steps=7, stepping=True),
    messages.CutSockets(),
    messages.MonitorStatus(
        position=LINE,
        stack=(LINE,),
        groups={"0": (3, 2)},
        cpu_s=1.5,
        memory_bytes=1 << 30,
        at_s=2.5,
    ),
    messages.FlightEntries(entries=(ENTRY, ENTRY)),
    rank_inputs.InputsBegun(
        rank=1,
        world_size=2,
        backend="gloo",
        torch_version="2.13.0",
        python_version="3.11.7",
        threads=1,
        script="/tmp/train.py",
        environment={"RANK": "1"},
        random=rank_inputs.RandomStates(torch="00ff", python=(3, 4), python_gauss=0.5),
    ),
    rank_inputs.RandomStates(torch="00ff", python=(3, 4), numpy=(5,), numpy_gauss=0.5),
    rank_inputs.CallIssued(
        call=InputCall(
            op="all_reduce",
            members=(0, 1),
            shapes=((2, 3), ()),
            details={"reduce op": "SUM"},
            where=LINE,
            random={"torch": 7},
        )
    ),
    rank_inputs.InputReceived(call=3, dtypes=("int8",), shapes=((2,), ()), returned=1),
    rank_inputs.InputsEnded(reason="full"),
    messages.StartRank(fork=True),
    messages.StartStore(),
    messages.MakeDirectory(directory="/tmp/ddt-x"),
    messages.RemoveDirectory(directory="/tmp/ddt-x"),
    messages.ServerReady(),
    messages.Started(pid=17, port=29500),
    messages.ChildEnded(pid=17, status=-9),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    data = encode(Envelope(message, 5))
    assert b"\n" not in data, "messages of the fork server end with one"
    assert decode(data) == (Envelope(message, 5), False)


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(message).__name__ for message in EVERY} == set(Message.kinds)


def test_a_message_announces_its_payload() -> None:
    _, has_payload = decode(encode(Envelope(messages.Done(), 5, b"")))
    assert has_payload


def test_a_message_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(messages, "VERSION", messages.VERSION + 1)
        data = encode(Envelope(messages.Done()))
    with pytest.raises(FormatError, match=f"version {messages.VERSION + 1}.* same ddt_notebook"):
        decode(data)


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ([messages.VERSION, "Unheard", 1, False, {}], "kind 'Unheard'.* same ddt_notebook"),
        ([messages.VERSION, ["list"], 1, False, {}], "not a message"),
        ({"do": "run"}, "not a message"),
        ([messages.VERSION, "Done"], "not a message"),
        (7, "not a message"),
        ([messages.VERSION, "FetchVariable", 1, False, {}], "FetchVariable: .*'name'"),
        ([messages.VERSION, "FetchVariable", 1, False, {"name": 3}], "FetchVariable.name is 3"),
        (
            [messages.VERSION, "Observed", 1, False, {"observed": {"rank": 0, "memory": {}}}],
            "Observed.observed.memory: .*'rank'",
        ),
    ],
)
def test_data_that_is_not_a_message_is_refused(plain: Any, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        decode(json.dumps(plain).encode())


def test_bytes_that_are_not_json_are_refused() -> None:
    with pytest.raises(FormatError, match="not a message"):
        decode(b"\x80\x04")
