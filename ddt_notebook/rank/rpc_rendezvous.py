"""Lets ``torch.distributed.rpc`` meet at the session's store, as it meets at that of torchrun.

Rank 0 would otherwise try to serve a store at the port at which the session's store listens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from types import ModuleType
from typing import Any

import torch.distributed as dist

from .after_import import AfterImport


def meet_at(
    store: Callable[[Mapping[str, Any]], dist.Store | None],
    watching: Callable[[], AbstractContextManager[Any]],
) -> None:
    """Let ``init_rpc`` use another store.

    Parameters
    ----------
    store
        Returns the store for a call with these arguments; None to leave the call as it is.
    watching
        Notes the connections that are made meanwhile.
    """
    AfterImport("torch.distributed.rpc", functools.partial(_wrap, store, watching)).install()


def leave() -> None:
    """End what the user's code has begun and not shut down; ranks do not wait for one another."""
    from torch.distributed import rpc

    if rpc.is_available():
        with suppress(RuntimeError):  # it was not initialised
            rpc.shutdown(graceful=False)


def _wrap(
    store: Callable[[Mapping[str, Any]], dist.Store | None],
    watching: Callable[[], AbstractContextManager[Any]],
    module: ModuleType,
) -> None:
    original = getattr(module, "init_rpc", None)
    if original is None:
        return  # a torch without it

    @functools.wraps(original)
    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        meet = dist.rendezvous

        def rendezvous(
            url: str, rank: int = -1, world_size: int = -1, **more: Any
        ) -> Iterator[tuple[Any, int, int]]:
            found = store({"init_method": url, "rank": rank, "world_size": world_size})
            if found is not None:
                return iter([(found, rank, world_size)])
            return meet(url, rank, world_size, **more)

        dist.rendezvous = rendezvous
        try:
            with watching():
                return original(*args, **kwargs)
        finally:
            dist.rendezvous = meet

    module.init_rpc = init_rpc  # type: ignore[attr-defined]
