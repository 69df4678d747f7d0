"""Messages with one thing wrong, and answers that decode but do not hold the rows that were asked for."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from secemb_lab.party_round import PartyRound
from secemb_lab.vectors.document import Json, Recorder, Replay, Source
from secemb_lab.vectors.relays import Server1
from secemb_lab.vectors.specifications import direct
from secemb_sdk.round.session import DeviceSession
from secemb_shared.dpf import HASH_BYTES
from secemb_shared.dpf._portable import Portable
from secemb_shared.dpf.backend import Words32
from secemb_shared.messages import Kind, RoundSpec, decode_answer, encode_answer, encode_sum_share
from secemb_shared.messages.codec import ENVELOPE_BYTES, envelope
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.row_access import tag_rows
from secemb_shared.secure_sum import SUM_RING

_KINDS = (TRAIN, SURVEY, EVALUATE)
_Place = tuple[str, int, str]  # decoder, party, kind of the round


class GoodRound:
    """A session of which every message is right: three slots, and nine levels in all, so seven bits to spare.

    Its number and model are those of a training round, and of two rounds more that differ in nothing but their kind.
    """

    def __init__(self) -> None:
        source = Source("negative")
        sizes = {"items": 5, "capacity": 3, "row_width": 1, "dense_size": 1}
        self.server = Server1.draw(Source("negative relay"))
        relay: dict[str, int | str] = {"relay_key": self.server.relay_key}
        self.task = direct(name="negative", ring_bits=32, fraction_bits=16, bound=1000, **sizes, **relay)
        self.round = RoundSpec(task=self.task, number=8, model_version=5, model_digest=source(32))
        self.table = np.frombuffer(source(20), dtype="<f4").astype(np.float32).reshape(5, 1)
        self.asked = np.array([4, 1], dtype=np.int64)
        drawn = Recorder(source)
        device = DeviceSession(self.round, self.asked, random_bytes=drawn, backend=Portable())
        self.session_id = device.session_id
        self.placement = self.round.layout.place(self.asked, Replay(drawn.drawn[16:]))
        updates = device.write(self.asked, np.array([[0.01], [-0.01]]), np.array([0.005]))
        self.rounds = {kind: replace(self.round, kind=kind) for kind in _KINDS}
        self.messages: dict[_Place, bytes] = {}
        for party in (0, 1):
            self.messages["keys", party, TRAIN] = device.keys[party]
            answer = self._party(self.round, party).keys(self.session_id, device.keys[party])
            self.messages["answer", party, TRAIN] = answer
            self.messages["update", party, TRAIN] = updates[party]
        for kind in (SURVEY, EVALUATE):
            self._add_sum_shares(self.rounds[kind], source)

    def _add_sum_shares(self, round_: RoundSpec, source: Source) -> None:
        size = round_.sum_size
        numbers = np.frombuffer(source(SUM_RING.element_bytes * size), dtype="<u8").astype(SUM_RING.dtype)
        shares = (numbers, source(16))
        for party in (0, 1):
            data = encode_sum_share(round_, self.session_id, party, shares[party])
            self.messages["sum_share", party, round_.kind] = data

    def _party(self, round_: RoundSpec, party: int) -> PartyRound:
        return PartyRound(round_, party, self.table, backend=Portable())

    def words(self, party: int) -> Words32:
        """Return the numbers of one party's answer."""
        return decode_answer(self.round, self.session_id, party, self.messages["answer", party, TRAIN])

    def described(self) -> Json:
        """Return the inputs of a decoder."""
        return {
            "task": self.task.encode().decode("ascii"),
            "rounds": {kind: round_.encode().decode("ascii") for kind, round_ in self.rounds.items()},
            "session_id": self.session_id.hex(),
            "slot_items": self.placement.items.tolist(),
            "slot_leaves": self.placement.leaves.tolist(),
        }


def accepted(good: GoodRound) -> Iterator[Json]:
    """Yield the valid messages, to show that each refusal is caused by its fault."""
    for place, data in good.messages.items():
        yield {**_named(place), "data": data.hex()}
    yield {"decoder": "rows", "answers": [good.messages["answer", party, TRAIN].hex() for party in (0, 1)]}


def refused(good: GoodRound) -> Iterator[Json]:
    """Yield every kind of message with every kind of fault."""
    for place, data in good.messages.items():
        decoder, party, kind = place
        for name, wrong, error in (*lengths(data), *headers(data), *_bindings(good, place)):
            yield _case(name, place, wrong, error)
        others = good.messages[decoder, 1 - party, kind]
        error = "BindingError" if len(data) == len(others) else "LengthError"
        yield _case("the message of the other party", place, others, error)
    for party in (0, 1):
        yield from _spare_bits(("keys", party, TRAIN), good.messages["keys", party, TRAIN])
        yield from _other_sums(good, party)


def _spare_bits(place: _Place, data: bytes) -> Iterator[Json]:
    at = len(data) - 3 * HASH_BYTES - 1  # three slots
    yield _case("first bit behind the last", place, changed(data, at, data[at] | 0x02), "EncodingError")
    yield _case("last bit behind the last", place, changed(data, at, data[at] | 0x80), "EncodingError")
    cut = changed(data, -1, data[-1] | 0x80)[:-1]
    yield _case("length is checked before bits", place, cut, "LengthError")


def _other_sums(good: GoodRound, party: int) -> Iterator[Json]:
    """Yield shares that are right in a round of another kind; those of party 0 have another length there."""
    error = "BindingError" if party else "LengthError"
    for kind, other in ((TRAIN, SURVEY), (TRAIN, EVALUATE), (SURVEY, EVALUATE), (EVALUATE, SURVEY)):
        data = good.messages["sum_share", party, other]
        yield _case(f"a share of kind {other}", ("sum_share", party, kind), data, error)


def lengths(data: bytes) -> Iterator[tuple[str, bytes, str]]:
    """Yield the message with another length."""
    for name, wrong in {
        "empty": b"",
        "one byte": data[:1],
        "half an envelope": data[:12],
        "envelope alone": data[:ENVELOPE_BYTES],
        "cut by a byte": data[:-1],
        "without its first byte": data[1:],
        "a byte too long": data + b"\0",
        "four bytes too long": data + bytes(4),
    }.items():
        yield name, wrong, "LengthError"


def headers(data: bytes) -> Iterator[tuple[str, bytes, str]]:
    """Yield the message with an envelope that is wrong."""
    other_kind = data[7] % 4 + 1
    yield "magic in capitals", b"SECEMB" + data[6:], "EncodingError"
    yield "magic with one bit changed", changed(data, 5, data[5] ^ 1), "EncodingError"
    yield "version 0", changed(data, 6, 0), "VersionError"
    yield "version 1", changed(data, 6, 1), "VersionError"
    yield "version 3", changed(data, 6, 3), "VersionError"
    yield "another kind", changed(data, 7, other_kind), "KindError"
    yield "kind 0", changed(data, 7, 0), "KindError"
    yield "kind 255", changed(data, 7, 255), "KindError"
    yield "first bit of the binding changed", changed(data, 8, data[8] ^ 1), "BindingError"
    yield "last bit of the binding changed", changed(data, 23, data[23] ^ 0x80), "BindingError"
    yield "magic is checked before version", b"\0" + changed(data, 6, 3)[1:], "EncodingError"
    yield "version is checked before kind", changed(changed(data, 6, 3), 7, other_kind), "VersionError"
    yield "kind is checked before binding", changed(changed(data, 7, other_kind), 8, data[8] ^ 1), "KindError"
    yield "length is checked before magic", bytes(len(data) - 1), "LengthError"


def _bindings(good: GoodRound, place: _Place) -> Iterator[tuple[str, bytes, str]]:
    """Yield messages that are right in another place."""
    decoder, party, round_kind = place
    kind, body, right = Kind[decoder.upper()], good.messages[place][ENVELOPE_BYTES:], good.rounds[round_kind]
    rounds = {
        "of another task": replace(right, task=replace(good.task, name="another")),
        "of another round": replace(right, number=9),
        "of a round of another kind": replace(right, kind=_KINDS[_KINDS.index(round_kind) - 1]),
        "of another model version": replace(right, model_version=6),
        "of another model": replace(right, model_digest=bytes(32)),
    }
    for name, round_ in rounds.items():
        yield name, envelope(round_, good.session_id, kind, party) + body, "BindingError"
    yield "of another session", envelope(right, bytes(16), kind, party) + body, "BindingError"
    yield "to the other party", envelope(right, good.session_id, kind, 1 - party) + body, "BindingError"
    elsewhere = envelope(right, good.session_id, Kind(kind % 4 + 1), party)
    yield "with the binding of another kind", changed(elsewhere, 7, kind) + body, "BindingError"


def refused_rows(good: GoodRound) -> Iterator[Json]:
    """Yield pairs of answers that are well-formed and wrong."""
    words = good.words(0), good.words(1)
    slots = np.flatnonzero(good.placement.items >= 0)
    first, second = int(slots[0]), int(slots[1])
    tagged = tag_rows(good.round, good.table, Portable())
    stale = tag_rows(replace(good.round, model_version=4), good.table, Portable())
    items = good.placement.items
    changes = {
        "one bit of a row": (first, 0, 1 << 31),
        "one bit of a tag": (second, 1, 1),
        "a row without its tag": (first, 0, int(tagged[items[first], 0] ^ tagged[0, 0])),
    }
    for name, (slot, column, mask) in changes.items():
        wrong = words[0].copy()
        wrong[slot, column] ^= np.uint32(mask)
        yield _rows_case(name, good, wrong, words[1])
    another = words[1].copy()
    another[first] ^= tagged[items[first]] ^ tagged[0]
    yield _rows_case("the row of another item with its own tag", good, words[0], another)
    old = words[1].copy()
    old[first] ^= tagged[items[first]] ^ stale[items[first]]
    yield _rows_case("the tag of an older version", good, words[0], old)
    yield _rows_case(
        "two slots exchanged", good, _exchanged(words[0], first, second), _exchanged(words[1], first, second)
    )
    yield _rows_case("nothing at all", good, np.zeros_like(words[0]), np.zeros_like(words[1]))
    answers = [good.messages["answer", party, TRAIN].hex() for party in (1, 0)]
    yield {"name": "answers exchanged", "decoder": "rows", "answers": answers, "error": "BindingError"}


def _rows_case(name: str, good: GoodRound, words0: Words32, words1: Words32) -> Json:
    both = [
        encode_answer(good.round, good.session_id, party, some).hex() for party, some in enumerate((words0, words1))
    ]
    return {"name": name, "decoder": "rows", "answers": both, "error": "RowTagError"}


def _exchanged(words: Words32, first: int, second: int) -> Words32:
    result = words.copy()
    result[[first, second]] = words[[second, first]]
    return result


def _case(name: str, place: _Place, data: bytes, error: str) -> Json:
    return {"name": name, **_named(place), "data": data.hex(), "error": error}


def _named(place: _Place) -> Json:
    decoder, party, kind = place
    return {"decoder": decoder, "party": party, "round_kind": kind}


def changed(data: bytes, at: int, value: int) -> bytes:
    """Return the data with one byte changed."""
    copy = bytearray(data)
    copy[at] = value
    return bytes(copy)
