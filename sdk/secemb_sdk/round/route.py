"""The interface of transports for a session's messages. Each is one `Route`, the only one known to the code of a round.

    join      → a place in a round that both servers run
    keys      → the rows of the session's items, and a way to let server 1 confirm the dense part
    update    → both servers prove that they hold it

A new transport is a subclass, and one entry in `ROUTES` of `secemb_sdk.round.contribute`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from secemb_sdk.exchange import Exchange
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.models import Floats
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.steps import Request, Steps
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices

_SHORT_ANSWER = 1 << 16  # maximum bytes of an answer that is not a protocol message

ReadRows = Callable[[], tuple[Indices, Floats]]  # the placed items and their rows; raises if a tag is wrong
Confirm = Callable[[bytes], Steps[bool]]  # whether server 1 publishes the same dense part


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A place in a round."""

    round: RoundSpec
    ticket: str = field(repr=False)
    route_state: bytes = field(default=b"", repr=False)  # data that the route needs; stored with the ticket


@dataclass(frozen=True, slots=True)
class Answers:
    """The servers' answers to a session's keys."""

    read_rows: ReadRows = field(repr=False)
    confirm_dense: Confirm = field(repr=False)


class Route(ABC):
    """One transport, for one call of the device."""

    transport: ClassVar[str]

    def __init__(self, exchange: Exchange, task: TaskSpec) -> None:
        self._exchange, self._task = exchange, task

    @abstractmethod
    def join(self, seed: bytes) -> Steps[Joined]:
        """Take a place in a round for the session of this seed."""

    @abstractmethod
    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send the session's keys until both servers have answered."""

    @abstractmethod
    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send the update until both servers have proved that they hold it."""


def carry(
    round_: RoundSpec,
    session_id: bytes,
    ticket: str,
    what: str,
    body: bytes,
    *,
    server: int,
    method: str = "PUT",
    most: int = 0,
    mac: bytes = b"",
) -> Request:
    """Return the request for one message, with the MAC of an upload."""
    headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket}
    return Request(
        server=server,
        method=method,
        path=f"/v1/rounds/{round_.digest.hex()}/sessions/{session_id.hex()}/{what}",
        headers=headers | ({"secemb-proof": mac.hex()} if mac else {}),
        body=body,
        most=max(most, _SHORT_ANSWER),
    )
