"""The records of a home: ratings, events, texts, the private part of a model, and the device's pending session."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from secemb_sdk.errors import DamagedError, RatingError
from secemb_sdk.home.receipts import Traffic
from secemb_sdk.models import PrivateState, Window
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.session import Marks, Messages
from secemb_shared.randomness import Indices

Times = npt.NDArray[np.float64]
_LENGTH_BYTES = 4
_LARGEST_ITEM, _LARGEST_RATING = 2**31, 3e38


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """The data that the home stores under one name. Its content is private."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the record as bytes."""
        lengths = [[name, len(part)] for name, part in self.parts.items()]
        head = json.dumps({"fields": dict(self.fields), "parts": lengths}, separators=(",", ":")).encode()
        return b"".join((len(head).to_bytes(_LENGTH_BYTES, "little"), head, *self.parts.values()))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read `encode`."""
        try:
            start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
            head = json.loads(data[_LENGTH_BYTES:start])
            parts = {}
            for name, length in head["parts"]:
                parts[name] = data[start : start + length]
                start += length
            found = cls(head["fields"], parts)
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if found is None or start != len(data):
            raise DamagedError("a record in the home is corrupted; restore the home, or remove it and start again")
        return found


def encode_ratings(ratings: Mapping[int, float]) -> Record:
    """Return the record of ratings by item."""
    items, values = np.array(list(ratings), dtype="<i8"), np.array(list(ratings.values()), dtype="<f8")
    return Record({}, {"items": items.tobytes(), "values": values.tobytes()})


def decode_ratings(record: Record) -> dict[int, float]:
    """Read `encode_ratings`."""
    items, values = (np.frombuffer(record.parts[name], kind) for name, kind in (("items", "<i8"), ("values", "<f8")))
    return dict(zip(items.tolist(), values.tolist(), strict=True))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Events:
    """The owner's choices and their times: in time order, and in the order of logging where times are equal."""

    items: Indices  # (n,)
    times: Times  # (n,) seconds

    @classmethod
    def none(cls) -> Self:
        """Return the empty record of a new home."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.float64))

    def without(self, item: int) -> "Events":
        """Return all events but those with this item."""
        kept = self.items != item
        return Events(self.items[kept], self.times[kept])

    def add(self, items: Sequence[int], times: Sequence[float | None], *, now: float) -> "Events":
        """Return these and more. An event without a time is the newest, even if the clock was set back."""
        all_items = np.concatenate([self.items, np.array(items, dtype=np.int64)])
        all_times, order = _in_time_order(self.times, times, now)
        return Events(all_items[order], all_times)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Texts:
    """The owner's texts and their times, ordered like events."""

    texts: tuple[str, ...]
    times: Times  # (n,) seconds

    @classmethod
    def none(cls) -> Self:
        """Return the empty record of a new home."""
        return cls((), np.zeros(0, np.float64))

    def add(self, texts: Sequence[str], times: Sequence[float | None], *, now: float) -> "Texts":
        """Return these and more. A text without a time is the newest, even if the clock was set back."""
        everything = (*self.texts, *texts)
        all_times, order = _in_time_order(self.times, times, now)
        return Texts(tuple(everything[place] for place in order.tolist()), all_times)


def _in_time_order(known: Times, times: Sequence[float | None], now: float) -> tuple[Times, Indices]:
    """Return all times sorted, and the original index of each; the sort is stable."""
    latest, found = max(known.max(initial=-math.inf), now), []
    for time in times:
        found.append(latest if time is None else time)
        latest = max(latest, found[-1])
    all_times = np.concatenate([known, np.array(found, dtype=np.float64)])
    order = np.argsort(all_times, kind="stable")
    return all_times[order], order


def encode_events(events: Events) -> Record:
    """Return the record of events."""
    return Record({}, {"items": events.items.astype("<i8").tobytes(), "times": events.times.astype("<f8").tobytes()})


def decode_events(record: Record) -> Events:
    """Read `encode_events`."""
    items, times = (np.frombuffer(record.parts[name], kind) for name, kind in (("items", "<i8"), ("times", "<f8")))
    if items.shape != times.shape:
        raise DamagedError("the events are corrupted; restore the home, or call forget() and start again")
    return Events(items.astype(np.int64), times.astype(np.float64))


def encode_texts(texts: Texts) -> Record:
    """Return the record of texts."""
    return Record({"texts": list(texts.texts)}, {"times": texts.times.astype("<f8").tobytes()})


def decode_texts(record: Record) -> Texts:
    """Read `encode_texts`."""
    texts, times = record.fields["texts"], np.frombuffer(record.parts["times"], "<f8")
    if len(texts) != times.size:
        raise DamagedError("the texts are corrupted; restore the home, or call forget() and start again")
    return Texts(tuple(texts), times.astype(np.float64))


def check_text(text: str) -> str:
    """Return a text, or raise `RatingError`."""
    if not isinstance(text, str):
        raise RatingError("a text must be a string")
    return text


def check_time(time: float) -> float:
    """Return the time of an event, or raise `RatingError`."""
    try:
        number = float(time)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RatingError("an event's time must be a finite number, such as the value of time.time()")
    return number


def check_item(item: int, most: int | None = None) -> int:
    """Return an item, or raise `RatingError`; `most` is the number of items."""
    if type(item) is bool or not hasattr(item, "__index__") or not 0 <= index(item) < _LARGEST_ITEM:
        raise RatingError("an item must be a whole number, 0 or greater: its row in the catalogue")
    if most is not None and index(item) >= most:
        raise RatingError(f"the item is not in the catalogue, which has items 0 to {most - 1}")
    return index(item)


def check_rating(rating: float) -> float:
    """Return a rating, or raise `RatingError`."""
    try:
        number = float(rating)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _LARGEST_RATING:
        raise RatingError("a rating must be a finite number in the range of float32")
    return number


_ARRAYS = ("values", "first", "second")
_STORED = np.dtype("<f4")


def encode_private(state: PrivateState) -> Record:
    """Return the record of a private state."""
    arrays = {name: getattr(state, name).astype(_STORED).tobytes() for name in _ARRAYS}
    return Record({"steps": state.steps}, arrays)


def decode_private(record: Record) -> PrivateState:
    """Read `encode_private`."""
    try:
        arrays = {name: np.frombuffer(record.parts[name], _STORED).astype(np.float32) for name in _ARRAYS}
        return PrivateState(steps=int(record.fields["steps"]), **arrays)
    except (KeyError, ValueError):
        raise DamagedError("the private part is corrupted; call forget() and start again") from None


def export_private(state: PrivateState) -> Mapping[str, Any]:
    """Return a private state as plain data."""
    return {"steps": state.steps, **{name: getattr(state, name).tolist() for name in _ARRAYS}}


_ROUTE = "relay"  # the part that holds the route's state
_PRIVATE = "private "  # prefix of the names of parts in the private state


@dataclass(frozen=True, slots=True, repr=False)
class Intent:
    """A session that at most server 0 may know of."""

    seed: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ticket:
    """The round of a session, its permission, and its traffic so far."""

    round: bytes  # canonical form
    ticket: str
    truncated: int  # items without a place in the round, or not in the catalogue
    traffic: Traffic
    receipts: int  # number of receipts before this session: it adds one, however often it is finished
    transport: str  # of all its messages
    route_state: bytes = b""  # the data that the transport's route needs to send them


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keyed:
    """A session whose keys may have been sent."""

    ticket: Ticket
    seed: bytes
    selection: Selection
    keys_digest: bytes  # of both messages: rebuilt keys must equal those that were sent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Written:
    """A session whose update may have been sent."""

    ticket: Ticket
    session_id: bytes
    update: Messages
    marks: Marks
    private: PrivateState | None  # replaces the private part once both servers have the update
    trouble: str | None = None  # the name of the error that prevented training


Stage: TypeAlias = Intent | Keyed | Written


def encode_stage(stage: Stage) -> Record:
    """Return the record of a session."""
    match stage:
        case Intent(seed):
            return Record({"stage": "wish"}, {"seed": seed})
        case Keyed():
            fields = {"stage": "keyed", **_ticket_fields(stage.ticket), **_window_fields(stage.selection.window)}
            parts = {"seed": stage.seed, "digest": stage.keys_digest, _ROUTE: stage.ticket.route_state}
            return Record(fields, parts | _selection_parts(stage.selection))
        case Written():
            fields = {"stage": "written", **_ticket_fields(stage.ticket), "trouble": stage.trouble}
            parts = {"session": stage.session_id, "update 0": stage.update[0], "update 1": stage.update[1]}
            parts |= {"proof 0": stage.marks.macs[0], "proof 1": stage.marks.macs[1]}
            parts |= {"receipt": stage.marks.receipt, _ROUTE: stage.ticket.route_state}
            if stage.private is not None:
                private = encode_private(stage.private)
                fields |= {"private": dict(private.fields)}
                parts |= {_PRIVATE + name: part for name, part in private.parts.items()}
            return Record(fields, parts)


def decode_stage(record: Record) -> Stage:
    """Read `encode_stage`."""
    try:
        match record.fields["stage"]:
            case "wish":
                return Intent(record.parts["seed"])
            case "keyed":
                return _decode_keyed(record)
            case "written":
                return _decode_written(record)
    except (KeyError, TypeError, ValueError):
        pass
    raise DamagedError("the pending session is corrupted; call forget() and start again")


def export_stage(stage: Stage | None) -> dict[str, Any] | None:
    """Return the stage of a session, without the secrets that would let others continue it."""
    match stage:
        case None | Intent():
            return None
        case Keyed():
            return {"stage": "keys", "round": stage.ticket.round.decode("ascii")}
        case Written():
            return {"stage": "update", "round": stage.ticket.round.decode("ascii")}


def _selection_parts(selection: Selection) -> dict[str, bytes]:
    return {
        "items": selection.items.astype("<i8").tobytes(),
        "values": selection.values.astype("<f4").tobytes(),
        "held out": selection.held_out.tobytes(),
    }


def _window_fields(window: Window | None) -> dict[str, object]:
    if window is None:
        return {}
    return {"window": [window.events.tolist(), window.strangers.tolist(), window.seed]}


def _decode_window(fields: Mapping[str, Any]) -> Window | None:
    if "window" not in fields:
        return None
    events, strangers, seed = fields["window"]
    return Window(np.array(events, dtype=np.int64), np.array(strangers, dtype=np.int64), int(seed))


def _decode_keyed(record: Record) -> Keyed:
    selection = Selection(
        items=np.frombuffer(record.parts["items"], "<i8").astype(np.int64),
        values=np.frombuffer(record.parts["values"], "<f4").astype(np.float32),
        held_out=np.frombuffer(record.parts["held out"], np.bool_),
        left_out=0,  # already counted in the ticket
        window=_decode_window(record.fields),
    )
    return Keyed(
        ticket=_decode_ticket(record),
        seed=record.parts["seed"],
        selection=selection,
        keys_digest=record.parts["digest"],
    )


def _decode_written(record: Record) -> Written:
    private = None
    if "private" in record.fields:
        named = {name.removeprefix(_PRIVATE): part for name, part in record.parts.items() if name.startswith(_PRIVATE)}
        private = decode_private(Record(record.fields["private"], named))
    return Written(
        ticket=_decode_ticket(record),
        session_id=record.parts["session"],
        update=(record.parts["update 0"], record.parts["update 1"]),
        marks=Marks((record.parts["proof 0"], record.parts["proof 1"]), record.parts["receipt"]),
        private=private,
        trouble=record.fields["trouble"],
    )


def _ticket_fields(ticket: Ticket) -> dict[str, object]:
    return {
        "round": ticket.round.decode("ascii"),
        "ticket": ticket.ticket,
        "truncated": ticket.truncated,
        "sent": ticket.traffic.sent,
        "received": ticket.traffic.received,
        "receipts": ticket.receipts,
        "transport": ticket.transport,
    }


def _decode_ticket(record: Record) -> Ticket:
    fields = record.fields
    return Ticket(
        round=fields["round"].encode("ascii"),
        ticket=fields["ticket"],
        truncated=fields["truncated"],
        traffic=Traffic(list(fields["sent"]), list(fields["received"])),
        receipts=fields["receipts"],
        transport=fields["transport"],
        route_state=record.parts[_ROUTE],
    )
