"""Going back to an older version of the model: its numbers are published anew, under the next number.

Versions never count backwards, because devices pin them. The wish is in the ledger before anything is done, and is
carried out between two rounds: server 1 takes the version first, having checked that the numbers are those it had
published before, then this server. A step that is cut off is repeated from the wish and comes out the same. The
optimiser starts anew: its memory belongs to the steps that are taken back.
"""

from dataclasses import replace

from secemb_party.errors import LedgerConflictError, ModelMissingError, PeerRefusedError, RollbackRefusedError
from secemb_party.ledger import Rollback
from secemb_party.service import Party
from secemb_party.storage import Model
from secemb_server0.peer import Peer

_NOT_KEPT = "this version is no longer kept; choose one whose file is still here"


class Rollbacks:
    """The operator's wishes to go back, and what becomes of them."""

    def __init__(self, party: Party, peer: Peer) -> None:
        self._party, self._peer, self._ledger = party, peer, party.ledger

    async def wish(self, source: int, *, seen: int) -> Rollback:
        """Remember that the numbers of `source` are wanted in place of `seen`; the same wish again changes nothing."""
        if source >= seen:
            raise RollbackRefusedError("a model goes back to an older version than the published one")
        task_id, now = self._party.task.task_id, self._party.clock()
        known = [one for one in await self._ledger.rollbacks(task_id) if (one.seen, one.source) == (seen, source)]
        if not known and source not in self._party.models.versions():
            raise RollbackRefusedError(_NOT_KEPT)
        try:
            return await self._ledger.wish_rollback(task_id, seen=seen, source=source, now=now)
        except LedgerConflictError as error:
            raise RollbackRefusedError(f"{error}; list the versions again, then decide") from None

    async def carry_out(self) -> None:
        """Fulfil the open wish, if there is one; only while no round is open."""
        wish = await self._ledger.open_rollback(self._party.task.task_id)
        published = await self._ledger.published_version(self._party.task.task_id)
        if wish is None or published is None:
            return
        try:
            model = await self._party.workers.run(lambda: self._renamed(wish.source, published.version + 1))
            digest = await self._peer.roll_back(model, wish.source)
        except ModelMissingError:
            await self._give_up(wish, _NOT_KEPT)
        except PeerRefusedError as error:
            # Given up only if server 1 says that it stands where this server stands: it may have taken the version.
            if (await self._peer.standing()).digest != published.digest.hex():
                raise
            await self._give_up(wish, str(error)[:400])
        else:
            if digest != model.digest:
                raise PeerRefusedError("server 1 published another model")
            await self._publish(wish, model)

    def _renamed(self, source: int, version: int) -> Model:
        return replace(self._party.models.load(source), version=version)

    async def _publish(self, wish: Rollback, model: Model) -> None:
        """Take over what server 1 has confirmed; the wish ends in the transaction that shows devices the version."""
        await self._party.workers.run(lambda: self._store(model))
        now = self._party.clock()
        await self._ledger.record_version(wish.task_id, model.version, model.digest, now)
        await self._ledger.finish_rollback(wish, made=model.version, now=now)
        self._party.metrics.model_version(model.version)
        await self._ledger.append_event("rollback", {"source": wish.source, "version": model.version}, now)
        await self._party.tidy()

    def _store(self, model: Model) -> None:
        self._party.models.save(model)
        self._party.models.forget_state()

    async def _give_up(self, wish: Rollback, reason: str) -> None:
        now = self._party.clock()
        await self._ledger.give_up_rollback(wish, reason=reason, now=now)
        await self._ledger.append_event("rollback", {"source": wish.source, "reason": reason}, now)
