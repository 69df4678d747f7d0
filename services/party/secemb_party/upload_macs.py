"""MACs of uploads: only the device that made a session's keys may upload in it.

A ticket does not prove this. Server 0 issues tickets and server 1 sees them all, so either could send the other a
forged upload in a device's session. The sum would then have random numbers in exactly the rows that the session's paths
lead to, including its items. Therefore both servers require a MAC with every upload, in every kind of round and over
both transports. Its key is the session's hold, which the other server does not know.
"""

from collections import OrderedDict
from dataclasses import dataclass

from secemb_party.errors import RoundClosedError, UnknownSessionError
from secemb_party.ledger import Ledger, RoundState, Upload
from secemb_shared.errors import SecEmbError
from secemb_shared.holds import check_upload_mac
from secemb_shared.messages import RoundSpec

_REMEMBERED = 4096  # limit on cached holds, of sessions whose update has not arrived yet


@dataclass(frozen=True, slots=True, repr=False)
class Sent:
    """An upload as it arrived, with its MAC."""

    message: bytes
    mac: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Kept:
    """An upload that is durable."""

    digest: bytes  # SHA-256 of the message
    hold: bytes  # the secret that only this server and the device know


class UploadMacs:
    """Checks MACs with the holds of the sessions in a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._holds: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()

    def remember(self, keys: Upload) -> None:
        """Cache the hold of a session whose keys are durable: it never changes, and the update will arrive soon."""
        # The hold is the digest for recognising a resend of the keys, which is kept longer than the keys themselves.
        self._holds[keys.round_id, keys.session_id] = keys.body_digest
        if len(self._holds) > _REMEMBERED:
            self._holds.popitem(last=False)

    async def check(self, round_: RoundSpec, upload: Upload, shown: bytes) -> bytes:
        """Return the session's hold, or raise unless the upload comes from the device that made the keys."""
        hold = self._holds.get((upload.round_id, upload.session_id))
        if hold is None:
            hold = await self._ledger.keys_digest(upload.round_id, upload.session_id)
        if hold is None:
            raise await self._missing(upload.round_id)
        check_upload_mac(round_.label(upload.session_id), hold, upload.body_digest, shown)
        return hold

    async def _missing(self, round_id: bytes) -> SecEmbError:
        """Return why there is no hold: the keys have not arrived yet, or it is too late for them."""
        record = await self._ledger.round(round_id)
        if record is None or record.state is not RoundState.OPEN:
            return RoundClosedError("this round no longer accepts messages; join the current one")
        return UnknownSessionError("no keys have been received for this session; join and send them first")
