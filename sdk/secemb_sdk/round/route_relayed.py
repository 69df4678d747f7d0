"""The relayed route: server 0 gets everything, and passes on what is encrypted to server 1's relay key."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable

from secemb_sdk.context import Context
from secemb_sdk.errors import OutdatedKeyError, PinError, UnavailableError
from secemb_sdk.exchange import Accept, Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.models import Floats
from secemb_sdk.round.dense import read_dense
from secemb_sdk.round.route import Answers, put
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared import holds
from secemb_shared.errors import MessageError
from secemb_shared.holds import same_mark
from secemb_shared.messages import Kind, RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, decode_relayed_answer, encode_relayed, step_of

_CLOCK_SLACK = 86_400.0  # seconds that a device's clock may be wrong by


def trust_key(task: TaskSpec, announcement: bytes) -> RelayKey:
    """Return the key in an announcement, or raise unless server 1 has signed it."""
    try:
        return RelayKey.read(task, announcement)
    except MessageError:
        raise PinError(
            "server 0 shows a relay key that the task's server 1 has not signed; nothing was sealed to it",
            noticed=Misconduct.RELAY_KEY,
        ) from None


def is_current(context: Context, key: RelayKey) -> bool:
    """Tell whether it is the time of a key, as far as this device knows."""
    return key.is_current(context.wall_clock(), slack=_CLOCK_SLACK)


def expect_key(context: Context, exchange: Exchange, task: TaskSpec) -> Steps[None]:
    """Raise unless there is a key that this device can seal to: who takes a place in a round must be able to upload.

    By the key that was seen last; server 0 is asked only where that will not do.
    """
    seen = yield from work(context.vault.relay_key)
    if seen is None or not is_current(context, seen):
        yield from fetch_announcement(context, exchange, task)


def take_key(context: Context, task: TaskSpec, shown: str) -> Steps[bytes]:
    """Return an announcement as it came with a ticket, checked."""
    try:
        announcement = urlsafe_b64decode(shown.encode("ascii"))
    except ValueError:
        announcement = b""
    yield from _remember(context, trust_key(task, announcement))
    return announcement


def fetch_announcement(context: Context, exchange: Exchange, task: TaskSpec) -> Steps[bytes]:
    """Ask server 0 for the announcement of the key that server 1 uses now."""
    path = f"/v1/tasks/{task.task_id.hex()}/relay"
    (answer,) = yield from exchange.ask(Request(server=0, method="GET", path=path, most=1 << 16))
    yield from _remember(context, trust_key(task, answer.body))
    return answer.body


def fetch_key(context: Context, exchange: Exchange, task: TaskSpec) -> Steps[RelayKey]:
    """Ask server 0 for the key that server 1 uses now."""
    return trust_key(task, (yield from fetch_announcement(context, exchange, task)))


def _remember(context: Context, key: RelayKey) -> Steps[None]:
    """Refuse a key whose time it is not, or from before the newest that was seen: it may have been given up."""
    if not is_current(context, key):
        raise UnavailableError("server 0 shows a relay key of server 1 whose time it is not; check this device's clock")
    if not (yield from work(lambda: context.vault.see_relay_key(key))):
        raise UnavailableError(
            "server 0 shows an older relay key of server 1 than it did before", noticed=Misconduct.RELAY_KEY
        )


_MOST_KEYS = 3  # that are tried for one message: the one of the ticket, and those fetched in its place
_NO_RECEIPT = "server 0 does not show server 1's receipt for the {}"

Make = Callable[[RelayKey], Request]


class RelayedWay:
    """Talks to server 0 alone."""

    def __init__(self, context: Context, exchange: Exchange) -> None:
        self._context, self._exchange = context, exchange
        self._fetched: RelayKey | None = None  # in the place of the one that came with the ticket

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send RELAYED_KEYS until an answer shows that server 1 holds its part."""
        round_, session_id, most = session.round, session.session_id, Sizes.of(session.round.task).relayed_download
        content, hold = box_content(round_, Kind.KEYS, session.keys[1]), session.holds[1]
        expected = holds.receipt_of(round_.label(session_id), hold, hold)

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
            return same_mark(holds.dense_mark(place, session.holds[1], digest(body)), confirmed)

        version = round_.model_version
        return (yield from read_dense(self._context, self._exchange, round_.task, version, confirms=confirms))

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send RELAYED_UPLOAD until both servers show that they hold their context."""
        (own, other), marks, step = written.update, written.marks, step_of(round_, Kind.RELAYED_UPLOAD)
        content = box_content(round_, step, other, mac=marks.macs[1])

        def make(key: RelayKey) -> Request:
            body = encode_relayed(round_, written.session_id, Kind.RELAYED_UPLOAD, own, content, key)
            ticket, mac = written.ticket, marks.macs[0]
            return put(round_, written.session_id, ticket, "relayed-update", body, 0, mac=mac)

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
                key = self._fetched = yield from fetch_key(self._context, self._exchange, round_.task)
            else:
                return answer
        raise UnavailableError(
            "server 1 does not take the key that server 0 shows for it", noticed=Misconduct.RELAY_KEY
        )

    def _first_key(self, round_: RoundSpec, ticket: Ticket) -> Steps[RelayKey]:
        """Return the key that came with the ticket, unless another has been fetched or its time has passed."""
        key = self._fetched or trust_key(round_.task, ticket.relay or b"")
        if not is_current(self._context, key):
            key = self._fetched = yield from fetch_key(self._context, self._exchange, round_.task)
        return key


def _read_object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
