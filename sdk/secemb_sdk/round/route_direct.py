"""The direct transport: each server receives its own messages."""

import hashlib
from functools import partial

from secemb_sdk.context import DIRECT
from secemb_sdk.errors import UnavailableError
from secemb_sdk.exchange import json_object
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.round.dense import ask_server1
from secemb_sdk.round.join import BETWEEN_ROUNDS, announced_round, ask_permission, decode_round, find_round
from secemb_sdk.round.route import Answers, Joined, Route, carry
from secemb_sdk.round.session import DeviceSession, session_id_of
from secemb_sdk.steps import Answer, Request, Steps
from secemb_shared.messages import RoundSpec, Sizes


class DirectRoute(Route):
    """Talks to both servers."""

    transport = DIRECT

    def join(self, seed: bytes) -> Steps[Joined]:
        """Take a place in the round that both servers announce."""
        announced: str | None = yield from find_round(self._exchange, self._task, seed, server=1)
        place = yield from ask_permission(self._exchange, session_id_of(seed), "join")
        if announced != place.round:
            # Server 0 may have opened the next round between the two requests; server 1 knows it by now.
            announced = yield from announced_round(self._exchange, server=1)
        if announced != place.round:
            raise UnavailableError(
                "the two servers announce different rounds", seconds=BETWEEN_ROUNDS, noticed=Misconduct.ROUND
            )
        return Joined(round=decode_round(place.round, self._task), ticket=place.ticket)

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send KEYS to both servers concurrently."""
        most = Sizes.of(self._task).answer
        first, second = yield from self._exchange.ask(
            *(
                carry(session.round, session.session_id, ticket.ticket, "keys", body, server=server, most=most)
                for server, body in enumerate(session.keys)
            )
        )
        confirm = partial(ask_server1, self._exchange, self._task, session.round.model_version)
        return Answers(partial(session.read, (first.body, second.body)), confirm)

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send to server 1 first, because server 0 ends the round based on what it holds."""
        for server in (1, 0):
            message, mac, ticket = written.update[server], written.marks.macs[server], written.ticket.ticket
            request = carry(round_, written.session_id, ticket, "update", message, server=server, mac=mac)
            yield from self._exchange.ask(request, accept=_acknowledges)


def _acknowledges(request: Request, answer: Answer) -> str | None:
    """Return None if a server acknowledges exactly what was sent."""
    if json_object(answer.body).get("sha256") == hashlib.sha256(request.body).hexdigest():
        return None
    return f"server {request.server} did not acknowledge the update"
