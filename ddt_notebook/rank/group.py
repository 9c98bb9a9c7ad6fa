"""Forms the process group in a rank, leaves it and forms it again."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..model.torch_features import MODELS_FOLLOW
from ..wire.messages import RankSpec
from . import rpc_rendezvous, torch_private
from .frameworks import registered as frameworks
from .frameworks.framework import Framework
from .probes.calls import CallLog
from .probes.sockets import GroupSockets

#: The variable with which torchrun announces that its agent serves the store.
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
#: Addresses at which the session's store listens.
_LOOPBACK = frozenset({"127.0.0.1", "localhost"})


class RankGroup:
    """The process group of this rank, and the arguments to form it.

    Parameters
    ----------
    spec
        The rank.
    """

    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self.port = spec.port
        #: The time limit of the backend; it is longer than the session's own limit.
        self.timeout = timedelta(seconds=spec.group_timeout_s)
        self.sockets = GroupSockets()
        self.calls = CallLog(self.sockets)
        self.calls.default_timeout = self.timeout
        self.calls.init_hook = self._before_users_init
        self.sockets.also_free = self._free_in_frameworks
        rpc_rendezvous.meet_at(self._store_of_rpc, self.sockets.watching)
        self._forming = self._joined = False
        self._default: Any = None
        self._generation = self._inits = 0
        #: The framework for which the session prepares its ranks.
        self.framework: Framework | None = None
        if spec.framework:
            self.framework = frameworks.make(spec.framework)
            self.framework.watch(self.calls)

    def _free_in_frameworks(self) -> None:
        if self.framework is not None:
            self.framework.free()
        frameworks.free()

    def form(self, prefix: str, generation: int, *, join: bool = True) -> list[str]:
        """Leave any group, then join the one under ``prefix``.

        Parameters
        ----------
        prefix
            Prefix of the keys in the session's store; it is never used twice.
        generation
            How often the session's group has been formed; a group that the user's cells form
            takes its prefix from this, as under torchrun.
        join
            False only to leave: the user's code forms the next group, also in a session that has
            formed one.

        Returns
        -------
        list of str
            Notes for the user, such as that a DDP model uses the new group.
        """
        followers = self._models_on_default_group() if join else []
        self.leave()
        self.calls.new_generation()
        # a cell may have set another rendezvous, which ends with the group
        os.environ.update(torchrun_environment(self.spec, self.port))
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(generation)
        os.environ.pop(_AGENT_STORE, None)
        self._generation, self._inits = generation, 0
        self._joined = join and self.spec.group
        if self.framework is not None:
            with self.sockets.watching():
                store = dist.PrefixStore(prefix, self._connect())
            return self.framework.join(self.spec, store)
        if not self._joined:
            return []
        self._forming = True
        try:
            with self.sockets.watching():
                store = self._connect()
                dist.init_process_group(
                    self.spec.backend,
                    store=dist.PrefixStore(prefix, store),
                    rank=self.spec.rank,
                    world_size=self.spec.world_size,
                    timeout=self.timeout,
                )
                self.sockets.refuse_strangers()
        finally:
            self._forming = False
        self._default = dist.group.WORLD
        notes = frameworks.forget_groups()
        if not followers:
            return notes
        if not torch_private.available(MODELS_FOLLOW):
            return [*notes, "the process group was formed again; wrap the model in DDP again"]
        for model in followers:
            torch_private.use_group(model, self._default)
        models = "your DDP model" if len(followers) == 1 else "your DDP models"
        return [*notes, f"the process group was formed again; you can go on with {models}"]

    def _connect(self) -> Any:
        """A connection to the session's store."""
        address = self.spec.store_address
        return dist.TCPStore(address, self.port, is_master=False, timeout=self.timeout)

    def leave(self) -> None:
        """Destroy every group; this ends the calls of peers that are blocked in one of them."""
        rpc_rendezvous.leave()
        if dist.is_initialized():
            dist.destroy_process_group()
        torch_private.restart_group_names()
        self.sockets.cut()  # a model may still hold the group, and so its connections
        self.sockets.forget()

    def allow(self, timeout_s: float) -> None:
        """Set the time limit of groups for the next cell, unless the program has set it."""
        timeout = timedelta(seconds=timeout_s)
        if timeout == self.timeout:
            return
        self.timeout = self.calls.default_timeout = timeout
        if dist.is_initialized():
            torch_private.set_timeouts(timeout, besides=self.calls.limits)

    @staticmethod
    def is_formed() -> bool:
        """Whether there is a default group."""
        return bool(dist.is_initialized())

    def _models_on_default_group(self) -> list[Any]:
        """The user's DDP models on the default group that the session formed last."""
        if self._default is None:
            return []
        return [
            model
            for model in gc.get_objects()
            if type(model) is DistributedDataParallel and model.process_group is self._default
        ]

    def _before_users_init(self, options: dict[str, Any]) -> AbstractContextManager[None]:
        if self._forming:
            return nullcontext()
        if self._joined and dist.is_initialized():
            raise RuntimeError(
                "the session has formed the process group already: remove init_process_group(), "
                "or form it yourself in a session that is started without a group"
            )
        if options.get("timeout") is None:
            options["timeout"] = self.timeout
        self._inits += 1
        os.environ.pop(_AGENT_STORE, None)
        if self._misses_store(options):
            # under torchrun, no rank serves a store at the port of the agent's
            os.environ[_AGENT_STORE] = "True"
        elif options.get("store") is None and self._uses_store(options):
            # a group that is formed again must not find the keys of the previous group
            store = self._connect()
            options["store"] = dist.PrefixStore(f"users/{self._generation}/{self._inits}", store)
            options.pop("init_method", None)
            for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE")):
                if options.get(name) in (None, -1):
                    options[name] = int(os.environ[variable])
        # with another port, the cell chose its own rendezvous, and rank 0 serves the store itself
        served = os.environ.get("MASTER_PORT") == str(self.port)
        return _agent_store(self.sockets) if served else nullcontext()

    def _store_of_rpc(self, options: Mapping[str, Any]) -> Any:
        """The store at which ``init_rpc`` meets; None if the cell chose another rendezvous."""
        if not self._uses_store(options):
            return None
        self._inits += 1
        return dist.PrefixStore(f"users/{self._generation}/{self._inits}", self._connect())

    def _misses_store(self, options: Mapping[str, Any]) -> bool:
        """Whether a cell has set another host for the port of the session's store."""
        environment = options.get("init_method") in (None, "env://")
        host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        own = port == str(self.port) and bool(host)
        return environment and own and not _is_at(host, self.spec.store_address)

    def _uses_store(self, options: Mapping[str, Any]) -> bool:
        """Whether a call of init_process_group is to meet at the session's store.

        It does so if it takes the address from the environment or spells out the same one. With
        any other address, rank 0 serves the store itself.
        """
        if not os.environ.keys() >= {"RANK", "WORLD_SIZE"}:
            return False
        method = options.get("init_method") or "env://"
        if method == "env://":
            host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        else:
            if None in (options.get("rank"), options.get("world_size")):
                return False  # torch takes them from the address, or refuses
            scheme, _, address = str(method).partition("://")
            host, _, port = address.rpartition(":") if scheme == "tcp" else ("", "", "")
        return port == str(self.port) and _is_at(host, self.spec.store_address)


@contextmanager
def _agent_store(sockets: GroupSockets) -> Iterator[None]:
    """Let no rank serve the store for the time of a call, as under torchrun.

    Afterwards, processes that the rank starts must not inherit this.
    """
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    try:
        yield
        sockets.refuse_strangers()
    finally:
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)


def _is_at(host: str, store_address: str) -> bool:
    """Whether an address belongs to the machine on which the session's store listens."""
    if store_address not in _LOOPBACK:
        with suppress(OSError):
            return host == store_address or socket.gethostbyname(host) == store_address
        return False
    if not host or host in _LOOPBACK:
        return bool(host)
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:  # no such name, or an address of another machine
            return False
    return True


def torchrun_environment(spec: RankSpec, port: int) -> dict[str, str]:
    """The variables that torchrun sets, so that a script's code runs unchanged.

    TORCHELASTIC_USE_AGENT_STORE is not among them: processes that a rank starts would inherit it,
    and then wait forever for a store that nobody serves. `RankGroup` connects to the session's
    store instead.
    """
    return {
        "RANK": str(spec.rank),
        "LOCAL_RANK": str(spec.local_rank),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "GROUP_RANK": str(spec.node),
        "GROUP_WORLD_SIZE": str(spec.nodes),
        "ROLE_RANK": str(spec.rank),
        "ROLE_WORLD_SIZE": str(spec.world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": spec.store_address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "ddt_notebook",
    }


def pick_device(name: str | None, local_rank: int) -> torch.device:
    """The device of a rank: the requested one, with an index by local rank for ``"cuda"``."""
    if name in (None, "cpu"):
        return torch.device("cpu")
    device = torch.device(str(name))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "there is no CUDA device here: use gloo on the CPU, or simulate GPUs (as in cuda:2)"
        )
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", local_rank % max(1, torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return device
