"""Routes of both servers about a task: its specification, the relay key, and copies of the public model."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.params import Depends
from pydantic import BaseModel

from secemb_party.ended_rounds import EndedRounds
from secemb_party.errors import (
    CatalogueUnavailableError,
    DeltaUnavailableError,
    LedgerUnavailableError,
    PeerUnavailableError,
    RangeError,
    RelayUnavailableError,
    UnknownVersionError,
)
from secemb_party.http.problems import describe_headers, problem_responses
from secemb_party.http.ranges import Conditions, conditional
from secemb_party.http.requests import BINARY, TaskHex, describe_binary
from secemb_party.service import Party
from secemb_party.storage import Shape
from secemb_party.storage.copies import Body, TableCopies, WantedCopy
from secemb_party.succession.errors import TaskSucceededError
from secemb_party.tenancy.errors import UnknownTaskError
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.table import TableFormat

AskRelayKey = Callable[[], Awaitable[bytes]]
RetryAfter = Callable[[], int | None]  # seconds until a round can be joined; None: the task has ended
TellRounds = Callable[[], EndedRounds | None]
Version = Annotated[int, Path(ge=0, lt=2**53)]
Since = Annotated[int | None, Query(ge=0, lt=2**53, description="the version of the device's current copy")]
Asked = Annotated[Conditions, Header()]


class TaskView(BaseModel):
    """A task as announced by a server; devices compare the announcements of both servers."""

    task: str  # canonical form
    round: str | None  # canonical form of the current round
    model_version: int
    model_digest: str
    ended: bool = False  # no more rounds will open; decided by server 0, and never set by server 1
    paused: bool = False  # paused by an operator of either server: no round opens until it is resumed
    retry_after: int | None = None  # seconds, if no round is open; only from server 0
    rounds: EndedRounds | None = None  # how they ended; server 0 tells every device the same


_OF_VERSIONS = (UnknownVersionError, DeltaUnavailableError, LedgerUnavailableError)


def _described(what: str, *refusals: type[SecEmbError], names: Sequence[str] = ()) -> dict[int | str, dict[str, Any]]:
    headers = describe_headers("Accept-Ranges", "Cache-Control", "ETag", *names)
    return {
        200: describe_binary(what) | {"headers": headers},
        206: describe_binary(f"a part of: {what}") | {"headers": headers | describe_headers("Content-Range")},
        304: {"description": "the device has it already", "headers": headers},
        **problem_responses(UnknownTaskError, TaskSucceededError, RangeError, *refusals),
    }


def task_routes(
    party: Party,
    ask_relay_key: AskRelayKey | None,
    retry_after: RetryAfter | None = None,
    tell_rounds: TellRounds | None = None,
    dependencies: Sequence[Depends] = (),
) -> APIRouter:
    """Return the routes from which devices get the task, server 1's relay key, and copies of the public model."""
    router = APIRouter(prefix="/v1/tasks/{task}", tags=["devices"], dependencies=dependencies)
    copies = TableCopies(party.models, Shape.of(party.task), party.workers.run, party.scratch)

    @router.get("", responses=problem_responses(UnknownTaskError, TaskSucceededError, LedgerUnavailableError))
    async def task(task: TaskHex) -> TaskView:
        """Return the task's public configuration, the current round and the published model."""
        view = await _view_task(party, task, retry_after)
        view.rounds = tell_rounds() if tell_rounds is not None else None
        return view

    @router.get(
        "/relay",
        response_class=Response,
        responses={
            200: describe_binary("server 1's signed relay key; see docs/reference/protocol.md, section 13.5"),
            **problem_responses(UnknownTaskError, TaskSucceededError, RelayUnavailableError, PeerUnavailableError),
        },
    )
    async def relay(task: TaskHex) -> Response:
        """Return the announcement of server 1's relay key; its signature is checked with the task's relay_key."""
        check_task(party, task)
        if ask_relay_key is None:
            raise RelayUnavailableError("this task is not relayed; connect to both servers")
        return Response(await ask_relay_key(), media_type=BINARY)

    async def find(task: str, wanted: WantedCopy) -> tuple[Body, dict[str, str]]:
        check_task(party, task)
        copies.forget_all_but(await _check_kept(party, wanted))
        body = await copies.get(wanted)
        return body, {"secemb-model-digest": body.model_digest.hex()}

    @router.get(
        "/dense/{version}",
        response_class=Response,
        responses=_described("float32 numbers", *_OF_VERSIONS, names=["secemb-model-digest"]),
    )
    async def dense(task: TaskHex, version: Version, asked: Asked) -> Response:
        """Return the dense parameters of a published version, little-endian float32."""
        body, headers = await find(task, WantedCopy(version=version, format=None))
        return conditional(body, asked, headers)

    @router.get(
        "/table/{version}",
        response_class=Response,
        responses=_described("encoded rows", *_OF_VERSIONS, names=["secemb-model-digest", "secemb-copy-sha256"]),
    )
    async def table(
        task: TaskHex, version: Version, format: TableFormat, asked: Asked, since: Since = None
    ) -> Response:
        """Return the item table of a published version, or its difference from an earlier one."""
        body, headers = await find(task, WantedCopy(version=version, format=format, since=since))
        if since is not None:
            headers["secemb-copy-sha256"] = body.whole  # of the full copy that the delta produces
        return conditional(body, asked, headers)

    @router.get("/catalogue", response_class=Response, responses=_described("a CSV file", CatalogueUnavailableError))
    async def catalogue(task: TaskHex, asked: Asked) -> Response:
        """Return the file with the id and the title of each item; its SHA-256 is in the task."""
        check_task(party, task)
        if party.catalogue is None:
            raise CatalogueUnavailableError("this task has no catalogue")
        return conditional(party.catalogue, asked, {})

    return router


def check_task(party: Party, task: str) -> None:
    """Refuse any task but the one that is served here, and that one once it has a successor."""
    check_served(party, task)
    if party.successions.link is not None:
        raise TaskSucceededError("this task has a successor; a device finds it under `successor`")


def check_served(party: Party, task: str) -> None:
    """Refuse any task but the one that is served here."""
    if bytes.fromhex(task) != party.task.task_id:
        raise UnknownTaskError("this server does not serve that task")


async def _view_task(party: Party, task: str, retry_after: RetryAfter | None) -> TaskView:
    check_task(party, task)
    published = await party.ledger.published_version(party.task.task_id)
    if published is None:
        raise UnknownVersionError("no model is published yet; try again later")
    current = await party.ledger.current_round(party.task.task_id)
    seconds = retry_after() if retry_after is not None and current is None else None
    return TaskView(
        task=party.task.encode().decode(),
        round=current.spec.decode() if current is not None else None,
        model_version=published.version,
        model_digest=published.digest.hex(),
        ended=retry_after is not None and current is None and seconds is None,
        paused=party.control.paused,
        retry_after=seconds,
    )


async def _check_kept(party: Party, wanted: WantedCopy) -> list[int]:
    """Refuse a version that is not published or no longer kept; return the versions that are here."""
    published = await party.ledger.published_version(party.task.task_id)
    kept = party.models.versions()
    if published is None or wanted.version > published.version or wanted.version not in kept:
        raise UnknownVersionError("this version is not published or no longer kept; fetch the task again")
    if wanted.since is not None and (wanted.since >= wanted.version or wanted.since not in kept):
        raise DeltaUnavailableError("there is no delta from that version; fetch the full copy, without since")
    return kept
