"""Reads what a rank passes to ``init_process_group``: address, rank and world size."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

from ...model import Rendezvous

_NAMES = ("backend", "init_method", "timeout", "world_size", "rank", "store")
#: The key under which gloo's default group stores a rank's address.
_ADDRESS = "0//cpu//0/{rank}"
_LOOPBACK = frozenset({"localhost", "::1"})


def describe(arguments: Sequence[Any], options: Mapping[str, Any]) -> Rendezvous:
    """What is known before the call."""
    given = {**dict(zip(_NAMES, arguments, strict=False)), **options}
    method, store = given.get("init_method"), given.get("store")
    address, left_over = "", False
    rank, world_size = _number(given.get("rank")), _number(given.get("world_size"))
    if store is not None:
        address, left_over = _of_store(store), _holds_address(store, rank)
    elif method is None or str(method).startswith("env://"):
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        address = _joined(host, port) if host and port else ""
        rank = _number(os.environ.get("RANK")) if rank is None else rank
        if world_size is None:
            world_size = _number(os.environ.get("WORLD_SIZE"))
    else:
        url = urlparse(str(method))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        rank = _number(query.get("rank")) if rank is None else rank
        if world_size is None:
            world_size = _number(query.get("world_size"))
        if url.scheme == "file":
            address, left_over = f"file://{url.path}", _holds_data(url.path)
        elif url.scheme == "tcp":
            host, _, port = url.netloc.rpartition(":")
            address = _joined(host, port)
    return Rendezvous(
        address=address,
        rank=rank,
        world_size=world_size,
        backend=str(given.get("backend") or ""),
        left_over=left_over,
    )


def with_server(meeting: Rendezvous) -> Rendezvous:
    """Add where the launcher serves the store, if it does and the rank looks for it elsewhere."""
    port = os.environ.get("MASTER_PORT", "")
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and bool(port)
    if not served or not meeting.address or meeting.endpoint in ("file", port):
        return meeting
    return replace(meeting, served_at=_joined(os.environ.get("MASTER_ADDR", ""), port))


def _number(value: Any) -> int | None:
    """A rank or size from an argument; None for -1, which means "not given"."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None


def _joined(host: str, port: str) -> str:
    return f"{'127.0.0.1' if host.strip('[]') in _LOOPBACK else host}:{port}"


def _holds_data(path: str) -> bool:
    try:
        return Path(path).stat().st_size > 0
    except OSError:
        return False


def _holds_address(store: Any, rank: int | None) -> bool:
    """Whether a store already holds the address that this rank is about to write, for gloo."""
    try:
        return rank is not None and bool(store.check([_ADDRESS.format(rank=rank)]))
    except Exception:  # noqa: BLE001 - a store of the user's own kind, or one without a server
        return False


def _of_store(store: Any) -> str:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return _joined(store.host, str(store.port))
    return f"file://{store.path}" if isinstance(store, dist.FileStore) else ""
