"""Makes a used kernel like a new one; only what it imported and its fork server stay.

The start of a kernel and of its fork server costs more processor time than most tests.
"""

from __future__ import annotations

import queue
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

_LIMIT_S = 60
#: A new kernel runs it before anything else, and so notes what programs may change.
BEGIN = """
get_ipython().at_start = (
    __import__("os").getcwd(), dict(__import__("os").environ), list(__import__("sys").path)
)
"""
#: Removes the extension, and with it the session, and the user's variables.
_ANEW = """
if "ddt_notebook" in get_ipython().extension_manager.loaded:
    get_ipython().run_line_magic("unload_ext", "ddt_notebook")
get_ipython().run_line_magic("reset", "-f")
import os, sys
folder, environment, path = get_ipython().at_start
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
sys.path[:] = path
import ddt_notebook  # some tests make this impossible
del os, sys, folder, environment, path, ddt_notebook
get_ipython().execution_count = 1
"""


def make_new(client: BlockingKernelClient) -> bool:
    """Whether nothing of an earlier notebook is left in an idle kernel."""
    try:
        for subshell in controlled(client, "list_subshell_request")["subshell_id"]:
            controlled(client, "delete_subshell_request", {"subshell_id": subshell})
    except queue.Empty:
        return False
    return runs(client, _ANEW)


def runs(client: BlockingKernelClient, source: str) -> bool:
    """Whether a kernel runs a cell of ours without an error."""
    asked = client.execute(source, silent=True)
    try:
        while True:
            answer = client.get_shell_msg(timeout=_LIMIT_S)
            if answer["parent_header"].get("msg_id") == asked:
                return bool(answer["content"]["status"] == "ok")
    except queue.Empty:
        return False


def controlled(
    client: BlockingKernelClient, request: str, content: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The answer of the control channel."""
    client.control_channel.send(client.session.msg(request, content))
    answer = client.control_channel.get_msg(timeout=_LIMIT_S)
    return dict(answer["content"])
