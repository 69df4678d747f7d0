"""How a task goes on: the document by which both servers end a task and name the one that continues it.

Each server signs the canonical form of the document with its identity, which the ended task names, over

    "secemb/1 succession" ‖ document

The successor's specification contains the id of its predecessor, so a chain of tasks cannot have a loop, and whoever
knows the last task knows all of them. A device follows the chain from the task that it has pinned.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secemb_shared.errors import SpecError, SuccessionError
from secemb_shared.labels import PROTOCOL
from secemb_shared.messages import canonical
from secemb_shared.messages.spec import TaskSpec

DOMAIN = b"secemb/1 succession"
SIGNATURE_BYTES = 64
CONTINUED, FRESH = "continued", "fresh"  # whether what the predecessor has spent of the privacy budget counts
_SAME = ("row_width", "dense_size", "loss")  # of both tasks: they have the same kind of model
_DIGESTS = ("predecessor", "successor", "last_digest", "first_digest", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """One step of a chain of tasks. Everything in it is public."""

    predecessor: str  # id of the ended task, hexadecimal like every digest here
    successor: str
    last_version: int  # of the predecessor's model
    last_digest: str
    first_digest: str  # of version 0 of the successor's model
    rows: str  # of the row map
    budget: str  # continued or fresh

    def __post_init__(self) -> None:
        for name in _DIGESTS:
            digest = getattr(self, name)
            if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise SpecError(f"{name} must be 64 lower-case hexadecimal digits")
        version = self.last_version
        if type(version) is not int or not 0 <= version <= canonical.LARGEST_NUMBER:
            raise SpecError("last_version must be a whole number below 2^53")
        if self.budget not in (CONTINUED, FRESH):
            raise SpecError(f"budget must be {CONTINUED} or {FRESH}")

    def encode(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode({"protocol": PROTOCOL.decode(), **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the canonical form."""
        found = canonical.decode(data)
        if found.pop("protocol", None) != PROTOCOL.decode() or found.keys() != cls.__dataclass_fields__.keys():
            raise SpecError("a succession has unknown or missing fields")
        return cls(**found)

    def sign(self, identity: Ed25519PrivateKey) -> bytes:
        """Return the signature of one of the two servers."""
        return identity.sign(DOMAIN + self.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A succession with the successor's specification and both signatures: everything that a device needs to follow."""

    task: TaskSpec  # the successor
    succession: Succession
    signatures: tuple[bytes, bytes]  # of server 0 and server 1

    def check(self, predecessor: TaskSpec) -> None:
        """Raise unless both servers of the predecessor have signed this as its continuation."""
        named = self.succession
        check_continuation(predecessor, self.task)
        if (named.predecessor, named.successor) != (predecessor.task_id.hex(), self.task.task_id.hex()):
            raise SuccessionError("the signed document is about other tasks than this one and its successor")
        for server in (0, 1):
            check_signature(predecessor, named, self.signatures[server], server=server)

    def as_json(self) -> dict[str, Any]:
        """Return the link as plain data."""
        return {
            "task": self.task.encode().decode(),
            "succession": self.succession.encode().decode(),
            "signatures": [one.hex() for one in self.signatures],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read `as_json`; nothing is verified yet."""
        try:
            first, second = (bytes.fromhex(one) for one in found["signatures"])
            task, succession = (found[name].encode() for name in ("task", "succession"))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SuccessionError("a link must have a task, a succession and two signatures") from None
        return cls(task=TaskSpec.decode(task), succession=Succession.decode(succession), signatures=(first, second))


def check_continuation(predecessor: TaskSpec, successor: TaskSpec) -> None:
    """Raise unless a task may be continued by another."""
    if predecessor.identities is None:
        raise SuccessionError(
            "this task cannot have a successor, because it does not name the identities of both servers"
        )
    if successor.predecessor != predecessor.task_id.hex():
        raise SuccessionError("the other task does not name this one as its predecessor")
    for name in _SAME:
        if getattr(predecessor, name) != getattr(successor, name):
            raise SuccessionError(f"a successor must have the same {name}; create a new task for another model")


def check_signature(predecessor: TaskSpec, succession: Succession, signature: bytes, *, server: int) -> None:
    """Raise unless a server of the predecessor has signed the document."""
    if predecessor.identities is None:
        raise SuccessionError("this task does not name the identities of both servers")
    try:
        identity = Ed25519PublicKey.from_public_bytes(bytes.fromhex(predecessor.identities[server]))
        identity.verify(signature, DOMAIN + succession.encode())
    except (InvalidSignature, ValueError):
        raise SuccessionError(f"the successor is not signed by the server {server} that the task names") from None
