"""Runs all checks, in the order in which a job would meet what they check."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from ..model.preflight import Check, Preflight
from .comparing import environment_facts, rank_checks
from .network import network_checks, up_interfaces
from .resources import resource_checks
from .shadows import shadow_checks
from .timeouts import timeout_checks
from .variables import variable_checks
from .versions import backend_checks, read_versions, version_checks


def examine(
    ranks: int = 4,
    *,
    form_groups: bool = True,
    environments: Mapping[int, Mapping[str, str]] | None = None,
    session: tuple[float, float] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Preflight:
    """Check this machine before a job runs on it.

    Parameters
    ----------
    ranks
        How many ranks the machine is to hold.
    form_groups
        Whether to try each backend with two processes of its own; takes a few seconds.
    environments
        What the ranks of a session say of themselves, by rank.
    session
        The ``timeout`` and ``hang_after`` of that session, in seconds.
    progress
        Told what is done now.

    Raises
    ------
    ValueError
        If ``ranks`` is below 1.
    """
    if ranks < 1:
        raise ValueError(f"there cannot be {ranks} ranks")
    progress("importing torch in a process of its own …")
    facts, ended = read_versions()
    checks: list[Check] = list(version_checks(facts, ended))
    if form_groups and facts:
        progress("forming a group of two processes …")
        checks += backend_checks(facts)
    progress("looking at the environment, the network and the limits …")
    checks += variable_checks(os.environ)
    checks += timeout_checks(facts, os.environ, session)
    checks += network_checks(os.environ)
    checks += resource_checks(ranks, int(facts.get("threads", 1)), os.environ)
    checks += shadow_checks([Path.cwd()])
    checks += rank_checks(environments or {})
    return Preflight(
        machine=platform.node(),
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        checks=tuple(checks),
        facts={f"versions.{name}": value for name, value in facts.items()}
        | environment_facts(os.environ)
        | {"network.interfaces": ", ".join(up_interfaces())},
    )
