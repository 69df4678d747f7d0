"""Where a server keeps what is large: bodies of sessions, shares of sums, versions of the model.

The ledger decides and holds digests; these hold bytes. Whatever implements one makes a write durable before it
returns, and never shows a part of it. Methods that are not `async` may block and are called in worker threads.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from secemb_party.evaluation import SessionBodies
from secemb_party.storage.model import Model, OptimiserState

KEYS, UPDATE = "keys", "update"
Step = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class BodyNames:
    """The bodies that the ledger has recorded for a session, by their SHA-256."""

    session_id: bytes
    keys: bytes
    update: bytes


class BodyStore(Protocol):
    """The bodies of sessions, from their upload until their round no longer needs them.

    A body is named by its round, its session, its part and its digest: a store elsewhere may hold several bodies of one
    part, because the ledger may refuse an upload after it was staged. Only what the ledger recorded is ever read.
    """

    async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
        """Bring a body so far that it is durable once the ledger has run the returned step.

        The step runs in the transaction that records the body's digest. A store inside the ledger's database does all
        its work there. A store elsewhere does it here and returns a step that does nothing.
        """

    async def read(self, round_id: bytes, names: Sequence[BodyNames]) -> list[SessionBodies]:
        """Return exactly these bodies, in this order. Raise NotRecordedError if one of them is not here."""

    async def rounds(self) -> list[bytes]:
        """Return the rounds that still have bodies here."""

    async def drop(self, round_id: bytes) -> int:
        """Remove the bodies of a round and return how many there were. What is cut short can be repeated."""


class ShareStore(Protocol):
    """One share for each round that this server has summed; stored before it is sent, and never changed."""

    def save(self, round_id: bytes, list_digest: bytes, data: bytes) -> bytes:
        """Store the share of a list of sessions and return its digest; raise if the round has one already."""

    def has(self, round_id: bytes) -> bool:
        """Return whether the share of a round is still kept."""

    def find(self, round_id: bytes, list_digest: bytes) -> bytes | None:
        """Return the share of a list of sessions, or None; raise if it is the share of another list."""

    def load(self, round_id: bytes, digest: bytes) -> bytes:
        """Return the share that has this digest; raise if it is missing or altered."""

    def rounds(self) -> list[bytes]:
        """Return the rounds whose shares are kept."""

    def prune(self, keep: set[bytes]) -> None:
        """Remove the shares of all rounds but these."""


class ModelStore(Protocol):
    """The versions of one task's model, and the state of the optimiser that makes the next one."""

    def save(self, model: Model) -> bytes:
        """Store a version and return its digest; raise if the version exists with other numbers."""

    def replace(self, model: Model) -> None:
        """Store a version in place of a file that is not what the ledger names."""

    def load(self, version: int) -> Model:
        """Return a version exactly as it was saved."""

    def versions(self) -> list[int]:
        """Return the versions that are here, oldest first."""

    def prune(self, *, keep: int, protect: Collection[int] = (), free: int | None = None) -> list[int]:
        """Remove versions that are no longer kept, and what the optimiser remembers of them; return the removed ones.

        `secemb_party.storage.retention` says which stay; `free` are the bytes that are free where they are.
        """

    def forget_tasks(self, task_ids: Collection[bytes]) -> None:
        """Remove everything that is kept of other tasks."""

    def save_state(self, state: OptimiserState) -> None:
        """Store the optimiser's state in place of any of a later version; the model of its version comes first."""

    def load_state(self, version: int | None = None) -> OptimiserState | None:
        """Return the optimiser's state at a version, or the latest one; None if there is none."""
