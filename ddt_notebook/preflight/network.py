"""Checks host name, interfaces and ports, by which ranks find each other."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping

import psutil

from ..host import host_facts
from ..model.preflight import Check

#: Interfaces of containers and virtual machines, which other machines cannot reach.
_VIRTUAL = ("docker", "virbr", "veth", "br-", "cni", "flannel", "podman")

_check = functools.partial(Check, "network")


def network_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check the host name, the interfaces that variables name, and whether a port can be opened."""
    name = socket.gethostname()
    yield _name_check("host name", name)
    interfaces = up_interfaces()
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if environment.get(variable):
            yield _interface_check(variable, environment[variable], interfaces)
    virtual = [one for one in interfaces if one.startswith(_VIRTUAL)]
    physical = [one for one in interfaces if one not in virtual and one != "lo"]
    shown = ", ".join(f"{one} {address}" for one, address in interfaces.items()) or "none"
    if virtual and physical and not environment.get("NCCL_SOCKET_IFNAME"):
        yield _check(
            "interfaces",
            "warning",
            shown,
            "in a job on several machines, a backend may choose a virtual interface "
            f"({', '.join(virtual)}), which other machines cannot reach",
            f"for a job on several machines set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to "
            f"{physical[0]}",
        )
    else:
        yield _check("interfaces", "ok", shown)
    address = environment.get("MASTER_ADDR")
    if address:
        yield _name_check("MASTER_ADDR", address)
    yield _port_check(environment)


def up_interfaces() -> dict[str, str]:
    """The first address of each interface that is up."""
    states = psutil.net_if_stats()
    found = {}
    for name, addresses in psutil.net_if_addrs().items():
        numbers = [a.address for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
        if numbers and name in states and states[name].isup:
            found[name] = numbers[0].split("%")[0]
    return found


def _name_check(what: str, name: str) -> Check:
    fix = f"add {name} to /etc/hosts, or use an address that all machines can reach"
    try:
        addresses = host_facts.resolve(name)
    except TimeoutError:
        seen = f"{name}: no answer within {host_facts.RESOLVE_S:.0f} s"
        return _check(what, "error", seen, "every job waits for the name when it starts", fix)
    except OSError as error:
        seen = f"{name} does not resolve: {error.strerror or error}"
        meaning = "gloo needs the host name to find its own address"
        if os.environ.get("GLOO_SOCKET_IFNAME"):
            return _check(what, "warning", seen, "GLOO_SOCKET_IFNAME helps only for gloo", fix)
        return _check(what, "error" if what != "host name" else "warning", seen, meaning, fix)
    shown = f"{name} is {', '.join(addresses)}"
    loopback = all(ipaddress.ip_address(one).is_loopback for one in addresses)
    if loopback and what == "host name":
        meaning = "this is fine on one machine; other machines would connect to themselves"
        return _check(what, "ok", shown, meaning)
    return _check(what, "ok", shown)


def _interface_check(variable: str, wanted: str, interfaces: Mapping[str, str]) -> Check:
    names = [name for name in wanted.lstrip("=").split(",") if name]
    if wanted.startswith("^"):
        left = [i for i in interfaces if not i.startswith(tuple(n.lstrip("^") for n in names))]
        missing = [] if left else [wanted]
    else:
        exact = variable.startswith("GLOO") or wanted.startswith("=")
        missing = [
            name
            for name in names
            if not any(i == name or (not exact and i.startswith(name)) for i in interfaces)
        ]
    if not missing:
        return _check(variable, "ok", f"{wanted} is up")
    there = ", ".join(interfaces) or "none"
    return _check(
        variable,
        "error",
        f"no interface {', '.join(missing)} is up",
        "no process group can be formed",
        f"set it to one of these: {there}; or unset it",
    )


def _port_check(environment: Mapping[str, str]) -> Check:
    port = environment.get("MASTER_PORT", "")
    if port.isdigit() and int(port) < 65536 and _is_local(environment.get("MASTER_ADDR", "")):
        try:
            _bind(int(port))
        except OSError as error:
            return _check(
                "MASTER_PORT",
                "error",
                f"{port}: {error.strerror}",
                "rank 0 cannot open its store",
                "end the process that holds the port (an earlier job?), or choose another",
            )
        return _check("MASTER_PORT", "ok", f"{port} is free")
    try:
        free = _bind(0)
    except OSError as error:
        return _check("ports", "error", f"no port can be opened: {error}", "no job can start")
    return _check("ports", "ok", f"a port could be opened ({free})")


def _is_local(address: str) -> bool:
    with contextlib.suppress(OSError):
        mine = {*up_interfaces().values(), "127.0.0.1", "::1"}
        return not address or bool(mine & set(host_facts.resolve(address)))
    return False


def _bind(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        probe.listen(1)
        return int(probe.getsockname()[1])
