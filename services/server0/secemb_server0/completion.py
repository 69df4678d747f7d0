"""From the end of uploads to the published version: the steps of a round that no longer accepts messages."""

from collections.abc import Sequence
from typing import Any

from secemb_party.errors import PeerRefusedError
from secemb_party.evaluation import share_bytes
from secemb_party.ledger import RoundRecord, RoundState
from secemb_party.norm_check import messages_of, passing
from secemb_party.peer_messages import list_digest
from secemb_party.service import Party
from secemb_party.storage import sha256_of
from secemb_party.storage.publication import Publication, publication
from secemb_server0.figures import describe_window
from secemb_server0.gradient import AddedShares, Sum
from secemb_server0.panel import EVENT as PANEL_EVENT
from secemb_server0.panel import Panel, is_for_panel
from secemb_server0.peer import Peer
from secemb_server0.plausibility import IMPOSSIBLE, find_impossible, measure_update
from secemb_server0.reconstruct import add_shares, read_result, read_sums, take_step
from secemb_server0.rollback import Rollbacks
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, TRAIN


class Completion:
    """The steps of a round after its last upload. Each is durable and can be repeated safely."""

    def __init__(self, party: Party, peer: Peer, rollbacks: Rollbacks, panel: Panel | None = None) -> None:
        self._party, self._peer, self._ledger, self._task = party, peer, party.ledger, party.task
        self._rollbacks, self._panel = rollbacks, panel

    async def close(self, record: RoundRecord) -> RoundRecord:
        """Stop accepting messages, because they could no longer be counted."""
        return await self._party.advance(record.round_id, RoundState.OPEN, RoundState.SEALING, self._party.clock())

    async def abort(self, record: RoundRecord, reason: str, rejected: Sequence[bytes] = ()) -> RoundRecord:
        """End a round without a sum, at server 1 first; these sessions of it were rejected."""
        await self._peer.abort(record.round_id, reason)
        return await self.abort_here(record, reason, rejected)

    async def abort_here(self, record: RoundRecord, reason: str, rejected: Sequence[bytes] = ()) -> RoundRecord:
        """End a round that server 1 does not have, or has aborted."""
        ended = await self._party.advance(
            record.round_id,
            record.state,
            RoundState.ABORTED,
            self._party.clock(),
            reason=reason,
            rejected_sessions=rejected,
        )
        await self._party.tidy()
        return ended

    async def advance(self, record: RoundRecord) -> RoundRecord | None:
        """Advance a round by one state; return its new record, if known."""
        match record.state:
            case RoundState.SEALING:
                return await self._seal(record)
            case RoundState.SEALED:
                await self._party.share(record.round_id)
            case RoundState.SHARED:
                return await self._reconstruct(record)
            case RoundState.RECONSTRUCTED:
                return await self._publish(record)
        return None

    async def _seal(self, record: RoundRecord) -> RoundRecord:
        """Agree with server 1 on the sessions that count: those that are complete and identical on both servers."""
        held = await self._ledger.session_summaries(record.round_id)
        both, rejected = await self._peer.prepare(record.round_id, held)
        complete = {one.session_id for one in held if one.complete}
        if not {*both, *rejected} <= complete or sorted(set(both)) != both or not set(both).isdisjoint(rejected):
            raise PeerRefusedError("server 1's list has sessions that are not complete here, or is out of order")
        both, failed = await self._verify(record, both)
        rejected = [*rejected, *failed]
        self._party.note_rejected(record, rejected)
        if len(both) < self._task.min_cohort:
            return await self.abort(record, "too few sessions on both servers", rejected)
        digest = await self._peer.commit(record.round_id, both)
        if digest != list_digest(both):
            raise PeerRefusedError("server 1 sealed a different list")
        return await self._party.advance(
            record.round_id,
            RoundState.SEALING,
            RoundState.SEALED,
            self._party.clock(),
            sealed_sessions=both,
            list_digest=digest,
            rejected_sessions=rejected,
        )

    async def _verify(self, record: RoundRecord, sessions: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the sessions that have proved that their update is short enough, and those that have not."""
        shape = self._task.norm_shape
        if shape is None or record.kind != TRAIN:
            return sessions, []
        own = await self._party.tell(record.round_id, sessions)
        other = await self._peer.verify(record.round_id, b"".join(own))
        others = messages_of(shape, other, len(sessions))
        passed = await self._party.workers.run(lambda: passing(shape, sessions, own, others))
        return passed, sorted(set(sessions) - set(passed))

    async def _reconstruct(self, record: RoundRecord) -> RoundRecord:
        """Add the two shares and take the optimiser's step, or read the sums of a survey or an evaluation.

        An impossible sum is not used.
        """
        _, spec = await self._party.round(record.round_id)
        total, peer_share = await self._open_sum(record, spec)
        sessions, version = len(record.sealed_sessions or ()), None
        reason = await self._find_impossible(spec, total, sessions)
        if reason is not None:
            return await self._discard(record, f"{IMPOSSIBLE}: {reason}", peer_share)
        if spec.kind == TRAIN:
            store = self._party.models
            model, limited = await self._party.workers.run(lambda: take_step(store, spec, total, sessions))
            if limited is not None:
                self._party.metrics.safeguards.limited(limited / self._task.items)
            version = model.version
            await self._ledger.record_version(self._task.task_id, version, model.digest, self._party.clock())
        else:
            await self._note_result(record, spec, total, sessions)
        return await self._party.advance(
            record.round_id,
            RoundState.SHARED,
            RoundState.RECONSTRUCTED,
            self._party.clock(),
            remarks={"peer_share": peer_share},
            next_version=version,
        )

    async def _note_result(self, record: RoundRecord, spec: RoundSpec, total: Sum, sessions: int) -> None:
        """Record the result of a survey or an evaluation, and act on it."""
        found, now = read_result(spec, total, sessions), self._party.clock()
        told: dict[str, Any] = {"round": spec.number, **found}
        if spec.kind == EVALUATE and await is_for_panel(self._ledger, record.round_id):
            # Kept separate from the fleet's figures, in which the same devices would count twice.
            panel = {**told, "version": spec.model_version}
            await self._ledger.append_event(PANEL_EVENT, panel, now, task=self._task.task_id)
            self._party.metrics.safeguards.panel_quality(found)
            if self._panel is not None:
                await self._panel.conclude(self._party, self._rollbacks, seen=spec.model_version)
            return
        if spec.kind == EVALUATE:
            told |= await describe_window(self._ledger, self._task, spec.number, read_sums(total))
            self._party.metrics.quality({name: one for name, one in told["window"].items() if name != "rounds"})
        await self._ledger.append_event("result", told, now, task=self._task.task_id)

    async def _find_impossible(self, spec: RoundSpec, total: Sum, sessions: int) -> str | None:
        """Return why honest devices cannot have produced this sum, or None; the answer depends only on the sum."""
        if spec.kind != TRAIN:
            return find_impossible(spec, read_sums(total), sessions)
        sizes = await self._party.workers.run(lambda: measure_update(spec, total, sessions))
        for size in sizes:
            self._party.metrics.safeguards.sum_size(size.part, norm=size.norm, fullness=size.fullness)
        broken = [size.part for size in sizes if size.impossible]
        return f"{' and '.join(broken)} larger than these sessions can add up to" if broken else None

    async def _discard(self, record: RoundRecord, reason: str, peer_share: str) -> RoundRecord:
        """End a round whose sum is not used, at server 1 first; a repeated step finds the same sum and reason."""
        await self._peer.discard(record.round_id, reason)
        remarks, now = {"peer_share": peer_share}, self._party.clock()
        ended = await self._party.advance(
            record.round_id, RoundState.SHARED, RoundState.DISCARDED, now, remarks=remarks, reason=reason
        )
        await self._party.tidy()
        return ended

    async def _open_sum(self, record: RoundRecord, spec: RoundSpec) -> tuple[AddedShares, str]:
        """Return the plaintext sum and the digest of server 1's share. Both shares stay on disk."""
        other = await self._peer.share(record.round_id, record.list_digest or b"", share_bytes(spec))
        own = await self._party.share(record.round_id)
        total = await self._party.workers.run(lambda: add_shares(spec, own, other))
        return total, (await self._party.workers.run(lambda: sha256_of(other))).hex()

    async def _publish(self, record: RoundRecord) -> RoundRecord:
        """Publish the version here once server 1 has published it."""
        result = None
        if record.next_version is not None:
            version = record.next_version
            result = await self._party.workers.run(lambda: self._publication(version))
        digest = await self._peer.publish(record.round_id, result)
        if result is not None:
            if digest != result.model.digest:
                raise PeerRefusedError("server 1 published a different model")
            await self._party.publish(result.model.version)
        now = self._party.clock()
        ended = await self._party.advance(record.round_id, RoundState.RECONSTRUCTED, RoundState.PUBLISHED, now)
        await self._party.tidy()
        return ended

    def _publication(self, version: int) -> Publication:
        """Return what server 1, which has the version before, needs to make this one."""
        models = self._party.models
        return publication(models.load(version), models.load(version - 1), self._party.scratch)
