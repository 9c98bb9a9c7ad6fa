"""The one-time key with which agents join a session: who has it, and nobody else, may connect.

CurveZMQ (https://rfc.zeromq.org/spec/26/) encrypts and authenticates both sides. The key holds the
notebook's public key, by which an agent recognises the notebook, and the secret key of the agents,
by which the notebook recognises them. It is made for one joining and is of no use afterwards.
"""

from __future__ import annotations

import base64
import os
import sys
from dataclasses import dataclass
from select import select

from .errors import SessionError

#: The environment variable that holds the key; arguments of a command are seen by every user.
VARIABLE = "DDT_JOIN"
_KEY_BYTES = 32
#: How long to wait for the key at the standard input, which a launcher may leave open, in seconds.
_INPUT_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, repr=False)
class JoinKey:
    """The keys, as CurveZMQ takes them.

    Attributes
    ----------
    notebook
        The public key of the notebook.
    agents_secret
        The secret key that all agents of the session use.
    """

    notebook: bytes
    agents_secret: bytes

    @classmethod
    def from_text(cls, text: str) -> JoinKey:
        """Read what `to_text` has written.

        Raises
        ------
        SessionError
            If it is no such key.
        """
        from zmq.utils import z85

        try:
            data = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
        except ValueError:
            data = b""
        if len(data) != 2 * _KEY_BYTES:
            raise SessionError(
                f"{VARIABLE} does not hold the key of a session",
                "copy the whole command that %ddt_start --join shows",
            )
        return cls(z85.encode(data[:_KEY_BYTES]), z85.encode(data[_KEY_BYTES:]))

    def to_text(self) -> str:
        """The key in letters that no shell changes."""
        from zmq.utils import z85

        keys = z85.decode(self.notebook) + z85.decode(self.agents_secret)
        return base64.urlsafe_b64encode(keys).decode()


def given_key() -> JoinKey:
    """The key from the environment, else from the standard input; it is forgotten there.

    Raises
    ------
    SessionError
        If there is none.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text and not sys.stdin.isatty() and select([sys.stdin], [], [], _INPUT_LIMIT_S)[0]:
        text = sys.stdin.readline()
    if not text:
        raise SessionError(
            "the key of the session is missing",
            f"set {VARIABLE}, as in the command that %ddt_start --join shows",
        )
    return JoinKey.from_text(text)
