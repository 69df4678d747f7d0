"""Server 0's client for server 1: every call can be repeated, and a failed call shows whether a retry can help."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

import httpx
from pydantic import ValidationError

from secemb_party.errors import (
    PeerAbortedError,
    PeerPausedError,
    PeerRefusedError,
    PeerSpentError,
    PeerUnavailableError,
)
from secemb_party.ledger import RoundRecord, SessionSummary
from secemb_party.logs import Outage
from secemb_party.metrics import Metrics
from secemb_party.peer_clock import PeerClock
from secemb_party.peer_messages import (
    TASK_HEADER,
    AbortReason,
    Announced,
    Announcement,
    Countersigned,
    ListDigest,
    Offer,
    Pause,
    PeerMessage,
    Prepared,
    Progress,
    Published,
    Reception,
    RolledBack,
    SessionList,
    StandingMessage,
    Steered,
    Steering,
    StoredShare,
    SuccessionFound,
    SuccessionOffer,
)
from secemb_party.relay_frames import Reply, ReplyReader
from secemb_party.storage import Blob, Model
from secemb_party.storage.publication import ModelNumbers, Publication
from secemb_party.storage.transit import Incoming
from secemb_party.succession.errors import PeerSucceededError
from secemb_party.tenancy.errors import PeerStoppedError
from secemb_server0.peer_problem import explain
from secemb_server0.transfer import BINARY, download, read_reception, upload
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.relay_key import RELAY_KEY_BYTES

Answer = TypeVar("Answer", bound=PeerMessage)
# Connection failures. TLS errors of an altered record may pass through httpx unchanged, as OSErrors.
LINE_ERRORS = (httpx.HTTPError, httpx.StreamError, OSError)
_OK = 200
_STANDING_SECONDS = 4.0  # it serves to find out whether server 1 is reachable
# The problems that the leader distinguishes, as named in secemb_party.http.problems.
_NOT_HERE = {"task-stopped", "task-unknown"}
_ASK_THERE = "server 1 does not run this task; ask its operator to start it there with `secemb task start`"
_REFUSALS = {
    "privacy-spent": PeerSpentError,
    "task-paused": PeerPausedError,
    "round-aborted": PeerAbortedError,
    "task-succeeded": PeerSucceededError,
}


class Peer(Protocol):
    """The leader's calls to server 1."""

    async def standing(self) -> StandingMessage:
        """Return the version that server 1 has published."""

    async def exchange(self, pause: Pause | None, round_id: bytes | None, *, waiting: bool) -> Steered:
        """Send this server's state to server 1 and return server 1's."""

    async def announce(self, record: RoundRecord, shares: Mapping[str, int], check_key: bytes) -> bool:
        """Tell server 1 that a round is open, how many shares of each kind this server has computed, and a secret.

        Return whether the round has ended there already.
        """

    async def progress(self, round_id: bytes) -> int:
        """Return how many updates server 1 has."""

    async def prepare(self, round_id: bytes, held: list[SessionSummary]) -> tuple[list[bytes], list[bytes]]:
        """Stop uploads at server 1; return the sessions that count, and those complete on both sides and rejected."""

    async def verify(self, round_id: bytes, told: bytes) -> bytes:
        """Send server 1 messages about the updates of the sessions that may count; return its own."""

    async def commit(self, round_id: bytes, sessions: list[bytes]) -> bytes:
        """Fix the list; return its digest as server 1 computed it."""

    async def share(self, round_id: bytes, digest: bytes, size: int) -> Blob:
        """Return server 1's share of the sealed list, which must have `size` bytes."""

    async def publish(self, round_id: bytes, result: Publication | None) -> bytes:
        """Send the result; return the digest of what server 1 has published."""

    async def roll_back(self, model: Model, source: int) -> bytes:
        """Send a version with the numbers of an older one; return its digest as server 1 computed it."""

    async def succeed(self, offer: SuccessionOffer) -> str:
        """Ask server 1 to end the task with a successor; return its signature."""

    async def successor(self) -> str:
        """Return the link to the successor that the task has on server 1."""

    async def discard(self, round_id: bytes, reason: str) -> None:
        """End the round without using its sum, which is known."""

    async def abort(self, round_id: bytes, reason: str) -> None:
        """End the round without a sum."""


class RelayLine(Protocol):
    """A relay's calls to server 1."""

    async def relay_key(self) -> bytes:
        """Return the signed announcement of server 1's key."""

    def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        """Send frames in one request and yield the replies, at most `most` bytes each, as they arrive."""


class HttpPeer:
    """The peer channel over HTTP; the client has the certificate, the pinned authority and the bearer token."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        metrics: Metrics | None = None,
        clock: PeerClock | None = None,
        task_id: bytes | None = None,
        *,
        scratch: Path,
    ) -> None:
        self._client, self._metrics = client, metrics or Metrics()
        self._incoming = Incoming(scratch, task_id or bytes(32))
        self._clock = clock or PeerClock(time.time, time.monotonic, self._metrics)
        self._task = _name_task(task_id)
        self._outage = Outage("server 1 is not responding", "server 1 is responding again")
        self._stopped: Pause | None = None  # since server 1 was first found not to run the task

    async def standing(self) -> StandingMessage:
        """Return the version that server 1 has published."""
        return _read(StandingMessage, await self._call("GET", "/peer/v1/standing", timeout=_STANDING_SECONDS))

    async def exchange(self, pause: Pause | None, round_id: bytes | None, *, waiting: bool) -> Steered:
        """Send this server's state to server 1 and return server 1's."""
        here = Steering(pause=pause, round=round_id.hex() if round_id is not None else None, waiting=waiting)
        try:
            answer = await self._post("/peer/v1/steering", here, timeout=_STANDING_SECONDS)
        except PeerStoppedError as error:  # as if it was drained: no session joins, and no round opens
            self._stopped = self._stopped or Pause(what="drain", reason=str(error), since=time.time())
            return Steered(pause=self._stopped, aborted=None)
        self._stopped = None
        return _read(Steered, answer)

    async def announce(self, record: RoundRecord, shares: Mapping[str, int], check_key: bytes) -> bool:
        """Tell server 1 that a round is open, how many shares of each kind this server has computed, and a secret.

        Return whether the round has ended there already.
        """
        message = Announcement(
            round=record.spec.decode(),
            opened_at=record.opened_at,
            join_until=record.join_until,
            upload_until=record.upload_until,
            shares=dict(shares),
            check_key=check_key.hex(),
        )
        return _read(Announced, await self._post("/peer/v1/announce", message)).ended

    async def progress(self, round_id: bytes) -> int:
        """Return how many updates server 1 has."""
        return _read(Progress, await self._call("GET", f"/peer/v1/rounds/{round_id.hex()}/progress")).updates

    async def prepare(self, round_id: bytes, held: list[SessionSummary]) -> tuple[list[bytes], list[bytes]]:
        """Stop uploads at server 1; return the sessions that count, and those complete on both sides and rejected."""
        offer = Offer(sessions=[_triple(one) for one in held if one.complete])
        return _read(Prepared, await self._post(f"/peer/v1/rounds/{round_id.hex()}/prepare", offer)).names()

    async def verify(self, round_id: bytes, told: bytes) -> bytes:
        """Send server 1 messages about the updates of the sessions that may count; return its own."""
        path = f"/peer/v1/rounds/{round_id.hex()}/verify"
        return (await self._call("POST", path, content=told, headers=BINARY)).content

    async def commit(self, round_id: bytes, sessions: list[bytes]) -> bytes:
        """Fix the list; return its digest as server 1 computed it."""
        message = SessionList(sessions=[name.hex() for name in sessions])
        answer = await self._post(f"/peer/v1/rounds/{round_id.hex()}/commit", message)
        return bytes.fromhex(_read(ListDigest, answer).digest)

    async def share(self, round_id: bytes, digest: bytes, size: int) -> Blob:
        """Return server 1's share of the sealed list, which must have `size` bytes."""
        path = f"/peer/v1/rounds/{round_id.hex()}/share"
        share = _read(StoredShare, await self._post(path, ListDigest(digest=digest.hex())))
        if share.size != size:
            raise PeerRefusedError(
                "server 1's share does not match this round; check that both servers run the same version"
            )
        return await download(self._call, f"{path}/{digest.hex()}", share, self._incoming)

    async def publish(self, round_id: bytes, result: Publication | None) -> bytes:
        """Send the result; return the digest of what server 1 has published."""
        path = f"/peer/v1/rounds/{round_id.hex()}/publish"
        if result is None:
            published = Published(version=0, digest_hex=bytes(32).hex(), size=0, changes=False)
            return bytes.fromhex(read_reception(await self._post(path, published)).digest or "")
        return await self._upload(path, result, _facts(result))

    async def roll_back(self, model: Model, source: int) -> bytes:
        """Send a version with the numbers of an older one; return its digest as server 1 computed it."""
        result = Publication(model, changes=False, body=ModelNumbers(model))
        return await self._upload("/peer/v1/rollback", result, RolledBack(**_facts(result).model_dump(), source=source))

    async def _upload(self, path: str, result: Publication, published: Published) -> bytes:
        async def finish(message: Published) -> Reception:
            return read_reception(await self._post(path, message))

        return await upload(self._call, result.body, published, finish)

    async def succeed(self, offer: SuccessionOffer) -> str:
        """Ask server 1 to end the task with a successor; return its signature."""
        return _read(Countersigned, await self._post("/peer/v1/succession", offer)).signature

    async def successor(self) -> str:
        """Return the link to the successor that the task has on server 1."""
        return _read(SuccessionFound, await self._call("GET", "/peer/v1/successor")).link

    async def discard(self, round_id: bytes, reason: str) -> None:
        """End the round without using its sum, which is known."""
        await self._post(f"/peer/v1/rounds/{round_id.hex()}/discard", AbortReason(reason=reason))

    async def abort(self, round_id: bytes, reason: str) -> None:
        """End the round without a sum."""
        await self._post(f"/peer/v1/rounds/{round_id.hex()}/abort", AbortReason(reason=reason))

    async def _post(self, path: str, message: PeerMessage, **request: Any) -> httpx.Response:
        headers = {"content-type": "application/json"}
        return await self._call("POST", path, content=message.model_dump_json().encode(), headers=headers, **request)

    async def _call(self, method: str, path: str, *, route: str = "", **request: Any) -> httpx.Response:
        route, start = route or path.rsplit("/", 1)[1], perf_counter()

        def record(outcome: str) -> None:
            self._metrics.peer_call(route, outcome, perf_counter() - start)

        try:
            headers = request.pop("headers", {}) | self._clock.header() | self._task
            answer = await self._client.request(method, path, headers=headers, **request)
        except LINE_ERRORS as error:
            record("unreachable")
            raise self._unavailable(str(explain(error))) from error
        if answer.status_code in (404, 503) and _slug(answer) in _NOT_HERE:
            record("refused")
            self._outage.worked()
            raise PeerStoppedError(_ASK_THERE)
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            record("unreachable")
            raise self._unavailable(f"server 1 returned status {answer.status_code}; the call will be retried")
        self._outage.worked()
        if answer.status_code >= 400:
            record("refused")
            slug = _slug(answer)
            self._metrics.refused_by_peer(slug)
            kind = _REFUSALS.get(slug, PeerRefusedError)
            if kind in (PeerPausedError, PeerAbortedError):
                raise kind(_detail(answer))  # server 1's reason, in its own words
            raise kind(f"server 1 refused the call with status {answer.status_code}: {_detail(answer)}")
        record("ok")
        self._clock.compare(answer.headers, took=perf_counter() - start)
        self._metrics.heard_peer(time.time())
        return answer

    def _unavailable(self, reason: str) -> PeerUnavailableError:
        self._outage.failed(reason)
        return PeerUnavailableError(reason)


class HttpRelayLine:
    """The relay's calls over the peer channel."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        metrics: Metrics | None = None,
        clock: PeerClock | None = None,
        task_id: bytes | None = None,
    ) -> None:
        self._client, self._metrics = client, metrics or Metrics()
        self._clock = clock or PeerClock(time.time, time.monotonic, self._metrics)
        self._task = _name_task(task_id)

    async def relay_key(self) -> bytes:
        """Return the signed announcement of server 1's key."""
        start = perf_counter()
        try:
            answer = await self._client.get("/peer/v1/relay-key", headers=self._clock.header() | self._task)
        except LINE_ERRORS as error:
            raise self._unavailable("relay-key", start, str(explain(error))) from error
        if answer.status_code != _OK or len(answer.content) != RELAY_KEY_BYTES:
            raise self._unavailable("relay-key", start, f"server 1 returned status {answer.status_code}")
        self._metrics.peer_call("relay-key", "ok", perf_counter() - start)
        return answer.content

    async def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        """Send frames in one request, without concatenating them, and yield the replies as they arrive."""
        headers = BINARY | {"content-length": str(sum(map(len, frames)))} | self._clock.header() | self._task
        reader, start = ReplyReader(most), perf_counter()
        try:
            async with self._client.stream("POST", "/peer/v1/relay", content=_each(frames), headers=headers) as answer:
                if answer.status_code != _OK:
                    raise self._unavailable("relay", start, f"server 1 returned status {answer.status_code}")
                async for piece in answer.aiter_bytes():
                    for reply in reader.feed(piece):
                        yield reply
        except PeerUnavailableError:
            raise
        except (*LINE_ERRORS, SecEmbError) as error:
            raise self._unavailable("relay", start, str(explain(error))) from error
        self._metrics.peer_call("relay", "ok", perf_counter() - start)
        self._metrics.heard_peer(time.time())

    def _unavailable(self, route: str, start: float, reason: str) -> PeerUnavailableError:
        self._metrics.peer_call(route, "unreachable", perf_counter() - start)
        return PeerUnavailableError(reason)


def _name_task(task_id: bytes | None) -> dict[str, str]:
    """Return the header by which server 1 finds the task of a call; without it, it takes its only task."""
    return {} if task_id is None else {TASK_HEADER: task_id.hex()}


async def _each(frames: Sequence[bytes]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame


def _facts(result: Publication) -> Published:
    model = result.model
    return Published(
        version=model.version, digest_hex=model.digest.hex(), size=result.body.size, changes=result.changes
    )


def _triple(one: SessionSummary) -> tuple[str, str, str]:
    keys, update = one.keys_public_digest or b"", one.update_public_digest or b""
    return one.session_id.hex(), keys.hex(), update.hex()


def _read(kind: type[Answer], answer: httpx.Response) -> Answer:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError:
        raise PeerRefusedError(
            "cannot parse server 1's response; check that both servers run the same version"
        ) from None


def _slug(answer: httpx.Response) -> str:
    """Return the slug of a problem document, or nothing if the answer is not one."""
    try:
        return str(answer.json().get("type", "")).rsplit(":", 1)[-1]
    except (ValueError, AttributeError):
        return ""


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("detail", ""))[:500]
    except (ValueError, AttributeError):
        return ""
