"""Server 0 with a real ledger, conductor, admission and pace, but no sums, and a server 1 that always agrees."""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.compute.interface import Accepted
from secemb_party.compute.threads import Workers
from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_party.evaluation import BATCH, KeysMessage, SessionBodies, Share
from secemb_party.ledger import Ledger, RoundRecord, SessionSummary
from secemb_party.parts import Clock, Parts
from secemb_party.peer_messages import Pause, StandingMessage, Steered, SuccessionOffer, list_digest
from secemb_party.service import Party
from secemb_party.storage import Blob, MemoryBlob, Model, ModelFiles, Shape, ShareFiles
from secemb_party.storage.publication import Publication
from secemb_server0.join import TicketIssuer
from secemb_server0.leader import Leader
from secemb_server0.pace import Pace
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.row_words import Rows


class NoSum:
    """The share of a round in which nothing was added."""

    def __init__(self, spec: RoundSpec) -> None:
        self._spec = spec

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        """Add nothing, and return nothing."""
        return [b""] * len(sessions)

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        """Remove nothing."""

    async def share(self) -> bytes:
        """Return a share of zeros."""
        return Share.empty(self._spec).encode()


@dataclass(frozen=True)
class UncomputedRound:
    """A round whose keys nobody evaluates."""

    spec: RoundSpec

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Refuse: these devices read no rows."""
        raise AssertionError("devices in this simulation send no keys")

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        """Refuse: these devices read no rows."""
        raise AssertionError("devices in this simulation send no keys")

    def sum(self) -> NoSum:
        """Start a sum."""
        return NoSum(self.spec)


class NoCompute:
    """A compute engine that does nothing."""

    batch = BATCH

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> UncomputedRound:
        """Prepare nothing."""
        return UncomputedRound(spec)

    def fault(self) -> str | None:
        """Return None: nothing can fail."""
        return None

    def close(self) -> None:
        """Do nothing."""


class AgreeingPeer:
    """A server 1 with the same data as server 0; every call fails during an outage."""

    def __init__(self, task: TaskSpec, ledger: Ledger) -> None:
        self._task, self._ledger = task, ledger
        self._standing = StandingMessage(task=task.task_id.hex(), version=0, digest=bytes(32).hex())
        self._rounds: dict[bytes, RoundSpec] = {}
        self.away = False

    async def succeed(self, offer: SuccessionOffer) -> str:
        """Refuse: no operator agrees to a successor here."""
        raise PeerRefusedError("there is no successor")

    async def successor(self) -> str:
        """Refuse likewise."""
        raise PeerRefusedError("there is no successor")

    def _answer(self) -> None:
        if self.away:
            raise PeerUnavailableError("server 1 is not responding")

    async def standing(self) -> StandingMessage:
        """Return the version that was published last."""
        self._answer()
        return self._standing

    async def exchange(self, pause: Pause | None, round_id: bytes | None, *, waiting: bool) -> Steered:
        """Agree to everything."""
        self._answer()
        return Steered(pause=None, aborted=None)

    async def announce(self, record: RoundRecord, shares: Mapping[str, int], check_key: bytes) -> bool:
        """Accept a round."""
        self._answer()
        self._rounds = {record.round_id: RoundSpec.decode(record.spec, self._task)}
        return False

    async def progress(self, round_id: bytes) -> int:
        """Return how many updates server 0 has."""
        self._answer()
        return (await self._ledger.counts(round_id)).updates

    async def prepare(self, round_id: bytes, held: list[SessionSummary]) -> tuple[list[bytes], list[bytes]]:
        """Return all complete sessions, and reject none."""
        self._answer()
        return sorted(one.session_id for one in held if one.complete), []

    async def verify(self, round_id: bytes, told: bytes) -> bytes:
        """Refuse: updates of this simulation have no norm bound."""
        raise AssertionError("devices in this simulation send no proofs")

    async def commit(self, round_id: bytes, sessions: list[bytes]) -> bytes:
        """Return the digest of the list."""
        self._answer()
        return list_digest(sessions)

    async def share(self, round_id: bytes, digest: bytes, size: int) -> Blob:
        """Return a share of zeros."""
        self._answer()
        return MemoryBlob(bytes(size))

    async def publish(self, round_id: bytes, result: Publication | None) -> bytes:
        """Return the digest of what server 0 publishes."""
        self._answer()
        return self._published(result.model) if result is not None else b""

    async def roll_back(self, model: Model, source: int) -> bytes:
        """Return the digest of what server 0 publishes."""
        self._answer()
        return self._published(model)

    async def discard(self, round_id: bytes, reason: str) -> None:
        """Discard the sum."""
        self._answer()

    async def abort(self, round_id: bytes, reason: str) -> None:
        """Discard the round."""
        self._answer()

    def _published(self, model: Model) -> bytes:
        task = self._task.task_id.hex()
        self._standing = StandingMessage(task=task, version=model.version, digest=model.digest.hex())
        return model.digest


@dataclass
class LoneServer:
    """The server of a simulated fleet."""

    task: TaskSpec
    ledger: Ledger
    peer: AgreeingPeer
    leader: Leader
    issuer: TicketIssuer


@asynccontextmanager
async def lone_server(
    folder: Path, task: TaskSpec, clock: Clock, *, joins_per_second: float, seed: int = 1
) -> AsyncIterator[LoneServer]:
    """Run server 0 in a folder, with the caller's clock."""
    workers, key = Workers(threads=1), Ed25519PrivateKey.generate()
    async with await Ledger.open(f"sqlite:///{folder}/ledger.db", migrate=True) as ledger:
        party = Party(
            Parts(
                role=0,
                task=task,
                ledger=ledger,
                models=ModelFiles(folder / "models", task.task_id, Shape.of(task)),
                shares=ShareFiles(folder / "shares"),
                workers=workers,
                compute=NoCompute(),
                ticket_key=key.public_key(),
                scratch=folder,
                clock=clock,
                steady=clock,
            )
        )
        await party.start()
        peer = AgreeingPeer(task, ledger)
        leader = Leader(party, peer)
        pace = Pace(joins_per_second, random.Random(seed).random)
        issuer = TicketIssuer(party, leader, key, open_enrolment=False, pace=pace)
        try:
            yield LoneServer(task, ledger, peer, leader, issuer)
        finally:
            workers.close()
