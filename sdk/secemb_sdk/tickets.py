"""Tickets as server 0 gives them to devices."""

from typing import Any

from secemb_sdk.errors import UnavailableError

_LONGEST = 128


def read_ticket(found: Any) -> str:
    """Return a ticket, if it can travel in a header: it may be stored, and would be tried again and again."""
    if isinstance(found, str) and found.isascii() and found.isprintable() and len(found) <= _LONGEST:
        return found
    raise UnavailableError("a server's answer is not what this app understands; update the app")
