"""Privacy receipts: what left the device in a round, for its owner to read. They contain no item and no rating."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from secemb_sdk.steps import Answer, Lost, Request
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN

_LONGEST_REASON = 200


@dataclass(slots=True)
class Traffic:
    """Bytes to and from each server: bodies of requests and answers, without headers and TLS.

    Retries count, and so do the bytes transferred in failed requests and truncated answers.
    """

    sent: list[int] = field(default_factory=lambda: [0, 0])
    received: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, other: "Traffic") -> None:
        """Add an earlier count."""
        self.sent = [mine + yours for mine, yours in zip(self.sent, other.sent, strict=True)]
        self.received = [mine + yours for mine, yours in zip(self.received, other.received, strict=True)]

    def copy(self) -> "Traffic":
        """Return a copy of the count."""
        return Traffic(list(self.sent), list(self.received))

    def count(self, request: Request, answer: Answer | Lost) -> None:
        """Add one exchange; if lost, the bytes transferred by then. Bytes whose fate is unknown count as sent."""
        if isinstance(answer, Answer):
            sent, received = len(request.body), len(answer.body)
        else:
            sent, received = len(request.body) if answer.sent is None else answer.sent, answer.received
        self.sent[request.server] += sent
        self.received[request.server] += received


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One round that this device took part in."""

    round: int
    kind: str  # train, survey or evaluate
    model_version: int
    model_digest: str
    sent: tuple[int, int]  # bytes of bodies to server 0 and 1; bytes in transit when the app was killed may be missing
    received: tuple[int, int]
    slots: int  # keys sent; the same for every device
    truncated: int  # items that could not be placed in this round, or are not in the catalogue
    complete: bool  # both servers acknowledged everything; otherwise the session was dropped
    date: str  # by this device's clock, UTC
    transport: str = "direct"  # otherwise relayed: everything went through server 0
    published: bool | None = None  # whether the round was published, according to server 0; None: not yet known
    version: int | None = None  # the resulting model
    reason: str | None = None  # why it was aborted

    @property
    def fate(self) -> str:
        """Return the outcome of the round, in words."""
        if self.published is None:
            return "not known yet"
        if not self.published:
            return f"aborted ({self.reason})"
        return "published" if self.version is None else f"published (version {self.version})"

    def as_json(self) -> dict[str, Any]:
        """Return the receipt as plain data."""
        return asdict(self) | {"sent": list(self.sent), "received": list(self.received)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read `as_json`."""
        return cls(**(found | {"sent": tuple(found["sent"]), "received": tuple(found["received"])}))


@dataclass(frozen=True, slots=True)
class EndedRounds:
    """How rounds ended, according to server 0: all from `since` to `until` were published, except the aborted."""

    since: int
    until: int
    aborted: Mapping[int, str]  # number of a round: why

    @classmethod
    def read(cls, found: object) -> Self | None:
        """Parse a server's statement, or return None if it is malformed: nothing depends on it."""
        try:
            told = found if isinstance(found, dict) else {}
            aborted = {int(number): _one_line(reason) for number, reason in told["aborted"].items()}
            return cls(since=int(told["since"]), until=int(told["until"]), aborted=aborted)
        except (KeyError, AttributeError, TypeError, ValueError):
            return None

    def settle(self, receipt: Receipt) -> Receipt:
        """Return a receipt with the outcome of its round; the receipt must be complete and not yet settled."""
        if not receipt.complete or receipt.published is not None or not self.since <= receipt.round <= self.until:
            return receipt
        if receipt.round in self.aborted:
            return replace(receipt, published=False, reason=self.aborted[receipt.round])
        return replace(receipt, published=True, version=receipt.model_version + 1 if receipt.kind == TRAIN else None)


def _one_line(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON and text.isprintable() else "the reason cannot be displayed"


def make_receipt(
    round_: RoundSpec, traffic: Traffic, *, truncated: int, complete: bool, wall_time: float, transport: str
) -> Receipt:
    """Return the receipt of a session that ended."""
    return Receipt(
        round=round_.number,
        kind=round_.kind,
        model_version=round_.model_version,
        model_digest=round_.model_digest.hex(),
        sent=(traffic.sent[0], traffic.sent[1]),
        received=(traffic.received[0], traffic.received[1]),
        slots=round_.task.geometry.slots,
        truncated=truncated,
        complete=complete,
        date=date_of(wall_time),
        transport=transport,
    )


def date_of(seconds: float) -> str:
    """Return a time since 1970 as text, in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return "unknown"  # the clock shows a year that a date cannot represent
