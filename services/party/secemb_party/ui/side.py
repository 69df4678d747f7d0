"""What only one of the two servers can tell or do; the page is otherwise the same on both."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from secemb_party.ledger import Rollback
from secemb_party.peer_messages import StandingMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Server 0 may ask the other server and may go back to an older model; server 1 can do neither."""

    ask_standing: Callable[[], Awaitable[StandingMessage]] | None = None
    roll_back: Callable[[int, int], Awaitable[Rollback]] | None = None  # to which version, in place of which
