"""Relayed messages, boxes and announcements with one thing wrong, and the result of each."""

from collections.abc import Iterator
from dataclasses import replace

from secemb_lab.vectors.document import Json, Source
from secemb_lab.vectors.refused_macs import GoodMacs
from secemb_lab.vectors.refused_messages import GoodRound, changed, headers, lengths
from secemb_lab.vectors.relays import Server1
from secemb_shared.holds import MARK_BYTES
from secemb_shared.labels import Label
from secemb_shared.messages import Kind
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import ENVELOPE_BYTES, envelope
from secemb_shared.messages.relayed import box_content, encode_relayed_answer, split_relayed, step_of
from secemb_shared.messages.spec import SURVEY, TRAIN

_STEPS = ((Kind.RELAYED_KEYS, TRAIN), (Kind.RELAYED_UPLOAD, TRAIN), (Kind.RELAYED_UPLOAD, SURVEY))


class GoodRelay:
    """The good session once more, sent through server 0."""

    def __init__(self, good: GoodRound, macs: GoodMacs) -> None:
        self.good, self.server, self.source = good, good.server, Source("negative boxes")
        self.place = good.round.label(good.session_id)
        self.macs = macs
        self.contents = {which: self._content(*which) for which in _STEPS}
        self.boxes = {which: self.encrypt(which, self.contents[which]) for which in _STEPS}
        self.messages = {which: self._message(*which) for which in _STEPS}
        other = good.messages["answer", 1, TRAIN][ENVELOPE_BYTES:] + self.source(2 * MARK_BYTES)
        self.answer = encode_relayed_answer(good.round, good.session_id, good.messages["answer", 0, TRAIN], other)
        self.announcement = self.server.announce(good.task)

    def described(self) -> Json:
        """Return the additional inputs of a decoder of relayed messages."""
        return {"relay_private": self.server.private.hex()}

    def direct(self, kind: Kind, round_kind: str, party: int) -> bytes:
        """Return the direct message that a relayed one stands for."""
        name = step_of(self.good.rounds[round_kind], kind).name.lower()
        return self.good.messages[name, party, round_kind]

    def public(self, kind: Kind, round_kind: str) -> bytes:
        """Return what server 0 passes on."""
        return split_relayed(
            self.good.rounds[round_kind], self.good.session_id, kind, self.messages[kind, round_kind]
        ).public

    def encrypt(
        self,
        which: tuple[Kind, str],
        content: bytes,
        *,
        place: Label | None = None,
        step: Kind | None = None,
        server: Server1 | None = None,
    ) -> bytes:
        """Return key id and box, for this session unless told otherwise."""
        kind, round_kind = which
        right = step_of(self.good.rounds[round_kind], kind)
        return (server or self.server).encrypt(place or self.place, step or right, content, self.source(32))

    def _content(self, kind: Kind, round_kind: str) -> bytes:
        round_, message = self.good.rounds[round_kind], self.direct(kind, round_kind, 1)
        mac = b"" if kind is Kind.RELAYED_KEYS else self.macs.prove(1, message)
        return box_content(round_, step_of(round_, kind), message, mac=mac)

    def _message(self, kind: Kind, round_kind: str) -> bytes:
        head = envelope(self.good.rounds[round_kind], self.good.session_id, kind, 0)
        return head + self.direct(kind, round_kind, 0)[ENVELOPE_BYTES:] + self.boxes[kind, round_kind]


def accepted(relay: GoodRelay) -> Iterator[Json]:
    """Yield what is right."""
    for kind, round_kind in _STEPS:
        yield {**_named(kind, round_kind), "data": relay.messages[kind, round_kind].hex()}
        yield _box(relay, (kind, round_kind), relay.boxes[kind, round_kind])
    yield {"decoder": "relayed_answer", "data": relay.answer.hex()}
    yield {"decoder": "relay_key", "data": relay.announcement.hex()}


def refused(relay: GoodRelay) -> Iterator[Json]:
    """Yield every kind of relayed message with every kind of fault, then boxes, then announcements."""
    for kind, round_kind in _STEPS:
        data = relay.messages[kind, round_kind]
        faults = (*lengths(data), *headers(data)) if round_kind == TRAIN else lengths(data)
        for name, wrong, error in (*faults, *_elsewhere(relay, kind, round_kind)):
            yield {"name": name, **_named(kind, round_kind), "data": wrong.hex(), "error": error}
    for name, wrong, error in (*lengths(relay.answer), *headers(relay.answer)):
        yield {"name": name, "decoder": "relayed_answer", "data": wrong.hex(), "error": error}
    for which in _STEPS:
        yield from _boxes(relay, which)
    yield from _announcements(relay)


def _elsewhere(relay: GoodRelay, kind: Kind, round_kind: str) -> Iterator[tuple[str, bytes, str]]:
    right, session_id = relay.good.rounds[round_kind], relay.good.session_id
    body = relay.messages[kind, round_kind][ENVELOPE_BYTES:]
    yield "of another round", envelope(replace(right, number=9), session_id, kind, 0) + body, "BindingError"
    yield "of another session", envelope(right, bytes(16), kind, 0) + body, "BindingError"
    yield "to the other party", envelope(right, session_id, kind, 1) + body, "BindingError"


def _boxes(relay: GoodRelay, which: tuple[Kind, str]) -> Iterator[Json]:
    content, box, place = relay.contents[which], relay.boxes[which], relay.place
    step = step_of(relay.good.rounds[which[1]], which[0])
    places = {
        "of another task": replace(place, task_id=bytes(32)),
        "of another round": replace(place, number=9),
        "of another session": replace(place, session_id=bytes(16)),
    }
    for name, other in places.items():
        yield _box(relay, which, relay.encrypt(which, content, place=other), name=name, error="BoxError")
    another = Kind.UPDATE if step is Kind.KEYS else Kind.KEYS
    yield _box(relay, which, relay.encrypt(which, content, step=another), name="of another step", error="BoxError")
    stranger = Server1.draw(relay.source)
    yield _box(relay, which, relay.encrypt(which, content, server=stranger), name="for another key", error="BoxError")
    for at in (8, 39, 40, len(box) - 1):
        wrong = changed(box, at, box[at] ^ 1)
        yield _box(relay, which, wrong, name=f"byte {at} changed", error="BoxError")
    yield _box(relay, which, relay.encrypt(which, content + b"\0"), name="content a byte too long", error="BoxError")
    yield _box(relay, which, relay.encrypt(which, content[:-1]), name="content cut by a byte", error="BoxError")
    yield from _contents(relay, which)


def _contents(relay: GoodRelay, which: tuple[Kind, str]) -> Iterator[Json]:
    """Yield boxes that can be decrypted but do not match the relayed parts."""
    content, public = relay.contents[which], relay.public(*which)
    other_round = content[:32] + digest(b"another round") + content[64:]
    yield _box(
        relay, which, relay.encrypt(which, other_round), name="sealed for another round", error="OtherRoundError"
    )
    other_words = digest(b"other words") + content[32:]
    yield _box(relay, which, relay.encrypt(which, other_words), name="digest of other words", error="AlteredError")
    if public:
        wrong = changed(public, -1, public[-1] ^ 1)
        yield _box(relay, which, relay.boxes[which], wrong, name="one bit changed on the way", error="AlteredError")
    if which[0] is Kind.RELAYED_UPLOAD:
        wrong = changed(content, -1, content[-1] ^ 1)
        yield _box(relay, which, relay.encrypt(which, wrong), name="proof of somebody else", error="MacError")


def _announcements(relay: GoodRelay) -> Iterator[Json]:
    good, task = relay.announcement, relay.good.task
    cases = {
        "cut by a byte": (good[:-1], "LengthError"),
        "a byte too long": (good + b"\0", "LengthError"),
        "another key": (changed(good, 0, good[0] ^ 1), "RelayKeyError"),
        "another beginning": (changed(good, 32, good[32] ^ 1), "RelayKeyError"),
        "another end": (changed(good, 40, good[40] ^ 1), "RelayKeyError"),
        "another signature": (changed(good, 111, good[111] ^ 1), "RelayKeyError"),
        "signed for another task": (relay.server.announce(replace(task, name="another")), "RelayKeyError"),
        "signed by somebody else": (Server1.draw(relay.source).announce(task), "RelayKeyError"),
    }
    for name, (data, error) in cases.items():
        yield {"name": name, "decoder": "relay_key", "data": data.hex(), "error": error}


def _box(
    relay: GoodRelay,
    which: tuple[Kind, str],
    box: bytes,
    public: bytes | None = None,
    *,
    name: str | None = None,
    error: str | None = None,
) -> Json:
    kind, round_kind = which
    case: Json = {**_named(kind, round_kind), "decoder": "box", "relayed": kind.name.lower(), "sealed": box.hex()}
    case["public"] = (relay.public(kind, round_kind) if public is None else public).hex()
    return case if name is None else {"name": name, **case, "error": error}


def _named(kind: Kind, round_kind: str) -> Json:
    return {"decoder": kind.name.lower(), "round_kind": round_kind}
