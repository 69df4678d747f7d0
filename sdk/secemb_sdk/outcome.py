"""What became of one call of `contribute()`. None of these is an error."""

from dataclasses import dataclass
from typing import TypeAlias

from secemb_sdk.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Contributed:
    """Both servers have everything; this is the receipt."""

    receipt: Receipt
    trouble: str | None = None  # of the error that let the device upload zeros, or less: its name; no server sees it


@dataclass(frozen=True, slots=True)
class NotNow:
    """Nothing was finished. Call again after so many seconds; a session that has begun goes on where it stopped."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A session that had begun was given up for good; the next call begins a new one."""

    reason: str
    seconds: float


Outcome: TypeAlias = Contributed | NotNow | Dropped
