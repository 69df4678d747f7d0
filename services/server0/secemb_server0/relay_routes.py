"""A session's messages that come to server 0 alone: it does its own part while server 1 does the other.

A device is answered when both servers hold its message durably, and not before.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

from starlette.responses import Response

from secemb_party.errors import OutdatedRelayKeyError
from secemb_party.http.problems import PROBLEMS, UNAVAILABLE, problem_for, problem_response
from secemb_party.http.requests import BINARY, describe_binary
from secemb_party.http.session_routes import Arrival, Notify, UploadRoute, describe_receipt, with_mac
from secemb_party.relay_frames import Frame
from secemb_party.service import Party, ReadBody
from secemb_party.upload_macs import Kept
from secemb_server0.join import AnnouncedKey
from secemb_server0.relay import Relay, RelayRefusedError
from secemb_shared.messages import Kind
from secemb_shared.messages.relayed import encode_relayed_answer, relayed_bytes, reply_bytes, split_relayed, step_of

Own = TypeVar("Own")
_OUTDATED = problem_for(OutdatedRelayKeyError).slug


def relayed_routes(uploads: "RelayedUploads") -> tuple[UploadRoute, UploadRoute]:
    """Return the routes of devices that talk to server 0 alone."""
    return (
        UploadRoute(
            name="relayed-keys",
            take=uploads.keys,
            summary="Take RELAYED_KEYS, pass server 1's part on and return RELAYED_ANSWER when both hold the keys.",
            answer=describe_binary("RELAYED_ANSWER: both servers' shares of the rows in one, under server 1's mask"),
        ),
        UploadRoute(
            name="relayed-update",
            take=uploads.update,
            proven=True,
            summary="Take RELAYED_UPLOAD, pass server 1's part on and return receipts when both hold the upload.",
            answer=describe_receipt("what is durable here, and server 1's receipt", "sha256", "receipt"),
        ),
    )


class RelayedUploads:
    """Serves relayed keys and uploads."""

    def __init__(self, party: Party, relay: Relay, key: AnnouncedKey, *, completed: Notify) -> None:
        self._party, self._relay, self._key, self._completed = party, relay, key, completed

    async def keys(self, came: Arrival) -> Response:
        """Take RELAYED_KEYS and return RELAYED_ANSWER: both servers' answers in one, under server 1's mask."""

        def take(read: ReadBody) -> Awaitable[bytes]:
            return self._party.keys(came.round_id, came.session_id, came.ticket, read)

        try:
            own, other = await self._both(came, Kind.RELAYED_KEYS, take)
        except RelayRefusedError as error:
            return self._refuse(error)
        spec = await self._party.spec(came.round_id)
        return Response(encode_relayed_answer(spec, came.session_id, own, other), media_type=BINARY)

    async def update(self, came: Arrival) -> Response:
        """Take RELAYED_UPLOAD and return what is durable here, and server 1's receipt."""

        def take(read: ReadBody) -> Awaitable[Kept]:
            return self._party.update(came.round_id, came.session_id, came.ticket, with_mac(read, came.mac))

        try:
            own, receipt = await self._both(came, Kind.RELAYED_UPLOAD, take)
        except RelayRefusedError as error:
            return self._refuse(error)
        self._completed()
        answer = {"sha256": own.digest.hex(), "receipt": receipt.hex()}
        return Response(json.dumps(answer, separators=(",", ":")), media_type="application/json")

    async def _both(self, came: Arrival, kind: Kind, take: Callable[[ReadBody], Awaitable[Own]]) -> tuple[Own, bytes]:
        """Return what this server makes of its part and what server 1 says to the rest, done at the same time."""
        passing: list[asyncio.Future[bytes]] = []

        async def read_own(_length: int) -> bytes:
            spec = await self._party.spec(came.round_id)
            size = relayed_bytes(spec, kind)
            held.enter_context(self._relay.place(size))
            split = split_relayed(spec, came.session_id, kind, await came.read(size))
            rest = split.box + split.public
            step = step_of(spec, kind)
            frame = Frame(step, came.round_id, came.session_id, came.ticket, rest)
            passing.append(self._relay.pass_on(frame, reply_bytes(spec, step)))
            return split.own

        with ExitStack() as held:
            try:
                own = await take(read_own)
                other = await passing[0]
            finally:
                for one in passing:
                    one.cancel()
                await asyncio.gather(*passing, return_exceptions=True)
        return own, other

    def _refuse(self, error: RelayRefusedError) -> Response:
        """Tell the device what server 1 has refused, in the words that it would have used itself."""
        problem = PROBLEMS.get(error.refusal.slug, UNAVAILABLE)
        self._party.metrics.refused(problem.slug)
        if problem.slug == _OUTDATED:
            self._key.forget()
        return problem_response(problem, error)
