"""Server 1's side of the relayed transport: it decrypts the box and continues as if the message had come directly."""

import hashlib
from functools import partial

import numpy as np

from secemb_party.relay_frames import Frame
from secemb_party.service import Party
from secemb_party.upload_macs import Sent
from secemb_server1.relay_keys import RelayKeys
from secemb_shared import holds
from secemb_shared.errors import LengthError
from secemb_shared.holds import hold_of
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.codec import ENVELOPE_BYTES
from secemb_shared.messages.relay_key import KEY_ID_BYTES
from secemb_shared.messages.relayed import box_bytes, open_content, public_bytes, rebuild

_KEPT_ROUNDS = 4


class RelayReceiver:
    """Accepts relayed messages."""

    def __init__(self, party: Party, keys: RelayKeys) -> None:
        self._party, self.keys = party, keys
        self._dense: dict[int, bytes] = {}  # digests of the dense parts that rounds read, by model version

    async def announce(self) -> bytes:
        """Return the signed announcement of the key that devices encrypt to."""
        clock = self._party.peer_clock
        return self.keys.announcement(*clock.times(), sure=clock.compared())

    async def take(self, frame: Frame) -> bytes:
        """Accept a frame's message and return the reply once the message is durable."""
        with self._party.memory.message() as arrived:
            arrived(len(frame.rest))
            return await (self._take_keys(frame) if frame.step is Kind.KEYS else self._take_upload(frame))

    async def _take_keys(self, frame: Frame) -> bytes:
        expected = await self._party.intake.expect_keys(frame.claim, "relayed")
        spec, session_id, dense = expected.spec, frame.claim.session_id, await self._dense_digest(expected.spec)
        keys = (await self._open(spec, frame)).message
        answer = await expected.take(keys)
        masked = partial(_masked, spec, session_id, keys, answer, dense)
        return await self._party.workers.run(masked, size=len(answer))

    async def _take_upload(self, frame: Frame) -> bytes:
        expected = await self._party.intake.expect_update(frame.claim, "relayed")
        kept = await expected.take(await self._open(expected.spec, frame))
        return holds.receipt_of(expected.spec.label(frame.claim.session_id), kept.hold, kept.digest)

    async def _open(self, spec: RoundSpec, frame: Frame) -> Sent:
        """Return the direct message and its MAC, from the box and the public part beside it."""
        size = box_bytes(frame.step)
        if len(frame.rest) != size + public_bytes(spec, frame.step):
            raise LengthError("the box or the public part has the wrong length for this round")
        box, public = frame.rest[:size], frame.rest[size:]
        key = self.keys.private(box[:KEY_ID_BYTES], *self._party.peer_clock.times())

        def build() -> Sent:
            content = open_content(spec, frame.claim.session_id, frame.step, key, box)
            return Sent(*rebuild(spec, frame.claim.session_id, frame.step, public, content))

        return await self._party.workers.run(build, size=len(public))

    async def _dense_digest(self, spec: RoundSpec) -> bytes:
        found = self._dense.get(spec.model_version)
        if found is None:
            model = await self._party.workers.run(lambda: self._party.models.load(spec.model_version))
            found = self._dense[spec.model_version] = hashlib.sha256(model.dense.astype("<f4").tobytes()).digest()
            while len(self._dense) > _KEPT_ROUNDS:
                self._dense.pop(next(iter(self._dense)))
        return found


def _masked(spec: RoundSpec, session_id: bytes, keys: bytes, answer: bytes, dense: bytes) -> bytes:
    """Return the answer under its mask, the receipt for the keys and the confirmation of the dense part."""
    place, hold = spec.label(session_id), hold_of(keys)
    words = np.frombuffer(answer, dtype="<u4", offset=ENVELOPE_BYTES).astype(np.uint32)
    masked = holds.mask(place, hold, words)
    marks = holds.receipt_of(place, hold, hold) + holds.dense_mark(place, hold, dense)
    return masked.astype("<u4", copy=False).tobytes() + marks
