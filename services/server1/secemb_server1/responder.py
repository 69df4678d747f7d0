"""Server 1's side of the peer channel: it responds, and checks everything independently.

Every answer is a function of what the ledger holds, so that a repeated call gets the same bytes.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from secemb_party.async_cache import AsyncCache
from secemb_party.budget import may_open
from secemb_party.errors import PeerRefusedError, RoundAbortedError
from secemb_party.ledger import NewRound, RoundRecord, RoundState, Window
from secemb_party.norm_check import messages_of, passing
from secemb_party.peer_messages import (
    Announcement,
    Digests,
    Published,
    Reception,
    RolledBack,
    Steered,
    Steering,
    StoredShare,
    list_digest,
)
from secemb_party.service import Party
from secemb_party.storage import Blob, Model, Shape
from secemb_party.storage.blob import PIECE
from secemb_party.storage.publication import mapped, patched
from secemb_party.storage.transit import Incoming
from secemb_party.succession.errors import TaskSucceededError
from secemb_party.tenancy.errors import TaskPausedError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN


@dataclass(frozen=True, slots=True)
class Standing:
    """The model version that this server has published."""

    version: int
    digest: bytes


class Responder:
    """The calls that server 0 can make."""

    def __init__(self, party: Party) -> None:
        self._party, self._ledger, self._task = party, party.ledger, party.task
        self.opening, self._publishing = asyncio.Lock(), asyncio.Lock()
        self._shares: AsyncCache[tuple[bytes, bytes], Blob] = AsyncCache(1)  # the one that is being sent
        self._incoming = Incoming(party.scratch, party.task.task_id)

    async def standing(self) -> Standing:
        """Return the published model version; the two servers must agree on it."""
        published = await self._ledger.published_version(self._task.task_id)
        if published is None:
            raise PeerRefusedError("no model is published on this server yet; start this server first")
        return Standing(published.version, published.digest)

    async def announce(self, announcement: Announcement) -> bytes:
        """Open a round that server 0 has opened, if it uses the model that is published here; return its id.

        If the round is announced again with later deadlines, a device has joined and thereby started them.
        """
        spec = RoundSpec.decode(announcement.round.encode(), self._task)
        new = NewRound(
            round_id=spec.digest,
            task_id=self._task.task_id,
            number=spec.number,
            kind=spec.kind,
            model_version=spec.model_version,
            spec=spec.encode(),
            opened_at=announcement.opened_at,
            join_until=announcement.join_until,
            upload_until=announcement.upload_until,
        )
        key = bytes.fromhex(announcement.check_key)
        async with self.opening:  # of two concurrent announcements, the second finds the first
            known = await self._ledger.round(spec.digest)
            if known is None:
                if self._party.successions.link is not None:
                    raise TaskSucceededError("this task has a successor")
                await self._party.control.refresh()  # another process of this server may have been told to pause
                self.check_pause()
                await self._check_next(spec)
                await self._check_shares(announcement.shares)
            else:
                _check_aborted(await self._check_key(known, key))
            await self._party.open_round(new, key)
            await self._party.postpone(spec.digest, Window(announcement.join_until, announcement.upload_until))
        return spec.digest

    async def _check_key(self, known: RoundRecord, key: bytes) -> RoundRecord:
        """End a round that server 0 announces with a different key than before: its ledger is older than the round.

        Continuing would mean a second evaluation of devices' proofs, and two of them reveal an update.
        """
        unsealed = known.state in (RoundState.OPEN, RoundState.SEALING)
        if not unsealed or await self._party.check_key(known.round_id) == key:
            return known
        await self.abort(known.round_id, "server 0 was restored from a backup that is older than this round")
        return (await self._party.round(known.round_id))[0]

    def check_pause(self) -> None:
        """Refuse a new round while this server's operator has paused the task or drains the server."""
        pause = self._party.control.here
        if pause is not None:
            raise TaskPausedError(pause.reason)

    async def steer(self, there: Steering) -> Steered:
        """Record server 0's state and return this server's."""
        await self._party.control.hear(there.pause, waiting=there.waiting)
        known = await self._ledger.round(bytes.fromhex(there.round)) if there.round is not None else None
        ended = known is not None and known.state is RoundState.ABORTED
        agreed = self._party.successions.agreed
        return Steered(
            pause=self._party.control.here,
            agreed=agreed.digest if agreed is not None else None,
            aborted=known.reason if known is not None and ended else None,
        )

    async def _check_next(self, spec: RoundSpec) -> None:
        standing, last = await self.standing(), await self._ledger.last_round(self._task.task_id)
        if (spec.model_version, spec.model_digest) != (standing.version, standing.digest):
            raise PeerRefusedError("the round uses a different model than the one published here")
        if last is not None and (not last.ended or spec.number <= last.number):
            raise PeerRefusedError("an earlier round has not ended here, or this number was used before")
        after, trained = last.kind if last is not None else None, await self._party.trained()
        if not may_open(spec.kind, rounds=self._task.rounds, trained=trained, after=after):
            raise PeerRefusedError(f"the task has finished its {self._task.rounds:,} training rounds")
        await self._party.spending.require(spec.kind)

    async def _check_shares(self, there: Mapping[str, int]) -> None:
        """Refuse to continue if one server has lost a sum that the other has recorded.

        After a training round, the models would differ. Surveys and evaluations change no model, but opening their sums
        has cost privacy.
        """
        if await self._ledger.shares_by_kind(self._task.task_id) != there:
            raise PeerRefusedError(
                "the servers have recorded different numbers of sums because a ledger was restored; see Backups in"
                " docs/operating.md"
            )

    async def progress(self, round_id: bytes) -> int:
        """Return how many updates of a round are here."""
        record, _ = await self._party.round(round_id)
        _check_aborted(record)
        return (await self._ledger.counts(record.round_id)).updates

    async def prepare(self, round_id: bytes, offered: Digests) -> tuple[list[bytes], list[bytes]]:
        """Stop accepting messages; return the sessions that count, and the rejected ones.

        A rejected session is complete on both servers, but its public parts or the fingerprints of its keys differ.
        """
        record, _ = await self._party.round(round_id)
        _check_aborted(record)
        if record.state is RoundState.OPEN:
            await self._party.advance(round_id, RoundState.OPEN, RoundState.SEALING, self._party.clock())
        held = {
            one.session_id: (one.keys_public_digest, one.update_public_digest)
            for one in await self._ledger.session_summaries(round_id)
            if one.complete
        }
        both = sorted(name for name, digests in offered.items() if held.get(name) == digests)
        rejected = sorted(name for name, digests in offered.items() if held.get(name, digests) != digests)
        self._party.note_rejected(record, rejected)
        stored = await self._ledger.remember(f"prepared:{round_id.hex()}", b"".join(both), self._party.clock())
        return _names(stored), rejected

    async def verify(self, round_id: bytes, told: bytes) -> bytes:
        """Decide with server 0's messages which of the prepared sessions count; return this server's messages."""
        record, spec = await self._party.round(round_id)
        _check_aborted(record)
        prepared, shape = await self._ledger.recall(f"prepared:{round_id.hex()}"), self._task.norm_shape
        if prepared is None or shape is None or spec.kind != TRAIN:
            raise PeerRefusedError("there is nothing to verify in this round; call prepare first")
        names = _names(prepared)
        own, others = await self._party.tell(round_id, names), messages_of(shape, told, len(names))
        passed = await self._party.workers.run(lambda: passing(shape, names, others, own))
        self._party.note_rejected(record, [name for name in names if name not in set(passed)])
        await self._ledger.remember(f"verified:{round_id.hex()}", b"".join(passed), self._party.clock())
        return b"".join(own)

    async def commit(self, round_id: bytes, sessions: list[bytes]) -> bytes:
        """Fix the list of sessions that the sum is over; return its digest."""
        record, spec = await self._party.round(round_id)
        verified = self._task.norm_shape is not None and spec.kind == TRAIN
        counted = await self._ledger.recall(f"{'verified' if verified else 'prepared'}:{round_id.hex()}")
        if counted is None or record.state is RoundState.OPEN:
            raise PeerRefusedError("the sessions of this round were not compared; call prepare and verify first")
        if sorted(set(sessions)) != sessions or b"".join(sessions) != counted:
            raise PeerRefusedError("the list is not the one that both servers agreed on")
        if not self._task.min_cohort <= len(sessions) <= self._task.cohort:
            raise PeerRefusedError("fewer sessions than the minimum cohort or more than the cohort")
        digest = list_digest(sessions)
        if record.state is RoundState.SEALING:
            await self._party.advance(
                round_id,
                RoundState.SEALING,
                RoundState.SEALED,
                self._party.clock(),
                sealed_sessions=sessions,
                list_digest=digest,
            )
        elif record.list_digest != digest:
            raise PeerRefusedError("this round was aborted or is sealed with a different list")
        return digest

    async def share(self, round_id: bytes, digest: bytes) -> StoredShare:
        """Store this server's share for the sealed list, and for no other; return its size and digest."""
        share = await self._shares.get((round_id, digest), lambda: self._share(round_id, digest))
        record, _ = await self._party.round(round_id)
        return StoredShare(size=share.size, digest=(record.share_digest or b"").hex())

    async def share_piece(self, round_id: bytes, digest: bytes, first: int) -> tuple[bytes, str]:
        """Return a piece of the share, and the SHA-256 of the piece."""
        share = await self._shares.get((round_id, digest), lambda: self._share(round_id, digest))

        def read() -> tuple[bytes, str]:
            piece = share.read(first, PIECE)
            return piece, hashlib.sha256(piece).hexdigest()

        return await self._party.workers.run(read)

    async def _share(self, round_id: bytes, digest: bytes) -> Blob:
        record, _ = await self._party.round(round_id)
        if record.list_digest is None or record.list_digest != digest:
            raise PeerRefusedError("this round is not sealed with that list")
        return await self._party.share(round_id)

    async def take_piece(self, digest: bytes, first: int, piece: bytes, piece_digest: str) -> Reception:
        """Keep a piece of a model; a piece that is not the next one changes nothing."""
        if first + len(piece) > _most(Shape.of(self._task)):
            raise PeerRefusedError("this is more than a model of this task has")
        name = digest.hex()
        found = await self._party.workers.run(lambda: self._incoming.append(name, first, piece, piece_digest))
        return Reception(received=found)

    async def publish(self, round_id: bytes, published: Published) -> Reception:
        """Publish the result of a round, if all of it has arrived; return the digest of the model after it."""
        async with self._publishing:  # of two concurrent calls, the second finds the round published
            return await self._publish(round_id, published)

    async def _publish(self, round_id: bytes, published: Published) -> Reception:
        record, spec = await self._party.round(round_id)
        if record.state in (RoundState.SHARED, RoundState.RECONSTRUCTED):
            if spec.kind == TRAIN:
                receipt = await self._take_model(spec, published)
                if receipt is not None:
                    return receipt
            await self._end(record, published.version if spec.kind == TRAIN else None)
        elif record.state is not RoundState.PUBLISHED:
            raise PeerRefusedError("this round has no sum to publish")
        return Reception(received=published.size, digest=(await self._digest_after(spec)).hex())

    async def _digest_after(self, spec: RoundSpec) -> bytes:
        """Return the digest of the model that a round produced, whatever has been published since."""
        if spec.kind != TRAIN:
            return spec.model_digest
        digests = {one.version: one.digest for one in await self._ledger.versions(self._task.task_id)}
        return digests[spec.model_version + 1]

    async def _take_model(self, spec: RoundSpec, published: Published) -> Reception | None:
        """Publish a model, or return how much of it has arrived if something is missing."""
        if published.version != spec.model_version + 1:
            raise PeerRefusedError("this is not the next version of the model")
        received = self._incoming.received(published.digest_hex)
        if received < published.size:
            return Reception(received=received)
        await self._party.install(await self._party.workers.run(lambda: self._read(published)))
        await self._party.workers.run(self._incoming.clear)
        return None

    def _read(self, published: Published) -> Model:
        """Return the model that has arrived, if it has the announced digest; otherwise it has to be sent again."""
        name, models = published.digest_hex, self._party.models
        try:
            if self._incoming.received(name) != published.size or not published.size:
                raise PeerRefusedError("the model has another length than announced")
            if published.changes:
                body, before = self._incoming.open(name), models.load(published.version - 1)
                return models.save_step(patched(before, published.version, published.digest, body))
            model = self._mapped(name, published.version)
            if model.digest != published.digest:
                raise PeerRefusedError("the model does not match the announced digest")
        except Exception:
            self._incoming.clear()
            raise
        return model

    def _mapped(self, name: str, version: int) -> Model:
        return mapped(self._task.task_id, version, Shape.of(self._task), self._incoming.path(name))

    async def roll_back(self, wanted: RolledBack) -> Reception:
        """Publish the numbers of an older version again, if they are the ones that were published here."""
        async with self._publishing:
            return await self._roll_back(wanted)

    async def _roll_back(self, wanted: RolledBack) -> Reception:
        digests = {one.version: one.digest for one in await self._ledger.versions(self._task.task_id)}
        standing, done = await self.standing(), Reception(received=wanted.size, digest=wanted.digest_hex)
        if wanted.version <= standing.version and digests.get(wanted.version) == wanted.digest:
            return done
        last = await self._ledger.last_round(self._task.task_id)
        if wanted.version != standing.version + 1 or (last is not None and not last.ended):
            raise PeerRefusedError("this is not the next version of the model, or a round has not ended here")
        if not 0 <= wanted.source <= standing.version or wanted.changes:
            raise PeerRefusedError("this is not an older version of the model")
        received = self._incoming.received(wanted.digest_hex)
        if received < wanted.size:
            return Reception(received=received)
        model = await self._party.workers.run(lambda: self._read_older(wanted, digests.get(wanted.source)))
        await self._party.install(model)
        told = {"source": wanted.source, "version": wanted.version}
        await self._ledger.append_event("rollback", told, self._party.clock(), task=self._task.task_id)
        await self._party.tidy()
        await self._party.workers.run(self._incoming.clear)
        return done

    def _read_older(self, wanted: RolledBack, digest: bytes | None) -> Model:
        try:
            old = self._mapped(wanted.digest_hex, wanted.source)
            model = replace(old, version=wanted.version)
            if old.digest != digest or model.digest != wanted.digest:
                raise PeerRefusedError("the numbers differ from those published here as that version")
        except Exception:
            self._incoming.clear()
            raise
        return model

    async def _end(self, record: RoundRecord, version: int | None) -> None:
        now = self._party.clock()
        self._shares.drop(lambda _: True)  # its file may be removed from now on
        if record.state is RoundState.SHARED:
            await self._party.advance(
                record.round_id, RoundState.SHARED, RoundState.RECONSTRUCTED, now, next_version=version
            )
        await self._party.advance(record.round_id, RoundState.RECONSTRUCTED, RoundState.PUBLISHED, now)
        await self._party.tidy()

    async def discard(self, round_id: bytes, reason: str) -> None:
        """End a round whose sum is not used, because server 0 has found that honest devices cannot have produced it."""
        record, _ = await self._party.round(round_id)
        if record.state is RoundState.DISCARDED and record.reason == reason:
            return
        if record.state is not RoundState.SHARED:
            raise PeerRefusedError("this round has no sum to discard")
        self._shares.drop(lambda _: True)
        await self._party.advance(round_id, RoundState.SHARED, RoundState.DISCARDED, self._party.clock(), reason=reason)
        await self._party.tidy()

    async def abort(self, round_id: bytes, reason: str) -> None:
        """End a round without a sum, if it is not sealed yet; both servers record the first reason."""
        record = await self._ledger.round(round_id)
        if record is None:
            return  # never opened here
        if record.reason != reason:
            _check_aborted(record)
        elif record.state is RoundState.ABORTED:
            return
        if record.state not in (RoundState.OPEN, RoundState.SEALING):
            raise PeerRefusedError("this round is sealed, so it must be completed")
        await self._party.advance(round_id, record.state, RoundState.ABORTED, self._party.clock(), reason=reason)
        await self._party.tidy()


def _most(shape: Shape) -> int:
    """Return the most bytes that server 0 sends of a model: all numbers, because fewer changes are shorter."""
    return 4 * shape.numbers


def _names(stored: bytes) -> list[bytes]:
    return [stored[at : at + 16] for at in range(0, len(stored), 16)]


def _check_aborted(record: RoundRecord) -> None:
    """Tell server 0 that a round has ended here: by this server's operator, by a restore, or at its own request."""
    if record.state is RoundState.ABORTED:
        raise RoundAbortedError(record.reason or "")
