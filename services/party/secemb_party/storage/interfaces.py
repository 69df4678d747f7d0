"""Interfaces of the stores for large data: bodies of sessions, shares of sums, versions of the model.

The ledger decides and holds digests; these stores hold bytes. An implementation makes each write durable before it
returns, and never exposes a partial write. Methods that are not `async` may block and are called in worker threads.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from secemb_party.evaluation import SessionBodies
from secemb_party.storage.blob import Blob
from secemb_party.storage.model import Model, ModelStep, OptimiserState

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

    A body is identified by its round, session, part and digest: a store outside the ledger's database may hold several
    bodies of one part, because the ledger may refuse an upload after it was staged. Only bodies that the ledger
    recorded are ever read.
    """

    async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
        """Prepare a body so that it is durable once the ledger has run the returned step.

        The step runs in the transaction that records the body's digest. A store inside the ledger's database does all
        its work in the step. Any other store does it here and returns a step that does nothing.
        """

    async def read(self, round_id: bytes, names: Sequence[BodyNames]) -> list[SessionBodies]:
        """Return exactly these bodies, in this order. Raise NotRecordedError if one of them is missing."""

    async def rounds(self) -> list[bytes]:
        """Return the rounds that still have bodies here."""

    async def drop(self, round_id: bytes) -> int:
        """Remove the bodies of a round and return how many there were. An interrupted call can be repeated."""


class ShareStore(Protocol):
    """One share per round that this server has summed; stored before it is sent, and never changed."""

    def save(self, round_id: bytes, list_digest: bytes, data: bytes | memoryview) -> bytes | None:
        """Store the share of a list of sessions and return its digest.

        The first writer wins, whichever process it is: return None if another share of this list is stored already,
        and raise if it is the share of another list.
        """

    def has(self, round_id: bytes) -> bool:
        """Return whether the share of a round is still kept."""

    def find(self, round_id: bytes, list_digest: bytes) -> Blob | None:
        """Return the share of a list of sessions, or None; raise if it is the share of another list."""

    def load(self, round_id: bytes, digest: bytes) -> Blob:
        """Return the share that has this digest, checked in pieces; raise if it is missing or altered."""

    def rounds(self) -> list[bytes]:
        """Return the rounds whose shares are kept."""

    def prune(self, keep: set[bytes]) -> None:
        """Remove the shares of all rounds but these."""


class ModelStore(Protocol):
    """The versions of one task's model, and the state of the optimiser that computes the next one."""

    def save(self, model: Model) -> bytes:
        """Store a version and return its digest; raise if the version exists with other numbers."""

    def replace(self, model: Model) -> None:
        """Store a version in place of a file that is not what the ledger names."""

    def save_step(self, step: ModelStep) -> Model:
        """Store the version that a step produces and then the optimiser's state, block by block; return the version.

        Neither has to fit in memory. If the version exists with other numbers, raise.
        """

    def load(self, version: int) -> Model:
        """Return a version exactly as it was saved. Its arrays may be mapped from a file instead of held in memory."""

    def versions(self) -> list[int]:
        """Return the stored versions, oldest first."""

    def prune(self, *, keep: int, protect: Collection[int] = (), free: int | None = None) -> list[int]:
        """Remove versions that are no longer kept, and their optimiser states; return the removed versions.

        `secemb_party.storage.retention` defines which are kept; `free` is the number of free bytes on their disk.
        """

    def forget_tasks(self, task_ids: Collection[bytes]) -> None:
        """Remove all data of tasks that do not run."""

    def save_state(self, state: OptimiserState) -> None:
        """Store the optimiser's state, replacing those of later versions; store the model of its version first."""

    def load_state(self, version: int | None = None) -> OptimiserState | None:
        """Return the optimiser's state at a version, or the latest one; None if there is none."""
