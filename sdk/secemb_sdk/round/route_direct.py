"""The direct way: each server gets its own messages."""

import hashlib
import json

from secemb_sdk.context import Context
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.models import Floats
from secemb_sdk.round.dense import read_dense
from secemb_sdk.round.route import Answers, put
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.steps import Answer, Request, Steps
from secemb_shared.messages import RoundSpec, Sizes


class DirectWay:
    """Talks to both servers."""

    def __init__(self, context: Context, exchange: Exchange) -> None:
        self._context, self._exchange = context, exchange

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send KEYS to both at the same time."""
        round_, most = session.round, Sizes.of(session.round.task).answer
        first, second = yield from self._exchange.ask(
            *(put(round_, session.session_id, ticket, "keys", session.keys[to], to, most=most) for to in (0, 1))
        )
        return first.body, second.body

    def read_dense(self, session: DeviceSession, answers: Answers) -> Steps[Floats | None]:
        """Read it from server 0, and ask server 1 whether it is the same."""
        return (yield from read_dense(self._context, self._exchange, session.round.task, session.round.model_version))

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send to server 1 and then to server 0, which decides by what it holds itself when everybody is done."""
        for server in (1, 0):
            message, mac = written.update[server], written.marks.macs[server]
            request = put(round_, written.session_id, written.ticket, "update", message, server, mac=mac)
            yield from self._exchange.ask(request, accept=_acknowledges)


def _acknowledges(request: Request, answer: Answer) -> str | None:
    """Return None if a server says that it holds exactly what was sent."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and found.get("sha256") == hashlib.sha256(request.body).hexdigest():
        return None
    return f"server {request.server} does not show that it holds the update"
