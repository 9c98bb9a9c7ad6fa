"""The pre-flight report: what each check observes and concludes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from ddt_notebook.host import host_facts
from ddt_notebook.model.codec import FormatError
from ddt_notebook.model.preflight import Check, Preflight
from ddt_notebook.preflight import processes, resources, versions
from ddt_notebook.preflight.doctor import compare_machines, compare_reports, doctor, rank_checks
from ddt_notebook.preflight.frameworks import framework_checks
from ddt_notebook.preflight.network import network_checks
from ddt_notebook.preflight.processes import Ended
from ddt_notebook.preflight.shadows import shadow_checks
from ddt_notebook.preflight.timeouts import timeout_checks
from ddt_notebook.preflight.variables import variable_checks
from ddt_notebook.views.preflight import PreflightView

VERSIONS = {
    "python": "3.12.1",
    "torch": "2.13.0+cu130",
    "cuda": "13.0",
    "rocm": "",
    "gpus": "2",
    "gpu": "NVIDIA H100",
    "architectures": "sm_80 sm_90",
    "capability": "9.0",
    "distributed": "yes",
    "missing features": "[]",
    "has nccl": "yes",
}
WELL = Ended(0, "", "")


def verdicts(checks: object) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}  # type: ignore[attr-defined]


# -- frameworks ------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Check]]:
    """Puts packages with these requirements first on the path, and checks what is installed."""

    def check(packages: dict[str, list[str]], **environment: str) -> list[Check]:
        for name, needs in packages.items():
            package, _, version = name.partition(" ")
            folder = tmp_path / f"{package.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            lines = ["Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}"]
            lines += [f"Requires-Dist: {need}" for need in needs]
            (folder / "METADATA").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(tmp_path)
        return [one for one in framework_checks(environment) if one.name in str(packages)]

    return check


def test_a_framework_that_needs_another_version(installed: Callable[..., list[Check]]) -> None:
    needs = ["torch<2.3,>=2", "numpy>=1", "no-such-package>=1", 'psutil>=900; extra == "x"', "~odd"]
    found = installed({"deepspeed 0.19": needs})
    assert {one.verdict for one in found} == {"warning"}
    said = [one.seen for one in found]
    assert said[0].startswith("deepspeed 0.19 needs torch<2.3,>=2; 2.")
    assert said[1:] == ["deepspeed 0.19 needs no-such-package>=1, which is not installed"]


def test_frameworks_that_fit_are_listed(installed: Callable[..., list[Check]]) -> None:
    assert not installed({"accelerate 99.1": ["torch>=2.0", "numpy"]})
    (listed,) = [one for one in framework_checks({}) if one.name == "frameworks"]
    assert "accelerate 99.1" in listed.seen
    assert listed.verdict == "ok"


def test_keras_3_does_not_train_on_several_workers(installed: Callable[..., list[Check]]) -> None:
    installed({"tensorflow 2.21.0": [], "keras 3.15.1": []})
    told = [one for one in framework_checks({}) if one.name == "Keras"]
    assert [one.verdict for one in told] == ["ok"]
    assert "TF_USE_LEGACY_KERAS=1" in told[0].meaning
    assert "Keras" not in verdicts(framework_checks({"TF_USE_LEGACY_KERAS": "1"}))


def test_packages_that_megatron_core_imports_if_they_are_there(
    installed: Callable[..., list[Check]],
) -> None:
    needs = ['transformer-engine[pytorch]<2.12,>=2.9; extra == "dev"']
    alone = installed({"megatron-core 0.16.1": needs})
    assert [(one.verdict, "sequence parallelism" in one.meaning) for one in alone] == [("ok", True)]
    (engine,) = installed({"transformer_engine 1.3": []})
    assert engine.verdict == "warning"
    assert ">=2.9" in engine.seen
    assert "1.3" in engine.seen


def test_horovod_is_built_against_one_version_of_torch(
    installed: Callable[..., list[Check]], tmp_path: Path
) -> None:
    folder = tmp_path / "horovod"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "metadata.json").write_text('{"pytorch": "1.13.1+cpu"}')
    (old,) = installed({"horovod 0.28.1": []})
    assert old.verdict == "warning"
    assert "built against torch 1.13.1+cpu; torch 2." in old.seen
    (folder / "metadata.json").write_text(json.dumps({"pytorch": metadata.version("torch")}))
    (fits,) = [one for one in framework_checks({}) if one.name == "horovod"]
    assert fits.verdict == "ok"


# -- this machine ----------------------------------------------------------------------------------


def test_a_machine_that_runs_the_tests_passes() -> None:
    steps: list[str] = []
    report = doctor(2, progress=steps.append)
    assert report.ok, str(report)
    assert len(steps) == 3
    by_name = {check.name: check for check in report.checks}
    assert by_name["gloo"].seen == "two processes formed a group and reduced a number on it"
    assert report.preflight.facts["versions.torch"].startswith("2.")
    assert by_name["process group"].seen.startswith("gloo 30 min")
    assert Preflight.from_json(json.loads(json.dumps(report.to_json()))) == report.preflight
    assert "checks passed" in str(report)
    assert "<details" in report.to_html()
    assert set(report.to_frame().verdict) <= {"ok", "warning"}


def test_a_group_that_cannot_be_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    (check,) = versions.backend_checks({"has gloo": "yes", "gpus": "0"})
    assert check.verdict == "error"
    assert "eth99" in check.seen
    assert "GLOO_SOCKET_IFNAME=eth99" in check.fix


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hanging = tmp_path / "sitecustomize.py"
    hanging.write_text(
        f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (ended,) = processes.run_together(["versions"], [os.environ], limit_s=1.5)
    assert ended.status is None
    assert not psutil.pid_exists(int(note.read_text()))


def test_the_number_of_ranks_must_be_positive() -> None:
    with pytest.raises(ValueError, match="the number of ranks is 1 or more"):
        doctor(0)


# -- versions --------------------------------------------------------------------------------------


def test_versions_that_fit_each_other_pass() -> None:
    assert set(verdicts(versions.version_checks(VERSIONS, WELL)).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({"torch": "2.4.1"}, "torch", "warning"),
        ({"python": "3.9.2"}, "Python", "error"),
        ({"distributed": "no"}, "torch.distributed", "error"),
        ({"has nccl": "no"}, "NCCL", "error"),
        ({"missing features": '[{"feature": "loaders"}]'}, "feature loaders", "warning"),
        ({"capability": "12.0"}, "CUDA architectures", "error"),
    ],
)
def test_versions_that_do_not_fit_each_other_are_reported(
    changed: dict[str, str], name: str, verdict: str
) -> None:
    found = verdicts(versions.version_checks(VERSIONS | changed, WELL))
    assert {n: v for n, v in found.items() if v != "ok"} == {name: verdict}


def test_a_launcher_that_keeps_the_store_over_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(torch: str) -> set[str]:
        return set(verdicts(versions.version_checks(VERSIONS | {"torch": torch}, WELL)))

    monkeypatch.delenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", raising=False)
    assert "restarts" in names("2.13.0+cpu")
    assert "restarts" not in names("2.12.1")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert "restarts" not in names("2.13.0+cpu")


def test_torch_that_cannot_be_imported() -> None:
    ended = Ended(1, "", "Traceback …\nImportError: libcudart.so.13: cannot open shared object\n")
    (check,) = versions.version_checks({}, ended)
    assert (check.verdict, check.name) == ("error", "torch")
    assert "libcudart" in check.seen


def test_code_for_an_older_gpu_of_the_same_generation_runs() -> None:
    assert versions._runs_on("sm_80", "sm_86")
    assert not versions._runs_on("sm_90", "sm_86")
    assert not versions._runs_on("sm_80", "sm_90")
    assert versions._runs_on("compute_80", "sm_90")
    assert versions._runs_on("sm_90a", "sm_90")


# -- environment variables -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "verdict", "shown"),
    [
        ("NCCL_DEBUG", "INFO", "ok", ""),
        ("NCCL_DEBUG", "VERBOSE", "error", "VERSION, WARN, INFO"),
        ("NCCL_DEBGU", "INFO", "warning", "NCCL_DEBUG"),
        ("TORCH_DISTRIBUTED_DEBG", "INFO", "warning", "TORCH_DISTRIBUTED_DEBUG"),
        ("MASTER_PROT", "29500", "warning", "MASTER_PORT"),
        ("MASTER_PORT", "http", "error", "invalid"),
        ("RANK", "0", "warning", "unset RANK"),
        ("CUDA_VISIBLE_DEVICES", "0,1", "ok", ""),
        ("CUDA_VISIBLE_DEVICES", "0;1", "error", "invalid"),
        ("NCCL_P2P_DISABLE", "0", "ok", ""),
        ("NCCL_P2P_DISABLE", "1", "warning", "unset NCCL_P2P_DISABLE"),
        ("OMP_NUM_THREADS", "0", "error", "invalid"),
    ],
)
def test_environment_variables_are_checked(name: str, value: str, verdict: str, shown: str) -> None:
    (check,) = variable_checks({name: value})
    assert (check.name, check.verdict) == (name, verdict)
    assert shown in check.fix


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "NCCL_MIN_NCHANNELS", "TORCH_CUDA_ARCH_LIST", "MY_NCCL_DEBUG", "RANKS"),
        *("NCCL_SOMETHING_NEW", "OMPI_COMM_WORLD_SIZE", "CUDA_HOME", "WORLD", "TORCHVISION_HOME"),
        "NCCL_MID_NCHANNELS_X",  # close to NCCL_MIN_NCHANNELS, but more than one slip away
    ],
)
def test_other_variables_are_ignored(name: str) -> None:
    assert list(variable_checks({name: "1"})) == []


# -- timeouts --------------------------------------------------------------------------------------

FACTS = {"timeout gloo": "1800.0", "timeout nccl": "600.0"}


def test_the_time_outs_in_effect_are_reported() -> None:
    group, session = timeout_checks(FACTS, {}, (10.0, 2.0))
    assert (group.verdict, group.seen) == ("ok", "gloo 30 min, nccl 10 min")
    assert "timedelta" in group.meaning
    assert (session.verdict, session.name) == ("ok", "session")
    assert session.seen == "10 s in a collective, 2.0 s once it cannot complete"
    assert not list(timeout_checks({}, {}))
    _, odd = timeout_checks(FACTS, {}, (2.0, 10.0))
    assert odd.verdict == "warning"


@pytest.mark.parametrize(
    ("environment", "verdict", "shown"),
    [
        ({"NCCL_TIMEOUT": "3600"}, "warning", "neither torch nor NCCL reads NCCL_TIMEOUT"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, "error", "lasts forever"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0"}, "error", "lasts forever"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "warning", "blocks the CPU"),
        (
            {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
            "warning",
            "blocks the CPU",
        ),
        ({"TORCH_NCCL_ENABLE_MONITORING": "0"}, "warning", "never ended"),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "10"}, "warning", "healthy process"),
        ({"NCCL_IB_TIMEOUT": "3600"}, "error", "not a number of seconds"),
        ({"DEEPSPEED_TIMEOUT": "7200"}, "warning", "minutes: 5 days"),
        ({"DEEPSPEED_TIMEOUT": "30m"}, "error", "cannot be imported"),
        ({"DEEPSPEED_TIMEOUT": "120"}, "ok", "init_distributed"),
        ({"HOROVOD_STALL_CHECK_DISABLE": "1"}, "warning", "which ranks it waits for"),
        ({"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"}, "warning", "shorter"),
    ],
)
def test_settings_of_time_outs(environment: dict[str, str], verdict: str, shown: str) -> None:
    _, check = timeout_checks(FACTS, environment)
    assert (check.topic, check.verdict) == ("timeouts", verdict)
    assert shown in check.meaning
    shown = PreflightView(Preflight(machine="host", checks=(check,)))
    assert check.name in shown.to_text()
    assert check.name in shown.to_html()
    assert shown.to_json()["checks"][0]["meaning"] == check.meaning


@pytest.mark.parametrize(
    "environment",
    [
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
        {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1800"},
        {"NCCL_IB_TIMEOUT": "22"},
        {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"},
        {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"},
    ],
)
def test_correct_settings_of_time_outs_pass(environment: dict[str, str]) -> None:
    assert [check.name for check in timeout_checks(FACTS, environment)] == ["process group"]


# -- network ---------------------------------------------------------------------------------------


def test_a_port_that_is_in_use_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = str(taken.getsockname()[1])
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        assert verdicts(network_checks(address))["MASTER_PORT"] == "error"
    assert verdicts(network_checks(address))["MASTER_PORT"] == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "verdict"),
    [
        ("GLOO_SOCKET_IFNAME", "lo", "ok"),
        ("GLOO_SOCKET_IFNAME", "l", "error"),
        ("NCCL_SOCKET_IFNAME", "l", "ok"),
        ("NCCL_SOCKET_IFNAME", "=l", "error"),
        ("NCCL_SOCKET_IFNAME", "^docker", "ok"),
        ("NCCL_SOCKET_IFNAME", "ib0", "error"),
    ],
)
def test_names_of_network_interfaces_are_checked(variable: str, value: str, verdict: str) -> None:
    assert verdicts(network_checks({variable: value}))[variable] == verdict


@pytest.mark.parametrize("address", ["no-such-host.invalid", "x" * 80, "a..b"])
def test_an_unknown_address_is_reported(address: str) -> None:
    found = verdicts(network_checks({"MASTER_ADDR": address}))
    assert found["MASTER_ADDR"] == "error"


def test_a_name_server_that_does_not_answer_is_waited_for_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(host_facts, "RESOLVE_S", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answered.wait(20) and [])
    checks = {check.name: check for check in network_checks({"MASTER_ADDR": "slow.example"})}
    answered.set()
    assert "no answer within" in checks["MASTER_ADDR"].seen
    assert checks["MASTER_ADDR"].verdict == "error"


# -- limits and modules ----------------------------------------------------------------------------


def test_memory_and_threads_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda: 200 << 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found = verdicts(resources.resource_checks(2, 1, {}))
    assert (found["memory"], found["threads"]) == ("warning", "ok")
    found = verdicts(resources.resource_checks(16, 4, {"OMP_NUM_THREADS": "4"}))
    assert (found["memory"], found["threads"]) == ("error", "warning")


def test_modules_that_hide_a_package_are_reported(tmp_path: Path) -> None:
    assert verdicts(shadow_checks([tmp_path])) == {"shadowing": "ok"}
    (tmp_path / "train.py").write_text("")
    (tmp_path / "utils.py").write_text("")
    assert verdicts(shadow_checks([tmp_path])) == {"shadowing": "ok"}
    (tmp_path / "types.py").write_text("")
    (tmp_path / "plotly.py").write_text("")
    (tmp_path / "torch").mkdir()
    assert verdicts(shadow_checks([tmp_path])) == {"plotly": "warning", "types": "error"}
    (tmp_path / "torch" / "__init__.py").write_text("")
    assert verdicts(shadow_checks([tmp_path]))["torch"] == "error"


def test_a_checkout_does_not_hide_itself(root: Path) -> None:
    assert "ddt_notebook" not in verdicts(shadow_checks([root]))


# -- ranks and machines ----------------------------------------------------------------------------


def test_differences_between_ranks_are_reported() -> None:
    alike = {rank: {"torch": "2.13.0", "threads": "1"} for rank in range(3)}
    (check,) = rank_checks(alike)
    assert check.verdict == "ok"
    alike[2] |= {"threads": "4", "NCCL_DEBUG": "INFO"}
    found = {check.name: check for check in rank_checks(alike)}
    assert found["threads"].seen == "1 on rank 0, rank 1; 4 on rank 2"
    assert found["NCCL_DEBUG"].verdict == "warning"


def test_differences_between_machines_are_reported(tmp_path: Path) -> None:
    facts = {"versions.torch": "2.13.0", "environment.NCCL_DEBUG": "INFO"}
    trouble = Check(topic="network", name="host name", verdict="error", seen="x", fix="y")
    one = Preflight(machine="alpha", facts=facts)
    two = Preflight(machine="beta", facts=facts | {"versions.torch": "2.14.0"}, checks=(trouble,))
    found = verdicts(compare_machines([one, two]).checks)
    assert found == {"versions.torch": "error", "host name on beta": "error"}
    assert compare_machines([one, one]).ok

    paths = [tmp_path / f"{number}.json" for number in range(2)]
    for path, report in zip(paths, (one, two), strict=True):
        path.write_text(json.dumps(report.to_json()))
    view = compare_reports(paths)
    assert not view.ok
    assert "2.13.0 on alpha; 2.14.0 on beta" in str(view)
    paths[0].write_text('{"x": 1}')
    with pytest.raises(FormatError, match=r"0\.json: this is not a pre-flight report"):
        compare_reports(paths)


def test_text_of_a_machine_is_escaped() -> None:
    check = Check(topic="x", name="<b>n", verdict="error", seen="<script>", meaning="m", fix="f")
    shown = PreflightView(Preflight(machine="<i>host", checks=(check,))).to_html()
    assert "<script>" not in shown
    assert "<i>" not in shown


def test_the_command_reports_the_checks(tmp_path: Path) -> None:
    run = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "doctor", "--quick"]
    environment = os.environ | {"NCCL_DEBUG": "LOUD"}
    ended = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 1
    plain = json.loads(ended.stdout)
    assert [c["name"] for c in plain["checks"] if c["verdict"] == "error"] == ["NCCL_DEBUG"]


def test_an_interrupted_check_leaves_no_process_behind(tmp_path: Path) -> None:
    run = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
    running = subprocess.Popen(
        [sys.executable, "-c", run, "doctor"], cwd=tmp_path, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 20
    children: list[psutil.Process] = []
    while not children and time.monotonic() < deadline:
        children = psutil.Process(running.pid).children(recursive=True)
        time.sleep(0.05)
    assert children
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 2
    _, left = psutil.wait_procs(children, timeout=5)
    assert not left
