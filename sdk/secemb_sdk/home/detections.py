"""Protocol violations by servers that a device has detected: of which kind, how often, and when last.

It is for the device's owner, who may show it to others; no server is told. It contains no item and no rating.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Misconduct(StrEnum):
    """What a device can detect."""

    SERVER_KEY = "server-key"  # a server presents a key other than the pinned one
    TASK = "task"  # a server presents a task other than the pinned one
    ROUND = "round"  # the servers announce different rounds
    MODEL = "model"  # the servers announce different models
    RELAY_KEY = "relay-key"  # server 0 presents a relay key that server 1 has not signed, or no longer uses
    NOT_PASSED_ON = "not-passed-on"  # server 1 received something other than what this device encrypted for it
    MAC = "proof"  # a server received an upload that is not from this device, or claims that this device's is not
    SESSION = "session"  # a server holds keys or an upload of this session that this device has not sent
    RECEIPT = "receipt"  # a server does not prove that it, or server 1, holds what was sent
    ROWS = "rows"  # rows with a wrong tag, or an answer that cannot be read
    DENSE = "dense"  # a dense part that differs from the other server's
    SUCCESSOR = "successor"  # a successor that is not signed by both servers, or with rows that were not signed
    FORK = "fork"  # two different successors of one task, both signed by both servers
    TABLE = "table"  # a table that differs from the other server's, or is not the announced model


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """One kind of misconduct."""

    kind: str  # a value of Misconduct
    count: int
    last: str  # UTC, from this device's clock

    def again(self, date: str) -> "Detection":
        """Return the detection counted once more."""
        return Detection(kind=self.kind, count=self.count + 1, last=date)


Detections = Mapping[str, Detection]  # by kind


def add(found: Detections, kind: Misconduct, date: str) -> Detections:
    """Return detections with one more of this kind."""
    before = found.get(kind.value, Detection(kind=kind.value, count=0, last=date))
    return {**found, kind.value: before.again(date)}


def as_json(found: Detections) -> list[dict[str, Any]]:
    """Return detections as plain data, in the order of their kinds."""
    return [{"kind": one.kind, "count": one.count, "last": one.last} for _, one in sorted(found.items())]


def from_json(rows: list[dict[str, Any]]) -> Detections:
    """Read `as_json`."""
    return {row["kind"]: Detection(**row) for row in rows}
