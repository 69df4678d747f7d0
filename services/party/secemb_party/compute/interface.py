"""What a server needs from its kernel, whatever implements it.

An engine knows neither the ledger nor HTTP. Messages go in as bytes; answers and shares come out as bytes. Apart from
the noise, everything is a function of the messages and the model, so lost work can simply be done again. That leaves an
engine free to spread a round over several machines: a range of slots partitions keys, updates and answers alike, and
partial sums are added once at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from secemb_party.evaluation import KeysMessage, SessionBodies
from secemb_shared.messages import RoundSpec
from secemb_shared.row_access import Rows


@dataclass(frozen=True, slots=True, repr=False)
class Accepted:
    """The ANSWER to a KEYS message that is to be stored, and the digests of that message."""

    answer: bytes
    body_digest: bytes  # SHA-256 of the whole KEYS message
    public_digest: bytes  # of its public part and of what was found in it: the same on both servers, or it is rejected


class RoundSum(Protocol):
    """A party's share of one round's sum while it is being computed."""

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        """Add a batch of complete sessions; return what the other party is told about each, or nothing to tell."""

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        """Take sessions out again that were added and do not count."""

    async def share(self) -> bytes:
        """Return the encoded share with the task's noise in it. It is returned once: noise is never drawn again."""


class PreparedRound(Protocol):
    """A round whose model is loaded and whose items are dealt to their bins."""

    @property
    def spec(self) -> RoundSpec:
        """Return the round's specification."""

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Return the ANSWER to each KEYS message. One that does not fit the round refuses its whole batch."""

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        """Answer a batch of keys that are to be stored, in order; the digests come with the answers."""

    def sum(self) -> RoundSum:
        """Start a sum over no session."""


class Compute(Protocol):
    """An engine: prepares rounds, and says how many sessions it likes to be given at a time."""

    @property
    def batch(self) -> int:
        """Return how many sessions to add with one call."""

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> PreparedRound:
        """Prepare a round for the model that it reads; `check_key` is the two servers' secret for its checks."""
