"""Who may upload in a session: only whoever made its keys.

Server 0 makes the tickets, and so could send server 1 an update of its own in somebody's session, whose sum would then
show where that session's items are. In tasks that are relayed server 1 therefore asks every upload for a proof, the
direct ones as well, which carry it in a header.
"""

from secemb_party.errors import UnknownSessionError
from secemb_party.party import Party
from secemb_shared import relaying
from secemb_shared.errors import AlteredError
from secemb_shared.labels import Label


class Proofs:
    """Checks the proofs of uploads that come directly."""

    def __init__(self, party: Party) -> None:
        self._party = party

    async def __call__(self, round_id: bytes, session_id: bytes, shown: str, message: bytes) -> None:
        """Raise unless this upload comes from the device that made the session's keys."""
        place, hold = await find_hold(self._party, round_id, session_id)
        expected = relaying.proof_of(place, hold, message).hex()
        if not relaying.same_mark(expected.encode(), shown.encode("utf-8", "replace")):
            raise AlteredError("this upload does not come from the device that made the keys")


async def find_hold(party: Party, round_id: bytes, session_id: bytes) -> tuple[Label, bytes]:
    """Return the session's label, and what only its device and this server know: the digest of its keys."""
    hold = await party.ledger.keys_digest(round_id, session_id)
    if hold is None:
        raise UnknownSessionError("this session has not come so far; join and send its keys first")
    return (await party.spec(round_id)).label(session_id), hold
