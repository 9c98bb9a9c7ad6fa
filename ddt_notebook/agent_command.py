"""The command ``ddt-notebook agent``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .host.errors import SessionError
from .views import safe


def add_agent(commands: Any) -> None:
    """Declare the command on the parser of ``ddt-notebook``."""
    command = commands.add_parser(
        "agent",
        help="start ranks on this host for a notebook on another one",
        description="Dial the notebook that shows this command (%%ddt_start --join) and start its "
        "ranks on this host, with the environment and in the folder of this command. It ends with "
        "the session, or when the notebook or the network is gone. The key of the session is read "
        "from DDT_JOIN or, if that is not set, from the standard input.",
    )
    command.add_argument("notebook", metavar="HOST:PORT", help="where the notebook listens")
    command.add_argument(
        "--interface",
        metavar="NAME",
        help="the network interface of the ranks (default: GLOO_SOCKET_IFNAME, else the one that "
        "leads to the notebook)",
    )
    command.add_argument(
        "--label", default="", metavar="NAME", help="what the session calls this host"
    )
    command.set_defaults(run=_agent)


def _agent(options: argparse.Namespace) -> int:
    host, _, port = options.notebook.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SessionError(f"{options.notebook!r} is not HOST:PORT")
    # a cell of a notebook may have imported this module; only the agent needs ZeroMQ
    from .host.agent import Agent
    from .host.agent_link import AgentLink
    from .host.join_key import given_key

    link = AgentLink(host.strip("[]"), int(port), given_key())
    try:
        Agent(link, options.interface, options.label, _say).serve()
    finally:
        link.close()
    return 0


def _say(text: str) -> None:
    print(f"ddt-notebook agent: {safe.clean(text)}", file=sys.stderr, flush=True)
