"""How long ranks continue to run after SIGKILL kills their kernel."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time

import psutil
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .common import RANKS, Figure, check, living, median_of, wait_until_gone

START = f"""
%load_ext ddt_notebook
%ddt_start -n {RANKS}
"""
PIDS = "list(__import__('ddt_notebook.host.session').host.session.active.get().process_ids())"
IPYPARALLEL = f"""
import ipyparallel, time
client = ipyparallel.Cluster(n={RANKS}, log_level=40).start_and_connect_sync()
print("ready", flush=True)
time.sleep(600)
"""
LIMIT_S = 15.0


def measure() -> list[Figure]:
    took, note = median_of(_ours_s, 5)
    left = _left_by_ipyparallel()
    theirs = {"ipyparallel": f"{left} processes left after {LIMIT_S:.0f} s"}
    return [Figure("kernel killed with SIGKILL: nothing left", took, 3.0, "s", theirs, note)]


def _ours_s() -> float:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        reply = client.execute_interactive(START, timeout=60, output_hook=lambda message: None)
        check(reply["content"]["status"] == "ok", f"the session did not start: {reply['content']}")
        reply = client.execute(PIDS, user_expressions={"pids": PIDS}, reply=True, timeout=30)
        shown = reply["content"]["user_expressions"]["pids"]["data"]["text/plain"]
        pids = ast.literal_eval(shown)
        check(len(living(pids)) >= RANKS, "the ranks do not run")
        assert isinstance(manager.provisioner, LocalProvisioner)
        assert manager.provisioner.pid
        os.kill(manager.provisioner.pid, signal.SIGKILL)
        return wait_until_gone(pids, LIMIT_S)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _left_by_ipyparallel() -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", IPYPARALLEL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    check(process.stdout.readline(), "ipyparallel did not start")
    helpers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.wait()
    wait_until_gone(helpers, LIMIT_S)
    left = living(helpers)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    return len(left)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
