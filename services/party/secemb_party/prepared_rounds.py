"""The rounds for which the engine holds a copy of the table, so that sessions can be answered."""

from collections.abc import Awaitable, Callable

from secemb_party.async_cache import AsyncCache
from secemb_party.compute import PreparedRound
from secemb_party.errors import RoundClosedError
from secemb_party.ledger import RoundRecord
from secemb_party.parts import Parts
from secemb_party.storage.mapped_arrays import release
from secemb_party.storage.retention import FEWEST
from secemb_shared.messages import RoundSpec

LARGE_TABLE = 1 << 29  # bytes: of a larger table, only one round has a copy
_KEPT = 2  # the open round and the one before it


def kept_rounds(table_bytes: int) -> int:
    """Return how many rounds have a copy of a table of this size."""
    return 1 if table_bytes > LARGE_TABLE else _KEPT


class PreparedRounds:
    """The most recent rounds, each prepared once, however many sessions wait for it."""

    def __init__(
        self,
        parts: Parts,
        find: Callable[[bytes], Awaitable[tuple[RoundRecord, RoundSpec]]],
        check_key: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        self._ledger, self._models = parts.ledger, parts.models
        self._workers, self._compute, self._task = parts.workers, parts.compute, parts.task
        self._find, self._check_key = find, check_key
        self._kept = kept_rounds(4 * parts.task.items * parts.task.row_width)
        self._rounds: AsyncCache[bytes, PreparedRound] = AsyncCache(self._kept)

    async def get(self, round_id: bytes) -> PreparedRound:
        """Return a prepared round; refuse one that has ended and would displace the open one."""
        if self._kept == 1 and round_id not in self._rounds.known():
            record, _ = await self._find(round_id)
            newest = await self._ledger.last_round(self._task.task_id)
            if record.ended and newest is not None and newest.round_id != round_id:
                raise RoundClosedError("this round has ended; join the current one")
        return await self._rounds.get(round_id, lambda: self._prepare(round_id))

    async def _prepare(self, round_id: bytes) -> PreparedRound:
        record, spec = await self._find(round_id)
        if record.ended and record.model_version not in self._models.versions()[-FEWEST:]:
            raise RoundClosedError("this round has ended; join the current one")
        model = await self._workers.run(lambda: self._models.load(spec.model_version))
        prepared = await self._compute.prepare(spec, model.rows, await self._check_key(round_id))
        release(model.rows)
        return prepared
