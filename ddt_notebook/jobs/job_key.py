"""The secret by which the hosts of one recorded job recognise each other."""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b

from ..host.errors import SessionError
from ..host.join_key import JoinKey

#: The environment variable that holds it; the ranks do not inherit it.
VARIABLE = "DDT_JOB_KEY"
#: A shorter text may be guessed.
_SHORTEST = 32
_MAKE_ONE = f"export {VARIABLE}=$(ddt-notebook key) before the job is started on any host"


def new_key() -> str:
    """A secret for one job."""
    return secrets.token_urlsafe(32)


def given_secret() -> str:
    """The secret from the environment, from which it is removed.

    Raises
    ------
    SessionError
        If there is none, or it is too short.
    """
    text = os.environ.pop(VARIABLE, "").strip()
    if not text:
        raise SessionError(f"{VARIABLE} is not set", _MAKE_ONE)
    if len(text) < _SHORTEST:
        raise SessionError(f"{VARIABLE} is shorter than {_SHORTEST} letters", _MAKE_ONE)
    return text


def keys(secret: str) -> tuple[JoinKey, bytes]:
    """What the hosts use to connect, and the secret key of the one to which they do.

    Any 32 bytes are a secret key of CurveZMQ, so that all hosts derive the same ones.
    """
    import zmq
    from zmq.utils import z85

    def derived(side: bytes) -> bytes:
        return z85.encode(blake2b(secret.encode(), digest_size=32, person=side).digest())

    collector = derived(b"ddt collector")
    return JoinKey(zmq.curve_public(collector), derived(b"ddt host")), collector
