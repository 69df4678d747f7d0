"""The removal of an archived task's data. Its rows in the ledger are kept: they are its budget and its record."""

import shutil

from secemb_party.parts import Parts
from secemb_party.storage.transit import incoming_folder


async def remove_data(parts: Parts) -> None:
    """Remove the model, the shares and the bodies of a task; an interrupted call can be repeated."""
    ledger, task_id = parts.ledger, parts.task.task_id

    async def is_own(round_id: bytes) -> bool:
        record = await ledger.round(round_id)
        return record is not None and record.task_id == task_id

    for round_id in [one for one in await ledger.bodies.rounds() if await is_own(one)]:
        await ledger.bodies.drop(round_id)
    kept = {one for one in await parts.workers.run(parts.shares.rounds) if not await is_own(one)}
    await parts.workers.run(lambda: parts.shares.prune(kept))
    await parts.workers.run(lambda: parts.models.forget_tasks([task_id]))
    incoming = incoming_folder(parts.scratch, task_id)
    await parts.workers.run(lambda: shutil.rmtree(incoming, ignore_errors=True))
