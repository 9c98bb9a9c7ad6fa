"""A process that has imported torch and forks fork servers, each without one name of torch.

Run as ``python -m tests.multiprocess.torch_without FD``; on that socket it gets JSON with the name,
and three descriptors: standard input, output and error of the fork server. It answers with the
server's process id. Nothing of ``ddt_notebook.rank`` is imported before a name is gone.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys

#: Names on which torch itself depends in what these tests do: they only count as missing.
_NEEDED = frozenset({"_world.group_count", "_world.pg_map", "Node._saved_"})


def remove(name: str) -> None:
    """Make ``"module:attribute"`` or a module disappear."""
    module, _, path = name.partition(":")
    if not path:
        sys.modules[module] = None  # type: ignore[assignment]  # its import fails now
        return
    *parents, last = path.split(".")
    owner = importlib.import_module(module)
    try:
        for parent in parents:
            owner = getattr(owner, parent)
        if path not in _NEEDED:
            delattr(owner, last)
    except (AttributeError, TypeError):  # of a class written in C, which cannot be changed
        pass
    if path in _NEEDED or hasattr(owner, last):
        os.environ["DDT_TORCH_WITHOUT"] = name


def main() -> None:
    """Answer until the socket closes."""
    import cloudpickle  # noqa: F401
    import IPython.core.interactiveshell  # noqa: F401
    import psutil  # noqa: F401
    import stack_data  # noqa: F401
    import torch._dynamo
    import torch.distributed._composable_state
    import torch.distributed.algorithms.join
    import torch.distributed.device_mesh
    import torch.utils.data.distributed  # noqa: F401

    gc.collect()
    gc.freeze()  # so that the collector of a fork skips these objects
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reaps
    while True:
        request, descriptors, *_ = socket.recv_fds(asked, 1 << 16, 3)
        if not request:
            return
        pid = os.fork()
        if not pid:
            asked.close()
            os.setsid()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
            remove(json.loads(request))
            from ddt_notebook.rank import forkserver

            sys.argv[1:] = []
            forkserver.main()
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        asked.sendall(json.dumps(pid).encode())


if __name__ == "__main__":
    main()
