"""Serves the session's store by HTTP, in the way in which Horovod's ranks find each other.

Horovod asks a server for the addresses of the other ranks. Each rank runs such a server for itself;
all of them read and write the session's store.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch.distributed as dist

from ..probes.peers import stranger

#: The server is never stopped, so it need not look whether it is.
_LOOK_EVERY_S = 3600.0


class _Server(ThreadingHTTPServer):
    """Answers the processes of this rank's user: Horovod's requests carry no token."""

    daemon_threads = True

    def verify_request(self, request: socket.socket, client_address: Any) -> bool:
        return stranger(request) is None


class Rendezvous:
    """A server that listens on this machine only, on a port of its own.

    Parameters
    ----------
    prefix
        Returns what comes before each key: Horovod uses the same keys in each rendezvous.
    """

    def __init__(self, prefix: Callable[[], str]) -> None:
        self.store: Any = None
        rendezvous = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                key = prefix() + self.path
                try:
                    known = rendezvous.store.check([key])
                    value = rendezvous.store.get(key) if known else b""
                except dist.DistError:  # the session ended this rank's wait, and the connection
                    known, value = False, b""
                self._answer(200 if known else 404, value)

            def do_PUT(self) -> None:
                length = int(self.headers["Content-Length"])
                rendezvous.store.set(prefix() + self.path, self.rfile.read(length))
                self._answer(200)

            def do_DELETE(self) -> None:  # a rank has found the others; the keys are not used again
                self._answer(200)

            def _answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Write nothing to the cell's output."""

        server = _Server(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(_LOOK_EVERY_S,), daemon=True).start()
