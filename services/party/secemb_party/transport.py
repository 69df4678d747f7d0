"""By which way a message came: from the device itself, or through server 0, which passes it on to server 1.

What is stored and how is the same for both, so that whoever stores a message does not ask; whoever counts it does.
"""

import re
from contextvars import ContextVar, Token
from typing import Literal

Transport = Literal["direct", "relayed"]

_RELAYED = re.compile(r"/v1/rounds/[^/]+/sessions/[^/]+/relayed-[a-z]+|/peer/v1/relay")  # to server 0, to server 1
_current: ContextVar[Transport] = ContextVar("transport", default="direct")


def current() -> Transport:
    """Return the way of the message that is being served; tasks inherit it from the one that starts them."""
    return _current.get()


def arrived(path: str) -> Token[Transport]:
    """Remember by which way a request came, until it is `served`."""
    return _current.set("relayed" if _RELAYED.fullmatch(path) else "direct")


def served(arrival: Token[Transport]) -> None:
    """Forget it again."""
    _current.reset(arrival)
