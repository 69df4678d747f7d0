"""The signed links between tasks, in the ledger."""

import json

from secemb_party.ledger import Ledger
from secemb_shared.messages.succession import Link


async def read_link(ledger: Ledger, task_id: bytes) -> Link | None:
    """Return the link from a task to its successor, if it has one."""
    stored = await ledger.recall(link_key(task_id))
    return None if stored is None else Link.from_json(json.loads(stored))


def link_key(task_id: bytes) -> str:
    """Return the key of a task's link to its successor."""
    return f"succession:{task_id.hex()}"
