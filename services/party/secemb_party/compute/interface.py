"""The interface of the engines that compute for a server.

An engine knows neither the ledger nor HTTP. Its inputs are messages as bytes; its outputs are answers and shares as
bytes. Apart from the noise, everything is a function of the messages and the model, so lost work can simply be
repeated. An engine on several machines may lose one of them at any time. It then raises
`ComputeUnavailableError`, and the call can be repeated; a sum that has raised it is started again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from secemb_party.evaluation import KeysMessage, SessionBodies
from secemb_shared.messages import RoundSpec
from secemb_shared.row_words import Rows


@dataclass(frozen=True, slots=True, repr=False)
class Accepted:
    """The ANSWER to a KEYS message that will be stored, and the digests of that message."""

    answer: bytes
    body_digest: bytes  # SHA-256 of the whole KEYS message
    public_digest: bytes  # of its public part and fingerprints; the session is rejected if the servers' digests differ


class RoundSum(Protocol):
    """A party's share of one round's sum during its computation."""

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        """Add a batch of complete sessions; return the message to the other party about each, which may be empty."""

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        """Subtract sessions that were added but do not count."""

    async def share(self) -> bytes | memoryview:
        """Return the encoded share, including the task's noise. Call this once: noise is never drawn again.

        It may be the memory of the sum itself, because a copy would be as large as the table.
        """


class PreparedRound(Protocol):
    """A round whose model is loaded and whose items are assigned to bins."""

    @property
    def spec(self) -> RoundSpec:
        """Return the round's specification."""

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Return the ANSWER to each KEYS message. If one does not fit the round, the whole batch is refused."""

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        """Answer a batch of keys that will be stored, in order; the results include the digests."""

    def sum(self) -> RoundSum:
        """Start a sum over no sessions."""


class Compute(Protocol):
    """An engine, which prepares rounds and has a preferred number of sessions per batch."""

    @property
    def batch(self) -> int:
        """Return how many sessions to add per call."""

    def fault(self) -> str | None:
        """Return why the engine cannot compute now and what to do, without an address; None if it can."""

    def close(self) -> None:
        """End everything that the engine has started."""

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> PreparedRound:
        """Prepare a round for the model that it reads; `check_key` is the servers' shared secret for its checks."""
