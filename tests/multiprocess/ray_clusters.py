"""A Ray cluster whose nodes are processes of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import psutil

from .processes import descendants, gone

#: Ray waits 30 s for its daemon, and gives its workers less of a busy processor than others get.
PATIENT = {"RAY_raylet_start_wait_time_s": "300", "RAY_worker_niceness": "0"}
#: Until its input ends. The arguments are the number of nodes, and that of CPUs of each.
_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
nodes, cpus = map(int, sys.argv[1:])
node = {"num_cpus": cpus, "object_store_memory": 100_000_000}
cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
for _ in range(nodes - 1):
    cluster.add_node(**node)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextlib.contextmanager
def own_cluster(*, nodes: int, cpus: int) -> Iterator[int]:
    """The process that owns a cluster which ``address="auto"`` finds."""
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER, str(nodes), str(cpus)],
        env=os.environ | PATIENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        pids = [owner.pid]
        try:
            address = next(line for line in owner.stdout if re.fullmatch(r"[\d.]+:\d+\s", line))
            os.environ["RAY_ADDRESS"] = address.strip()
            yield owner.pid
        finally:
            os.environ.pop("RAY_ADDRESS", None)
            pids += descendants([owner.pid])
            owner.stdin.close()
            try:
                owner.wait(60)
            finally:
                for pid in pids[::-1]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        psutil.Process(pid).kill()
    assert gone(pids, within_s=30)
