"""The relayed way: server 0 gets everything, and passes on what is sealed to server 1.

A box is sealed anew whenever it is sent anew, because server 1 may use another key by then. What is in it never
changes: it follows from the session's seed while there is one, and from the update and its marks afterwards.
"""

import json
from collections.abc import Callable

from secemb_sdk.dense import read_dense
from secemb_sdk.detections import Misconduct
from secemb_sdk.effects import Answer, Request, Steps, work
from secemb_sdk.errors import OutdatedKeyError, UnavailableError
from secemb_sdk.exchange import Accept, Exchange
from secemb_sdk.flow import DeviceSession
from secemb_sdk.models import Floats
from secemb_sdk.parts import Parts
from secemb_sdk.pending import Ticket, Written
from secemb_sdk.relay_trust import fetch_key, is_current, trust_key
from secemb_sdk.ways import Answers, put
from secemb_shared import relaying
from secemb_shared.errors import MessageError
from secemb_shared.holds import same_mark
from secemb_shared.messages import Kind, RoundSpec, Sizes
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, decode_relayed_answer, encode_relayed, step_of

_MOST_KEYS = 3  # that are tried for one message: the one of the ticket, and those fetched in its place
_NO_RECEIPT = "server 0 does not show server 1's receipt for the {}"

Make = Callable[[RelayKey], Request]


class RelayedWay:
    """Talks to server 0 alone."""

    def __init__(self, parts: Parts, exchange: Exchange) -> None:
        self._parts, self._exchange = parts, exchange
        self._fetched: RelayKey | None = None  # in the place of the one that came with the ticket

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send RELAYED_KEYS until an answer shows that server 1 holds its part."""
        round_, session_id, most = session.round, session.session_id, Sizes.of(session.round.task).relayed_download
        content, hold = box_content(round_, Kind.KEYS, session.keys[1]), session.holds[1]
        expected = relaying.receipt_of(round_.label(session_id), hold, hold)

        def make(key: RelayKey) -> Request:
            body = encode_relayed(round_, session_id, Kind.RELAYED_KEYS, session.keys[0], content, key)
            return put(round_, session_id, ticket, "relayed-keys", body, 0, most=most)

        def shows_receipt(_request: Request, answer: Answer) -> str | None:
            try:
                shown = decode_relayed_answer(round_, session_id, answer.body)[1]
            except MessageError:
                return "server 0 answers the keys with something that is no answer to them"
            return None if same_mark(shown, expected) else _NO_RECEIPT.format("keys")

        return (yield from self._send(round_, ticket, make, shows_receipt)).body

    def read_dense(self, session: DeviceSession, answers: Answers) -> Steps[Floats | None]:
        """Read it from server 0, and compare it with what server 1 has confirmed beside its answer."""
        round_, place = session.round, session.round.label(session.session_id)
        answer = answers if isinstance(answers, bytes) else b""  # which would not decode
        confirmed = decode_relayed_answer(round_, session.session_id, answer)[2]

        def confirms(body: bytes) -> bool:
            return same_mark(relaying.dense_mark(place, session.holds[1], digest(body)), confirmed)

        version = round_.model_version
        return (yield from read_dense(self._parts, self._exchange, round_.task, version, confirms=confirms))

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send RELAYED_UPLOAD until both servers show that they hold their parts."""
        (own, other), marks, step = written.update, written.marks, step_of(round_, Kind.RELAYED_UPLOAD)
        content = box_content(round_, step, other, proof=marks.proofs[1])

        def make(key: RelayKey) -> Request:
            body = encode_relayed(round_, written.session_id, Kind.RELAYED_UPLOAD, own, content, key)
            ticket, proof = written.ticket, marks.proofs[0]
            return put(round_, written.session_id, ticket, "relayed-update", body, 0, proof=proof)

        def acknowledges(_request: Request, answer: Answer) -> str | None:
            found = _read_object(answer.body)
            if found.get("sha256") != digest(own).hex():
                return "server 0 does not show that it holds the update"
            shown = str(found.get("receipt", "")).encode("utf-8", "replace")
            return None if same_mark(shown, marks.receipt.hex().encode()) else _NO_RECEIPT.format("update")

        yield from self._send(round_, written.ticket, make, acknowledges)

    def _send(self, round_: RoundSpec, ticket: Ticket, make: Make, accept: Accept) -> Steps[Answer]:
        """Send a message; where server 1 does not use the key any more, seal the same again to the one it uses."""
        key = yield from self._first_key(round_, ticket)
        for _ in range(_MOST_KEYS):
            sealing = key
            request = yield from work(lambda: make(sealing))  # noqa: B023  (called before the next turn)
            try:
                (answer,) = yield from self._exchange.ask(request, accept=accept)
            except OutdatedKeyError:
                key = self._fetched = yield from fetch_key(self._parts, self._exchange, round_.task)
            else:
                return answer
        raise UnavailableError(
            "server 1 does not take the key that server 0 shows for it", noticed=Misconduct.RELAY_KEY
        )

    def _first_key(self, round_: RoundSpec, ticket: Ticket) -> Steps[RelayKey]:
        """Return the key that came with the ticket, unless another has been fetched or its time has passed."""
        key = self._fetched or trust_key(round_.task, ticket.relay or b"")
        if not is_current(self._parts, key):
            key = self._fetched = yield from fetch_key(self._parts, self._exchange, round_.task)
        return key


def _read_object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
