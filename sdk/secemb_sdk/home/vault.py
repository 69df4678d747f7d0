"""The data that a device keeps in its home, and how they change.

    identity    the task and the servers it was opened with, and the key of its hold-out
    task        the task's canonical form, once both servers have sent it
    ratings     what was logged, each item once
    events      what was logged in time order
    texts       what was written, in time order
    private     the private part of the model
    session     the pending session
    receipts    what was sent in each round
    detections  protocol violations by servers, counted
    chain, switches, names   the tasks that it has followed, receipts of the switches, and how the hold-out knows items
    switch      a switch to a successor that is being carried out
    rounds      the newest round that this device took part in, and the place where this was written
    failures    the number of consecutive failures of each server
    relay       the newest relay key of server 1 that this device has seen
    dense, table-dense*  dense parts of the newest version that was read, and of copies of the table
    public/     copies of the table and the catalogue: a cache, not encrypted

A session is tied to the place where it began. In a home that was copied, moved to another disk or restored since
then, it is dropped: otherwise a path could be used twice. Such a home also does not know which rounds it took part in.
No program can detect that the whole disk was rolled back, or `session` alone during its session, so exclude the home
from backups.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from secemb_sdk.errors import DamagedError, ForgottenError, HomeError, PinError
from secemb_sdk.home.detections import Detections, Misconduct, add, as_json, from_json
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import EndedRounds, Receipt
from secemb_sdk.home.records import (
    Events,
    Intent,
    Record,
    Stage,
    Texts,
    check_item,
    check_rating,
    check_text,
    check_time,
    decode_events,
    decode_private,
    decode_ratings,
    decode_stage,
    decode_texts,
    encode_events,
    encode_private,
    encode_ratings,
    encode_stage,
    encode_texts,
)
from secemb_sdk.home.switches import Chain, Held, SwitchReceipt
from secemb_sdk.models import PrivateState
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.succession import Link
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes
from secemb_shared.row_map import RowMap

Encode = Callable[[Iterable[str]], Indices]  # texts → rows of their words

_PRIVATE_NAMES = ("session", "private", "ratings", "events", "texts", "names")
_REPORT_NAMES = ("receipts", "detections", "switches")  # for the owner to read
_PLACE = "place"  # where a session began, or a round was entered


class Vault:
    """The records of one home. Every change is durable when its method returns."""

    def __init__(self, home: Home, *, random_bytes: RandomBytes = secure_bytes) -> None:
        self._home, self._random_bytes = home, random_bytes
        self._ratings: dict[int, float] | None = None
        self.chain = Chain(home)
        self.failures = self._read_failures()  # the number of consecutive failures of each server; changed in place
        self.forgotten = 0  # how often it was erased; a round that began earlier writes nothing afterwards

    def bind(self, task_id: bytes, servers: tuple[str, str]) -> None:
        """Bind this home to a task and its servers, or check that it is bound to them."""
        with self._home.lock:
            found = self._home.read("identity")
            if found is None:
                fields = {"task": task_id.hex(), "servers": list(servers)}
                if self._home.read("rounds") is None:
                    self._keep_newest(-1)
                self._home.write("identity", Record(fields, {"hold-out": self._random_bytes(32)}))
            self.chain.open(task_id.hex() if found is None else found.fields["task"])
            if found is None:
                return
            if task_id.hex() not in self.chain.tasks:
                raise PinError(
                    "this home belongs to another task, which has no such successor yet; open it with the task it"
                    " belongs to, or use a separate home for each task"
                )
            if found.fields.get("servers") != list(servers):
                raise PinError("this home belongs to other servers; give their addresses, or use a new home")

    @property
    def hold_out_key(self) -> bytes:
        """Return the key that decides which ratings are held out."""
        return self._must_have("identity").parts["hold-out"]

    @property
    def public_folder(self) -> Path:
        """Return where copies of the public model are kept."""
        return self._home.folder / "public"

    # The task.

    def task(self) -> TaskSpec | None:
        """Return the task, if the servers have sent it before."""
        found = self._read_copy("task")
        try:
            return None if found is None else TaskSpec.decode(found.parts["task"])
        except SecEmbError:  # stored by another version of the SDK, with a different task format
            return None

    def keep_task(self, task: TaskSpec) -> None:
        """Store the task."""
        self._home.write("task", Record({}, {"task": task.encode()}))

    def follow(self, link: Link, rows: RowMap, date: str) -> SwitchReceipt:
        """Move this home to the successor of its task; the private part stays, the session ends."""
        with self._home.lock:
            held = Held(ratings=self.ratings(), events=self.events(), names=self.chain.names())
            # Unknown rounds stay unknown: a copy of this home may have taken part in the successor already.
            known = self.newest_round() is not None
            rounds = Record({"newest": -1, _PLACE: self._home.place()}) if known else None
            receipt = self.chain.follow(link, rows, held, rounds=rounds, date=date)
            self._ratings = None
            return receipt

    # Ratings.

    def ratings(self) -> Mapping[int, float]:
        """Return the last rating of each item."""
        with self._home.lock:
            if self._ratings is None:
                found = self._home.read("ratings")
                self._ratings = {} if found is None else decode_ratings(found)
            return dict(self._ratings)

    def log(self, ratings: Iterable[tuple[int, float]]) -> None:
        """Add ratings; the last rating of an item counts."""
        most = self._most_items()
        checked = {check_item(item, most): check_rating(rating) for item, rating in ratings}
        with self._home.lock:
            merged = {**self.ratings(), **checked}
            self._home.write("ratings", encode_ratings(merged))
            self._ratings = merged

    def remove(self, item: int) -> bool:
        """Erase the rating of an item and the events with it; return whether there were any."""
        item = check_item(item)
        with self._home.lock:
            ratings, events = self.ratings(), self.events()
            others = events.without(item)
            if item in ratings:
                kept = {one: rating for one, rating in ratings.items() if one != item}
                self._home.write("ratings", encode_ratings(kept))
                self._ratings = kept
            if others.items.size < events.items.size:
                self._home.write("events", encode_events(others))
        return item in ratings or others.items.size < events.items.size

    def _most_items(self) -> int | None:
        """Return how many items the task has, if known."""
        task = self.task()
        return None if task is None else task.items

    def names(self) -> Mapping[int, int]:
        """Return the rows under which the hold-out knows items whose rows have changed with a task."""
        return self.chain.names()

    # Events.

    def events(self) -> Events:
        """Return all events in time order."""
        found = self._home.read("events")
        return Events.none() if found is None else decode_events(found)

    def log_events(self, events: Iterable[tuple[int, float | None]], *, now: float) -> None:
        """Add items and when the owner chose them; without a time they are the newest."""
        most = self._most_items()
        checked = [(check_item(item, most), None if time is None else check_time(time)) for item, time in events]
        with self._home.lock:
            items, times = [item for item, _ in checked], [time for _, time in checked]
            self._home.write("events", encode_events(self.events().add(items, times, now=now)))

    # Texts.

    def texts(self) -> Texts:
        """Return all texts in time order."""
        found = self._home.read("texts")
        return Texts.none() if found is None else decode_texts(found)

    def log_texts(self, texts: Iterable[tuple[str, float | None]], *, now: float) -> None:
        """Add texts and when the owner wrote them; without a time they are the newest."""
        checked = [(check_text(text), None if time is None else check_time(time)) for text, time in texts]
        with self._home.lock:
            written, times = [text for text, _ in checked], [time for _, time in checked]
            self._home.write("texts", encode_texts(self.texts().add(written, times, now=now)))

    def words(self, encode: Encode) -> Indices:
        """Return the words of all texts in time order, as rows found by the given function."""
        return encode(self.texts().texts)

    # The private part and the session that changes it.

    def private(self) -> PrivateState | None:
        """Return the private part, if this device has trained before."""
        found = self._home.read("private")
        return None if found is None else decode_private(found)

    def session(self) -> Stage | None:
        """Return the pending session."""
        found = self._home.read("session")
        return None if found is None else decode_stage(found)

    def drop_session(self) -> None:
        """Remove a session that cannot be continued. This is always safe: it will not be sent again."""
        self._home.remove("session")

    def keep_session(self, stage: Stage, *, round_: int | None = None, forgotten: int) -> None:
        """Store the stage of the session in this round, unless the owner has erased everything in the meantime."""
        with self._home.lock:
            self._check_remembers(forgotten)
            if round_ is not None:
                # First, so that a device killed in between misses the round rather than taking part in it twice.
                self.enter_round(round_)
            record, newest, new = encode_stage(stage), self.newest_round(), isinstance(stage, Intent)
            place = self._home.place(renew=new)
            if new and newest is not None:
                self._keep_newest(newest)  # it moves with the home to its new place
            self._home.write("session", Record({**record.fields, _PLACE: place}, record.parts))

    def session_is_elsewhere(self) -> bool:
        """Tell whether the session began in another place, so that this home is a copy or was restored."""
        found = self._home.read("session")
        return found is not None and found.fields.get(_PLACE) != self._home.place()

    def enter_round(self, number: int) -> None:
        """Record that this device took part in a round."""
        with self._home.lock:
            newest = self.newest_round()
            if newest is None or number > newest:
                self._keep_newest(number)

    def newest_round(self) -> int | None:
        """Return the newest round that this device took part in: -1 if none, None if unknown.

        It is unknown in a home that was copied or restored: its device may have taken part in newer rounds.
        """
        try:
            found = self._home.read("rounds")
        except DamagedError:
            return None
        here = found is not None and found.fields.get(_PLACE) == self._home.place()
        return int(found.fields["newest"]) if found is not None and here else None

    def _keep_newest(self, number: int) -> None:
        self._home.write("rounds", Record({"newest": number, _PLACE: self._home.place()}))

    def end_session(
        self, receipt: Receipt, *, receipts: int, private: PrivateState | None = None, forgotten: int
    ) -> None:
        """Store the results of a session, and end it. This is idempotent."""
        with self._home.lock:
            self._check_remembers(forgotten)
            if self.receipt_at(receipts) is None:
                # First, because it records whether both servers have acknowledged, so that they are not asked again.
                self._keep_receipts([*self.receipts(), receipt])
            if private is not None:
                self._home.write("private", encode_private(private))
            self._home.remove("session")

    # Receipts.

    def receipts(self) -> list[Receipt]:
        """Return all receipts, oldest first."""
        found = self._home.read("receipts")
        return [] if found is None else [Receipt.from_json(one) for one in found.fields["receipts"]]

    def receipt_at(self, place: int) -> Receipt | None:
        """Return a receipt by its number, from 0, if it exists."""
        found = self.receipts()
        return found[place] if place < len(found) else None

    def settle(self, rounds: EndedRounds) -> list[Receipt]:
        """Record the outcome of the rounds of receipts; return the receipts that this updates."""
        with self._home.lock:
            before = self.receipts()
            after = [rounds.settle(one) for one in before]
            if after != before:
                self._keep_receipts(after)
            return [new for old, new in zip(before, after, strict=True) if new != old]

    def _keep_receipts(self, receipts: list[Receipt]) -> None:
        self._home.write("receipts", Record({"receipts": [one.as_json() for one in receipts]}))

    # Misconduct of servers.

    def detections(self) -> Detections:
        """Return the detections, by kind."""
        found = self._read_copy("detections")
        return {} if found is None else from_json(found.fields["detections"])

    def note(self, misconduct: Misconduct, date: str) -> None:
        """Record one more detection."""
        with self._home.lock:
            found = add(self.detections(), misconduct, date)
            self._home.write("detections", Record({"detections": as_json(found)}))

    # Servers that do not respond.

    def keep_failures(self) -> None:
        """Store which servers do not respond, for the next start; a home that cannot store it must not end a call."""
        with suppress(HomeError):
            if self.failures != self._read_failures():
                self._home.write("failures", Record({str(one): count for one, count in self.failures.items()}))

    def _read_failures(self) -> dict[int, int]:
        found = self._read_copy("failures")
        return {} if found is None else {int(one): int(count) for one, count in found.fields.items()}

    # The relay.

    def relay_key(self) -> RelayKey | None:
        """Return the newest relay key that was seen."""
        found = self._read_copy("relay")
        if found is None:
            return None
        times = {name: int(found.fields[name]) for name in ("not_before", "not_after")}
        return RelayKey(public=found.parts["public"], **times)

    def see_relay_key(self, key: RelayKey) -> bool:
        """Store the relay key if it is the newest; tell whether it is not older than the stored one."""
        with self._home.lock:
            newest = self.relay_key()
            if newest is None or key.not_before > newest.not_before:
                times = {"not_before": key.not_before, "not_after": key.not_after}
                self._home.write("relay", Record(times, {"public": key.public}))
            return newest is None or key.not_before >= newest.not_before

    # The dense part, which is public.

    def dense(self, name: str, version: int) -> bytes | None:
        """Return the dense part of a version, if stored under this name."""
        found = self._read_copy(name)
        return None if found is None or found.fields["version"] != version else found.parts["dense"]

    def keep_dense(self, name: str, version: int, body: bytes) -> None:
        """Store the dense part of a version, replacing the one under this name."""
        self._home.write(name, Record({"version": version}, {"dense": body}))

    # The owner's rights.

    def forget(self, *, receipts: bool = False) -> None:
        """Erase ratings, events, texts, private part and session; with `receipts`, also receipts and detections."""
        with self._home.lock:
            self.forgotten += 1
            for name in (*_PRIVATE_NAMES, *(_REPORT_NAMES if receipts else ())):
                self._home.remove(name)
            self._ratings = {}

    def identity(self) -> Mapping[str, Any]:
        """Return the task that this home was first opened with, and its servers."""
        return self._must_have("identity").fields

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Return what keeps other threads from changing the home in the meantime."""
        return self._home.lock

    def close(self) -> None:
        """Release the home so that it can be reopened."""
        self._home.close()

    def _read_copy(self, name: str) -> Record | None:
        """Return a record that can be fetched again; a corrupted one counts as missing."""
        try:
            return self._home.read(name)
        except DamagedError:
            return None

    def _check_remembers(self, forgotten: int) -> None:
        if forgotten != self.forgotten:
            raise ForgottenError("the private part was erased during the round")

    def _must_have(self, name: str) -> Record:
        found = self._home.read(name)
        if found is None:
            raise DamagedError(f"the file {name!r} is missing from the home; restore the home, or use a new one")
        return found
