"""Switches of a home from a task to its successor: records that change together, and receipts for the owner.

A switch is first written as one record, the journal, which contains everything that it changes. Then it is carried out
record by record. If the app is killed in between, it is carried out again when the home is next opened.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from secemb_sdk.home.files import Home
from secemb_sdk.home.records import Events, Record, decode_ratings, encode_events, encode_ratings
from secemb_shared.messages.succession import Link
from secemb_shared.randomness import Indices
from secemb_shared.row_map import RowMap

JOURNAL, CHAIN, NAMES, SWITCHES = "switch", "chain", "names", "switches"
# Of the ended task: the session, its rounds, the relay key, and dense parts, whose versions begin again.
_DROPPED = ("session", "relay", "dense", "table-dense", "table-dense-2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchReceipt:
    """One switch of this device from a task to its successor, for its owner to read."""

    predecessor: str
    successor: str
    kept: int  # ratings and events
    dropped: int  # ratings and events of items that were retired
    budget: str  # continued or fresh: whether what was spent of the privacy budget still counts
    date: str  # by this device's clock, UTC

    def as_json(self) -> dict[str, Any]:
        """Return the receipt as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read `as_json`."""
        return cls(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a home holds about items."""

    ratings: Mapping[int, float]
    events: Events
    names: Mapping[int, int]  # of rated items whose rows have changed: the row under which the hold-out knows them

    def move(self, rows: RowMap) -> "Held":
        """Return the same with the rows of the successor; what is about retired items is dropped."""
        places = rows.follow()
        moved = {item: _place(places, item) for item in self.ratings}
        items = self.events.items
        known = items < rows.before
        found = np.where(known, places[np.where(known, items, 0)], -1)
        return Held(
            ratings={moved[item]: rating for item, rating in self.ratings.items() if moved[item] >= 0},
            events=Events(found[found >= 0], self.events.times[found >= 0]),
            names={place: self.names.get(item, item) for item, place in moved.items() if place >= 0},
        )

    @property
    def size(self) -> int:
        """Return the number of ratings and events."""
        return len(self.ratings) + self.events.items.size


def _place(places: Indices, item: int) -> int:
    return int(places[item]) if item < places.size else -1


class Chain:
    """The tasks that a home has belonged to: the one it was opened with, and the successors that it has followed to."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.tasks: list[str] = []  # ids, the current one last

    def open(self, first: str) -> None:
        """Finish an interrupted switch, and read the tasks."""
        self._finish()
        found = self._home.read(CHAIN)
        self.tasks = [first] if found is None else list(found.fields["tasks"])

    @property
    def current(self) -> bytes:
        """Return the id of the task that this home belongs to."""
        return bytes.fromhex(self.tasks[-1])

    def names(self) -> dict[int, int]:
        """Return the rows under which the hold-out knows rated items, for items whose rows have changed."""
        found = self._home.read(NAMES)
        return {} if found is None else {item: int(name) for item, name in decode_ratings(found).items()}

    def receipts(self) -> list[SwitchReceipt]:
        """Return the receipts of all switches, oldest first."""
        found = self._home.read(SWITCHES)
        return [] if found is None else [SwitchReceipt.from_json(one) for one in found.fields["switches"]]

    def follow(self, link: Link, rows: RowMap, owned: Held, *, rounds: Record | None, date: str) -> SwitchReceipt:
        """Move to the successor; `rounds` replaces what is known about rounds. It happens even if the app is killed."""
        moved = owned.move(rows)
        receipt = SwitchReceipt(
            predecessor=link.succession.predecessor,
            successor=link.succession.successor,
            kept=moved.size,
            dropped=owned.size - moved.size,
            budget=link.succession.budget,
            date=date,
        )
        records = {
            "task": Record({}, {"task": link.task.encode()}),
            "ratings": encode_ratings(moved.ratings),
            "events": encode_events(moved.events),
            NAMES: encode_ratings({item: float(name) for item, name in moved.names.items()}),
            SWITCHES: Record({"switches": [one.as_json() for one in [*self.receipts(), receipt]]}),
            **({"rounds": rounds} if rounds is not None else {}),
            CHAIN: Record({"tasks": [*self.tasks, link.succession.successor]}),
        }
        self._home.write(JOURNAL, Record({}, {name: record.encode() for name, record in records.items()}))
        self._finish()
        self.tasks.append(link.succession.successor)
        return receipt

    def _finish(self) -> None:
        journal = self._home.read(JOURNAL)
        if journal is None:
            return
        for name in _DROPPED:
            self._home.remove(name)
        for name, part in journal.parts.items():
            self._home.write(name, Record.decode(part))
        self._home.remove(JOURNAL)
