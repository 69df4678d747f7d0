"""Server 1's side of the relayed transport: it opens the box and goes on as if the message came directly."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import StreamingResponse

from secemb_party.http.problems import noted_problem
from secemb_party.http.requests import BINARY, describe_binary, read_exactly, read_number
from secemb_party.relay_frames import Frame, Refusal, Reply, read_frames
from secemb_party.service import Party
from secemb_party.upload_macs import Sent
from secemb_server1.relay_keys import RelayKeys
from secemb_server1.routes import BODY_SECONDS, PEER_REFUSED, Check
from secemb_shared import holds
from secemb_shared.errors import LengthError
from secemb_shared.holds import hold_of
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.envelope import ENVELOPE_BYTES
from secemb_shared.messages.relay_key import KEY_ID_BYTES
from secemb_shared.messages.relayed import box_bytes, open_content, public_bytes, rebuild

Result = TypeVar("Result")
_KEPT_ROUNDS = 4
_SMALL = 1 << 18  # bytes that are hashed and masked faster than a thread can be asked to


class RelayDesk:
    """Takes what server 0 passes on."""

    def __init__(self, party: Party, keys: RelayKeys) -> None:
        self._party, self.keys = party, keys
        self._rounds: dict[bytes, tuple[RoundSpec, bytes]] = {}  # and the digest of the dense part that is read

    async def announce(self) -> bytes:
        """Return the key that devices seal to, signed."""
        return self.keys.announcement(self._party.clock())

    async def take(self, place: int, frame: Frame) -> Reply:
        """Do what a frame asks for; a refusal is counted, says no more than its name and leaves other frames alone."""
        try:
            step = self._take_keys if frame.step is Kind.KEYS else self._take_upload
            return Reply(place, await step(frame))
        except Exception as error:
            problem = noted_problem(error, self._party.metrics.refused)
            return Reply(place, Refusal(problem.slug, getattr(error, "retry_after", problem.retry_after)))

    async def _take_keys(self, frame: Frame) -> bytes:
        made: list[bytes] = []

        async def read(_length: int) -> bytes:
            made.append((await self._build(frame)).message)
            return made[0]

        answer = await self._party.keys(frame.round_id, frame.session_id, frame.ticket, read)
        spec, dense = await self._round(frame.round_id)
        return await self._run(len(answer), lambda: _masked(spec, frame.session_id, made[0], answer, dense))

    async def _take_upload(self, frame: Frame) -> bytes:
        async def read(_length: int) -> Sent:
            return await self._build(frame)

        kept = await self._party.update(frame.round_id, frame.session_id, frame.ticket, read)
        spec, _ = await self._round(frame.round_id)
        return holds.receipt_of(spec.label(frame.session_id), kept.hold, kept.digest)

    async def _build(self, frame: Frame) -> Sent:
        """Return the direct message and its MAC, from the box and the public part beside it."""
        spec, _ = await self._round(frame.round_id)
        size = box_bytes(frame.step)
        if len(frame.rest) != size + public_bytes(spec, frame.step):
            raise LengthError("the sealed and the public part do not have the length that the round asks for")
        sealed, public = frame.rest[:size], frame.rest[size:]
        key = self.keys.private(sealed[:KEY_ID_BYTES], self._party.clock())

        def build() -> Sent:
            content = open_content(spec, frame.session_id, frame.step, key, sealed)
            return Sent(*rebuild(spec, frame.session_id, frame.step, public, content))

        return await self._run(len(public), build)

    async def _round(self, round_id: bytes) -> tuple[RoundSpec, bytes]:
        found = self._rounds.get(round_id)
        if found is None:
            _, spec = await self._party.round(round_id)
            model = await self._party.workers.run(lambda: self._party.models.load(spec.model_version))
            dense = hashlib.sha256(model.dense.astype("<f4").tobytes()).digest()
            found = self._rounds[round_id] = (spec, dense)
            while len(self._rounds) > _KEPT_ROUNDS:
                self._rounds.pop(next(iter(self._rounds)))
        return found

    async def _run(self, size: int, work: Callable[[], Result]) -> Result:
        return work() if size <= _SMALL else await self._party.workers.run(work)


def _masked(spec: RoundSpec, session_id: bytes, keys: bytes, answer: bytes, dense: bytes) -> bytes:
    """Return the answer under its mask, the receipt for the keys and the confirmation of the dense part."""
    place, hold = spec.label(session_id), hold_of(keys)
    words = np.frombuffer(answer, dtype="<u4", offset=ENVELOPE_BYTES).astype(np.uint32)
    masked = holds.mask(place, hold, words)
    marks = holds.receipt_of(place, hold, hold) + holds.dense_mark(place, hold, dense)
    return masked.astype("<u4", copy=False).tobytes() + marks


_FRAMES = {"requestBody": describe_binary("frames of devices' messages, one after the other")}
_MOST_BYTES = (1 << 28) + (1 << 23)  # one message as long as the protocol allows, or many short ones


def peer_relay_routes(desk: RelayDesk, check_bearer: Check) -> APIRouter:
    """Return what server 0 calls to pass devices' messages on."""
    router = APIRouter(prefix="/peer/v1", tags=["peer"], dependencies=[Depends(check_bearer)], responses=PEER_REFUSED)

    @router.get("/relay-key", response_class=Response)
    async def relay_key() -> Response:
        """Return the signed announcement of the key that devices seal to."""
        return Response(await desk.announce(), media_type=BINARY)

    @router.post("/relay", response_class=Response, openapi_extra=_FRAMES)
    async def relay(request: Request) -> Response:
        """Take messages of many sessions; answer each as soon as it is durable."""
        announced = read_number(request.headers.get("content-length", ""))
        if announced is None or announced > _MOST_BYTES:
            raise LengthError("say how long the frames are, and send fewer at a time")
        frames = list(read_frames(await read_exactly(request, announced, BODY_SECONDS)))
        return StreamingResponse(_replies(desk, frames), media_type=BINARY)

    return router


async def _replies(desk: RelayDesk, frames: Sequence[Frame]) -> AsyncIterator[bytes]:
    """Yield replies in the order in which they are ready."""
    tasks = [asyncio.ensure_future(desk.take(place, frame)) for place, frame in enumerate(frames)]
    try:
        for done in asyncio.as_completed(tasks):
            yield (await done).encode()
    finally:
        for task in tasks:
            task.cancel()  # server 0 has gone; what is durable stays, and it will ask again
