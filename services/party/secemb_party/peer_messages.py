"""The messages between the two servers, as JSON; shares and models are binary bodies."""

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
Moment = Annotated[float, Field(allow_inf_nan=False)]  # seconds since 1970
Kind = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,32}$")]
Shares = Annotated[dict[Kind, Annotated[int, Field(ge=1)]], Field(max_length=8)]  # number by kind of round
Words = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,500}$")]  # as the ledger stores them
TASK_HEADER = "secemb-task"  # names the task in each of server 0's calls
Digests = dict[bytes, tuple[bytes, bytes]]  # session: digests of the public parts of its keys and its update


class PeerMessage(BaseModel):
    """A message between the servers; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Announcement(PeerMessage):
    """Server 0 has opened a round."""

    round: str = Field(max_length=2000)
    opened_at: Moment
    join_until: Moment
    upload_until: Moment
    shares: Shares  # ever computed by server 0: server 1 has the same number, unless one of the ledgers was restored
    check_key: Hex16  # secret: the key with which the servers check this round's sessions


class Announced(PeerMessage):
    """Server 1 knows the round; it may have ended there already, if the ledger of server 0 was restored."""

    digest: Hex32
    ended: bool


class Offer(PeerMessage):
    """The complete sessions of server 0: session, digest of its public keys, digest of its public update."""

    sessions: list[tuple[Hex16, Hex32, Hex32]]

    def digests(self) -> Digests:
        """Return the offer by session."""
        return {
            bytes.fromhex(name): (bytes.fromhex(keys), bytes.fromhex(update)) for name, keys, update in self.sessions
        }


class Prepared(PeerMessage):
    """The sessions that are complete and identical on both servers, and those that are complete but differ."""

    sessions: list[Hex16]
    rejected: list[Hex16]

    def names(self) -> tuple[list[bytes], list[bytes]]:
        """Return the session ids of both lists."""
        return [bytes.fromhex(one) for one in self.sessions], [bytes.fromhex(one) for one in self.rejected]


class SessionList(PeerMessage):
    """The sessions in the sum."""

    sessions: list[Hex16]

    def names(self) -> list[bytes]:
        """Return the session ids."""
        return [bytes.fromhex(name) for name in self.sessions]


class Progress(PeerMessage):
    """The number of complete sessions of an open round."""

    updates: int = Field(ge=0)


class ListDigest(PeerMessage):
    """A reference to a sealed list."""

    digest: Hex32


class AbortReason(PeerMessage):
    """Why a round ends without a sum, or without its sum being used."""

    reason: Words


class Pause(PeerMessage):
    """A server is not joining new rounds; the operator's name is not sent."""

    what: Literal["pause", "drain"]
    reason: Words
    since: Moment


class Steering(PeerMessage):
    """Server 0's state: whether its operator has paused the task, and which round is open."""

    pause: Pause | None
    round: Hex32 | None
    waiting: bool  # the open round is waiting for devices: no session is on the way


class Steered(PeerMessage):
    """Server 1's state."""

    pause: Pause | None
    agreed: Hex32 | None = None  # digest of the successor that its operator has agreed to
    aborted: Words | None  # why that round has ended there without a sum, if it has


class SuccessionOffer(PeerMessage):
    """Server 0 has made the first version of the successor and signed the document."""

    document: str = Field(max_length=2000)
    signature: Hex64
    after: int = Field(ge=-1)  # number of the task's last round; −1: none


class Countersigned(PeerMessage):
    """Server 1 has checked everything and signed too: the task has a successor."""

    signature: Hex64


class SuccessionFound(PeerMessage):
    """The link to the successor, as devices get it."""

    link: str = Field(max_length=10_000)


class StandingMessage(PeerMessage):
    """The task and the model version that a server has published."""

    task: Hex32
    version: int
    digest: Hex32


class StoredShare(PeerMessage):
    """A share that server 1 has stored, and sends in pieces."""

    size: int = Field(ge=0)
    digest: Hex32  # SHA-256 of all bytes


class Published(PeerMessage):
    """The next model version; its numbers, or the rows that have changed, are sent before in pieces."""

    version: int
    digest_hex: Hex32
    size: int = Field(ge=0)  # bytes of all pieces; 0 if the round produces no model
    changes: bool  # only the rows that differ from the version before

    @property
    def digest(self) -> bytes:
        """Return the digest of the model."""
        return bytes.fromhex(self.digest_hex)


class Reception(PeerMessage):
    """How many bytes of a model have arrived, and its digest once it is published."""

    received: int = Field(ge=0)
    digest: Hex32 | None = None


class RolledBack(Published):
    """A version that has the numbers of an older one."""

    source: int


def list_digest(sessions: list[bytes]) -> bytes:
    """Return the SHA-256 of the concatenated session ids in sorted order."""
    return hashlib.sha256(b"".join(sessions)).digest()
