"""Rollbacks: the numbers of an older version of the model are published again, as the next version.

Versions never count backwards, because devices pin them. The request is in the ledger before anything is done, and is
carried out between two rounds: server 1 publishes the version first, after checking that it published the same numbers
before, then this server. An interrupted step is repeated from the request, with the same result. The optimiser
continues from its state at that version; if this is no longer here, it starts over.
"""

from dataclasses import replace

from secemb_party.errors import (
    LedgerConflictError,
    ModelFileError,
    ModelMissingError,
    PeerRefusedError,
    RollbackRefusedError,
)
from secemb_party.ledger import Rollback
from secemb_party.operators import Order
from secemb_party.service import Party
from secemb_party.storage import Model
from secemb_server0.peer import Peer
from secemb_server0.reconstruct import fresh_state

_NOT_KEPT = "this version is no longer kept; choose one that `secemb model list` lists as kept"


class Rollbacks:
    """The operator's requests to roll back, and how they are carried out."""

    def __init__(self, party: Party, peer: Peer) -> None:
        self._party, self._peer, self._ledger = party, peer, party.ledger

    async def request(self, source: int, *, seen: int, order: Order) -> Rollback:
        """Record that the numbers of `source` should replace `seen`; the same request again changes nothing."""
        if source >= seen:
            raise RollbackRefusedError("choose a version older than the published one")
        task_id, now = self._party.task.task_id, self._party.clock()
        known = [one for one in await self._ledger.rollbacks(task_id) if (one.seen, one.source) == (seen, source)]
        if not known and source not in self._party.models.versions():
            raise RollbackRefusedError(_NOT_KEPT)
        try:
            return await self._ledger.request_rollback(task_id, seen=seen, source=source, order=order, now=now)
        except LedgerConflictError as error:
            raise RollbackRefusedError(f"{error}; list the versions again before you decide") from None

    async def carry_out(self) -> None:
        """Carry out the open request, if there is one; only while no round is open."""
        rollback = await self._ledger.open_rollback(self._party.task.task_id)
        published = await self._ledger.published_version(self._party.task.task_id)
        if rollback is None or published is None:
            return
        try:
            model = await self._party.workers.run(lambda: self._renamed(rollback.source, published.version + 1))
            digest = await self._peer.roll_back(model, rollback.source)
        except ModelMissingError:
            await self._give_up(rollback, _NOT_KEPT)
        except PeerRefusedError as error:
            # Abandoned only if server 1 still has this server's version: it may have published the new one already.
            if (await self._peer.standing()).digest != published.digest.hex():
                raise
            await self._give_up(rollback, str(error)[:400])
        else:
            if digest != model.digest:
                raise PeerRefusedError("server 1 published a different model")
            await self._publish(rollback, model)

    def _renamed(self, source: int, version: int) -> Model:
        return replace(self._party.models.load(source), version=version)

    async def _publish(self, rollback: Rollback, model: Model) -> None:
        """Publish the version that server 1 has confirmed; the request ends in the same transaction."""
        await self._party.workers.run(lambda: self._store(model, rollback.source))
        now = self._party.clock()
        await self._ledger.record_version(rollback.task_id, model.version, model.digest, now)
        await self._ledger.finish_rollback(rollback, made=model.version, now=now)
        self._party.metrics.model_version(model.version, now)
        told = {"source": rollback.source, "version": model.version}
        await self._ledger.append_event("rollback", told, now, task=rollback.task_id)
        await self._party.tidy()

    def _store(self, model: Model, source: int) -> None:
        models = self._party.models
        models.save(model)
        try:
            state = models.load_state(source)
        except ModelFileError:  # damaged, but the model is intact
            state = None
        fresh = fresh_state(self._party.task, model.version)
        models.save_state(fresh if state is None else replace(state, version=model.version))

    async def _give_up(self, rollback: Rollback, reason: str) -> None:
        now = self._party.clock()
        await self._ledger.give_up_rollback(rollback, reason=reason, now=now)
        told = {"source": rollback.source, "reason": reason}
        await self._ledger.append_event("rollback", told, now, task=rollback.task_id)
