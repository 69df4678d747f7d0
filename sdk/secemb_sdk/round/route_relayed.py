"""The relayed transport: server 0 receives everything, and forwards what is encrypted to server 1's relay key."""

from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import partial

from secemb_sdk.context import RELAYED
from secemb_sdk.errors import OutdatedKeyError, PinError, UnavailableError
from secemb_sdk.exchange import Accept, Exchange, json_object
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.round.join import ask_permission, decode_round, find_round
from secemb_sdk.round.route import Answers, Joined, Route, carry
from secemb_sdk.round.session import DeviceSession, session_id_of
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared import holds
from secemb_shared.errors import MessageError
from secemb_shared.holds import same_mark
from secemb_shared.messages import Kind, RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, decode_relayed_answer, encode_relayed, step_of

_CLOCK_SLACK = 86_400.0  # tolerated error of a device's clock, in seconds
_MOST_KEYS = 3  # tried for one message: the one in the ticket, and its replacements
_NO_RECEIPT = "server 0 did not return server 1's receipt for the {}"

Make = Callable[[RelayKey], Request]


class RelayKeys:
    """The relay keys of server 1, as sent by server 0: each must be signed, current, and not older than the last."""

    def __init__(self, exchange: Exchange, task: TaskSpec) -> None:
        self._exchange, self._context, self._task = exchange, exchange.context, task

    def expect(self) -> Steps[None]:
        """Raise unless there is a key to encrypt to: a device that joins a round must be able to upload.

        The last known key suffices; server 0 is asked only if it has expired.
        """
        seen = yield from work(self._context.vault.relay_key)
        if seen is None or not self.is_current(seen):
            yield from self.fetch_announcement()

    def fetch(self) -> Steps[RelayKey]:
        """Ask server 0 for the key that server 1 uses now."""
        return self.trust((yield from self.fetch_announcement()))

    def fetch_announcement(self) -> Steps[bytes]:
        """Ask server 0 for the announcement of the key that server 1 uses now, and check it."""
        path = f"/v1/tasks/{self._task.task_id.hex()}/relay"
        (answer,) = yield from self._exchange.ask(Request(server=0, method="GET", path=path, most=1 << 16))
        yield from self._remember(answer.body)
        return answer.body

    def take_announcement(self, shown: str) -> Steps[bytes]:
        """Verify an announcement from a ticket, and return it."""
        try:
            announcement = urlsafe_b64decode(shown.encode("ascii"))
        except ValueError:
            announcement = b""
        yield from self._remember(announcement)
        return announcement

    def trust(self, announcement: bytes) -> RelayKey:
        """Return the key in an announcement, or raise unless server 1 has signed it."""
        try:
            return RelayKey.read(self._task, announcement)
        except MessageError:
            raise PinError(
                "server 0 returned a relay key that server 1 did not sign for this task; nothing was encrypted to it",
                noticed=Misconduct.RELAY_KEY,
            ) from None

    def is_current(self, key: RelayKey) -> bool:
        """Tell whether a key is valid now, according to this device's clock."""
        return key.is_current(self._context.wall_clock(), slack=_CLOCK_SLACK)

    def _remember(self, announcement: bytes) -> Steps[None]:
        """Refuse a key that is not valid now, or is older than the newest known one: it may have been withdrawn."""
        key = self.trust(announcement)
        if not self.is_current(key):
            raise UnavailableError("server 0 returned an expired relay key for server 1; check this device's clock")
        if not (yield from work(lambda: self._context.vault.see_relay_key(key))):
            raise UnavailableError(
                "server 0 returned an older relay key for server 1 than it did before", noticed=Misconduct.RELAY_KEY
            )


class RelayedRoute(Route):
    """Communicates with server 0 only. Its state besides a ticket is the announcement of server 1's relay key."""

    transport = RELAYED

    def __init__(self, exchange: Exchange, task: TaskSpec) -> None:
        super().__init__(exchange, task)
        self._keys = RelayKeys(exchange, task)
        self._fetched: RelayKey | None = None  # replaces the one from the ticket

    def join(self, seed: bytes) -> Steps[Joined]:
        """Take a place in the round that server 0 announces; server 1 refuses boxes encrypted for another round."""
        if self._task.privacy is not None:
            yield from find_round(self._exchange, self._task, seed, server=0)
        yield from self._keys.expect()
        place = yield from ask_permission(self._exchange, session_id_of(seed), "join")
        round_ = decode_round(place.round, self._task)
        if place.relay is None:
            announcement = yield from self._keys.fetch_announcement()
        else:
            announcement = yield from self._keys.take_announcement(place.relay)
        return Joined(round=round_, ticket=place.ticket, route_state=announcement)

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        """Send RELAYED_KEYS until an answer proves that server 1 holds its part."""
        round_, session_id, most = session.round, session.session_id, Sizes.of(self._task).relayed_download
        content, hold = box_content(round_, Kind.KEYS, session.keys[1]), session.holds[1]
        expected = holds.receipt_of(round_.label(session_id), hold, hold)

        def make(key: RelayKey) -> Request:
            body = encode_relayed(round_, session_id, Kind.RELAYED_KEYS, session.keys[0], content, key)
            return carry(round_, session_id, ticket.ticket, "relayed-keys", body, server=0, most=most)

        def shows_receipt(_request: Request, answer: Answer) -> str | None:
            try:
                shown = decode_relayed_answer(round_, session_id, answer.body)[1]
            except MessageError:
                return "this app cannot read server 0's response to the keys"
            return None if same_mark(shown, expected) else _NO_RECEIPT.format("keys")

        answer = yield from self._send(ticket, make, shows_receipt)
        confirmed = decode_relayed_answer(round_, session_id, answer.body)[2]
        return Answers(partial(session.read_relayed, answer.body), partial(_confirm, session, confirmed))

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        """Send RELAYED_UPLOAD until both servers prove that they hold their parts."""
        (own, other), marks, step = written.update, written.marks, step_of(round_, Kind.RELAYED_UPLOAD)
        content = box_content(round_, step, other, mac=marks.macs[1])

        def make(key: RelayKey) -> Request:
            body = encode_relayed(round_, written.session_id, Kind.RELAYED_UPLOAD, own, content, key)
            ticket, mac = written.ticket.ticket, marks.macs[0]
            return carry(round_, written.session_id, ticket, "relayed-update", body, server=0, mac=mac)

        def acknowledges(_request: Request, answer: Answer) -> str | None:
            found = json_object(answer.body)
            if found.get("sha256") != digest(own).hex():
                return "server 0 did not acknowledge the update"
            shown = str(found.get("receipt", "")).encode("utf-8", "replace")
            return None if same_mark(shown, marks.receipt.hex().encode()) else _NO_RECEIPT.format("update")

        yield from self._send(written.ticket, make, acknowledges)

    def _send(self, ticket: Ticket, make: Make, accept: Accept) -> Steps[Answer]:
        """Send a message; if server 1 no longer uses the key, encrypt the same message to the current one."""
        key = yield from self._first_key(ticket)
        for _ in range(_MOST_KEYS):
            request = yield from work(partial(make, key))
            try:
                (answer,) = yield from self._exchange.ask(request, accept=accept)
            except OutdatedKeyError:
                key = self._fetched = yield from self._keys.fetch()
            else:
                return answer
        raise UnavailableError(
            "server 1 rejected the relay key that server 0 returned for it", noticed=Misconduct.RELAY_KEY
        )

    def _first_key(self, ticket: Ticket) -> Steps[RelayKey]:
        """Return the key from the ticket, unless it has expired or another has been fetched."""
        key = self._fetched or self._keys.trust(ticket.route_state)
        if not self._keys.is_current(key):
            key = self._fetched = yield from self._keys.fetch()
        return key


def _confirm(session: DeviceSession, confirmed: bytes, body: bytes) -> Steps[bool]:
    """Compare a dense part with server 1's confirmation in its answer; no request is needed."""
    yield from ()
    place = session.round.label(session.session_id)
    return same_mark(holds.dense_mark(place, session.holds[1], digest(body)), confirmed)
