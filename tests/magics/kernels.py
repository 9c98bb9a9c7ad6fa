"""A kernel that several tests use, one after the other: starting one costs more than most tests."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from ..anew import BEGIN, controlled, make_new, runs

LOAD = "%load_ext ddt_notebook"
FAILED = pytest.StashKey[bool]()


class Client(ABC):
    """A kernel with the extension loaded, and its client."""

    def __init__(self) -> None:
        self.manager: KernelManager
        self.manager, self.client = start_new_kernel(startup_timeout=60)
        assert runs(self.client, BEGIN)
        self.run(LOAD)

    @abstractmethod
    def run(self, source: str) -> Any:
        """Run a cell."""

    def create_subshell(self) -> str:
        """The id of a new subshell."""
        return str(controlled(self.client, "create_subshell_request")["subshell_id"])

    def send(self, comm: str, data: dict[str, Any], subshell: str | None = None) -> None:
        """Send a message on a comm, in a subshell if one is named."""
        message = self.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


C = TypeVar("C", bound=Client)


class Reused(Generic[C]):
    """Lends one kernel after another test has had it; after a failure, a new one.

    Parameters
    ----------
    start
        Starts a kernel with the extension loaded.
    """

    def __init__(self, start: Callable[[], C]) -> None:
        self._start = start
        self._made: C | None = None

    @contextmanager
    def lent_to(self, test: pytest.Item) -> Iterator[C]:
        """A client of a kernel in which nothing of an earlier test is left."""
        if self._made is not None and not make_new(self._made.client):
            self.close()  # it was restarted, for example
        if self._made is None:
            self._made = self._start()
        else:
            self._made.run(LOAD)
            _drain(self._made.client)
        yield self._made
        if test.stash.get(FAILED, False):
            self.close()

    def close(self) -> None:
        """End the kernel."""
        if self._made is not None:
            self._made.close()
            self._made = None


def _drain(client: BlockingKernelClient) -> None:
    """Take what the kernel has published for the test before."""
    try:
        while True:
            client.get_iopub_msg(timeout=0.1)
    except queue.Empty:
        pass
