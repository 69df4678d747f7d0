"""A session's messages that come to server 0 alone: it does its own part while server 1 does the other.

A device is answered when both servers hold its message durably, and not before.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from starlette.responses import Response

from secemb_party.errors import OutdatedRelayKeyError
from secemb_party.http.bodies import BINARY, describe_binary
from secemb_party.http.problems import PROBLEMS, UNAVAILABLE, problem_for, problem_response
from secemb_party.http.uploads import Notify, UploadRoute, describe_receipt
from secemb_party.party import Party, ReadBody
from secemb_party.relay_frames import Frame
from secemb_server0.announced_key import AnnouncedKey
from secemb_server0.relay import Relay, RelayRefusedError
from secemb_shared.messages import Kind
from secemb_shared.messages.relayed import encode_relayed_answer, relayed_bytes, split_relayed, step_of

TakeOwn = Callable[[bytes, bytes, str, ReadBody], Awaitable[bytes]]
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
            summary="Take RELAYED_UPLOAD, pass server 1's part on and return receipts when both hold the upload.",
            answer=describe_receipt("what is durable here, and server 1's receipt", "sha256", "receipt"),
        ),
    )


class RelayedUploads:
    """Serves relayed keys and uploads."""

    def __init__(self, party: Party, relay: Relay, key: AnnouncedKey, *, completed: Notify) -> None:
        self._party, self._relay, self._key, self._completed = party, relay, key, completed

    async def keys(self, round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> Response:
        """Take RELAYED_KEYS and return RELAYED_ANSWER: both servers' answers in one, under server 1's mask."""
        place = round_id, session_id, ticket
        try:
            own, other = await self._both(Kind.RELAYED_KEYS, self._party.keys, *place, read)
        except RelayRefusedError as error:
            return self._refuse(error)
        spec = await self._party.spec(round_id)
        return Response(encode_relayed_answer(spec, session_id, own, other), media_type=BINARY)

    async def update(self, round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> Response:
        """Take RELAYED_UPLOAD and return what is durable here, and server 1's receipt."""
        place = round_id, session_id, ticket
        try:
            own, receipt = await self._both(Kind.RELAYED_UPLOAD, self._party.update, *place, read)
        except RelayRefusedError as error:
            return self._refuse(error)
        self._completed()
        answer = {"sha256": own.hex(), "receipt": receipt.hex()}
        return Response(json.dumps(answer, separators=(",", ":")), media_type="application/json")

    async def _both(
        self, kind: Kind, take: TakeOwn, round_id: bytes, session_id: bytes, ticket: str, read: ReadBody
    ) -> tuple[bytes, bytes]:
        """Return what this server makes of its part and what server 1 says to the rest, done at the same time."""
        passing: list[asyncio.Future[bytes]] = []

        async def read_own(_length: int) -> bytes:
            spec = await self._party.spec(round_id)
            size = relayed_bytes(spec, kind)
            held.enter_context(self._relay.place(size))
            split = split_relayed(spec, session_id, kind, await read(size))
            frame = Frame(step_of(spec, kind), round_id, session_id, ticket, split.sealed + split.public)
            passing.append(asyncio.ensure_future(self._relay.pass_on(frame)))
            return split.own

        with ExitStack() as held:
            try:
                own = await take(round_id, session_id, ticket, read_own)
                other = await passing[0]
            finally:
                for one in passing:
                    one.cancel()
                await asyncio.gather(*passing, return_exceptions=True)
        self._party.metrics.session(f"relayed-{step_of(await self._party.spec(round_id), kind).name.lower()}")
        return own, other

    def _refuse(self, error: RelayRefusedError) -> Response:
        """Tell the device what server 1 has refused, in the words that it would have used itself."""
        problem = PROBLEMS.get(error.refusal.slug, UNAVAILABLE)
        self._party.metrics.refused(problem.slug)
        if problem.slug == _OUTDATED:
            self._key.forget()
        return problem_response(problem, error)
