"""Whether server 0 can serve: its own checks, and whether server 1 answers and holds the same task and model."""

import asyncio

from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_party.service import Check, Party
from secemb_server0.peer import Peer

_SECONDS = 5.0  # for server 1 to answer
_DIFFERENT = "the servers hold different tasks or models; compare secemb task show and secemb model list on both sides"


async def check_readiness(party: Party, peer: Peer) -> list[Check]:
    """Return what must hold before devices are sent here, and what to do if it does not."""
    checks = await party.readiness()
    if not all(check.ok for check in checks):
        return checks  # without its own ledger and model there is nothing to compare
    try:
        async with asyncio.timeout(_SECONDS):
            standing = await peer.standing()
    except (PeerUnavailableError, PeerRefusedError, TimeoutError) as error:
        reason = str(error) or "server 1 does not answer"
        hint = f"{reason}; check [peer] url, certificates and token, and run secemb check"
        return [*checks, Check("peer", False, hint)]
    same = standing.task == party.task.task_id.hex() and standing.digest in await _digests(party)
    return [*checks, Check("peer", True, ""), Check("digests", same, "" if same else _DIFFERENT)]


async def _digests(party: Party) -> set[str]:
    """Return the digests that server 1 may hold: that of the published version, or of the one being published."""
    published = await party.ledger.published_version(party.task.task_id)
    if published is None:
        return set()
    recent = range(published.version, published.version + 2)
    return {one.digest.hex() for one in await party.ledger.versions(party.task.task_id) if one.version in recent}
