"""The peer channel's routes of the relayed transport on server 1."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import StreamingResponse

from secemb_party.http.bodies import BINARY, describe_binary, read_exactly
from secemb_party.http.numbers import read_number
from secemb_party.relay_frames import Frame, read_frames
from secemb_server1.relay_desk import RelayDesk
from secemb_server1.routes import BODY_SECONDS, PEER_REFUSED, Check
from secemb_shared.errors import LengthError

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
