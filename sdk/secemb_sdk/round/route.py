"""How a session's messages travel: directly to both servers, or all of them through server 0."""

from typing import Protocol, TypeAlias

from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.models import Floats
from secemb_sdk.round.session import DeviceSession, Messages
from secemb_sdk.steps import Request, Steps
from secemb_shared.messages import RoundSpec

DIRECT, RELAYED = "direct", "relayed"
MOST_WORDS = 1 << 16  # bytes of an answer that is no message

Answers: TypeAlias = Messages | bytes  # both servers' ANSWERs, or the one RELAYED_ANSWER


class Way(Protocol):
    """What differs between the two."""

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send the session's keys until they are answered."""

    def read_dense(self, session: DeviceSession, answers: Answers) -> Steps[Floats | None]:
        """Return the dense part that both servers publish, or nothing if they do not agree."""

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send the update until both servers have acknowledged it."""


def put(
    round_: RoundSpec,
    session_id: bytes,
    ticket: Ticket,
    what: str,
    body: bytes,
    server: int,
    *,
    most: int = 0,
    mac: bytes = b"",
) -> Request:
    """Return the request that carries one message, with the MAC that goes with an upload."""
    headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket.ticket}
    return Request(
        server=server,
        method="PUT",
        path=f"/v1/rounds/{round_.digest.hex()}/sessions/{session_id.hex()}/{what}",
        headers=headers | ({"secemb-proof": mac.hex()} if mac else {}),
        body=body,
        most=max(most, MOST_WORDS),
    )
