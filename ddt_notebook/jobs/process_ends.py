"""Notices that processes have ended, with one question to the system for all of them."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Hashable
from contextlib import suppress

import psutil


class ProcessEnds:
    """Watches processes through descriptors that become readable when they end (Linux ≥ 5.3)."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._keys: dict[int, Hashable] = {}
        self._watched: set[Hashable] = set()
        self._ended: set[Hashable] = set()

    def add(self, key: Hashable, process: psutil.Process) -> None:
        """Watch a process under a key, if the system can do that."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            return
        if not process.is_running():  # another process may have taken its number meanwhile
            os.close(descriptor)
            return
        self._poll.register(descriptor, select.POLLIN)
        self._keys[descriptor] = key
        self._watched.add(key)

    def watches(self, key: Hashable) -> bool:
        """Whether the process of this key is watched, so that `ended` will contain it."""
        return key in self._watched

    def wait(self, limit_s: float) -> None:
        """Wait until a watched process ends, for at most ``limit_s`` seconds."""
        if not self._keys:
            time.sleep(limit_s)
            return
        for descriptor, _ in self._poll.poll(1e3 * limit_s):
            self._poll.unregister(descriptor)
            self._ended.add(self._keys.pop(descriptor))
            os.close(descriptor)

    def ended(self) -> set[Hashable]:
        """The keys of all watched processes that have ended."""
        self.wait(0.0)
        return self._ended

    def close(self) -> None:
        """Stop watching."""
        for descriptor in self._keys:
            with suppress(OSError):
                os.close(descriptor)
        self._keys.clear()
