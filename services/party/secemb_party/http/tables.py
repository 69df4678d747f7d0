"""What a device may copy of published models: the dense part, and the table as docs/protocol.md lays it out.

Both are public and the same for everybody. A copy's ETag is the SHA-256 of its bytes: a device that has one from
either server asks the other whether it is the same by If-None-Match, and gets 304 without a body if it is.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from secemb_party.errors import DeltaUnavailableError, UnknownTaskError, UnknownVersionError
from secemb_party.http.bodies import describe_binary
from secemb_party.http.devices import TaskHex, check_task
from secemb_party.http.problems import problem_responses
from secemb_party.http.ranges import Conditions, RangeError, conditional
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.models import Shape
from secemb_party.party import Party
from secemb_party.table_copies import Body, TableCopies, Wanted
from secemb_shared.messages.table import TableFormat

Version = Annotated[int, Path(ge=0, lt=2**53)]
Since = Annotated[int | None, Query(ge=0, lt=2**53, description="the version of the copy that the device has")]
Asked = Annotated[Conditions, Header()]


_REFUSED = problem_responses(
    UnknownTaskError, UnknownVersionError, DeltaUnavailableError, RangeError, LedgerUnavailableError
)


def _described(what: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: describe_binary(what),
        206: describe_binary(f"a piece of: {what}"),
        304: {"description": "the device has it already"},
        **_REFUSED,
    }


def table_routes(party: Party) -> APIRouter:
    """Return the routes by which devices copy what is public."""
    router = APIRouter(prefix="/v1", tags=["devices"])
    copies = TableCopies(party.models, Shape.of(party.task), party.workers.run)

    async def find(task: str, wanted: Wanted) -> tuple[Body, dict[str, str]]:
        check_task(party, task)
        copies.forget_all_but(await _check_kept(party, wanted))
        body = await copies.get(wanted)
        return body, {"secemb-model-digest": body.model_digest.hex()}

    @router.get("/tasks/{task}/dense/{version}", response_class=Response, responses=_described("float32 numbers"))
    async def dense(task: TaskHex, version: Version, asked: Asked) -> Response:
        """Return the dense parameters of a published version, little-endian float32."""
        body, headers = await find(task, Wanted(version=version, format=None))
        return conditional(body, asked, headers)

    @router.get("/tasks/{task}/table/{version}", response_class=Response, responses=_described("encoded rows"))
    async def table(
        task: TaskHex, version: Version, format: TableFormat, asked: Asked, since: Since = None
    ) -> Response:
        """Return the item table of a published version, or what of it differs from an earlier one."""
        body, headers = await find(task, Wanted(version=version, format=format, since=since))
        if since is not None:
            headers["secemb-copy-sha256"] = body.whole  # of the full copy that the delta leads to
        return conditional(body, asked, headers)

    return router


async def _check_kept(party: Party, wanted: Wanted) -> list[int]:
    """Refuse what is not published or no longer kept; return the versions that are here."""
    published = await party.ledger.published_version(party.task.task_id)
    kept = party.models.versions()
    if published is None or wanted.version > published.version or wanted.version not in kept:
        raise UnknownVersionError("this version is not published, or no longer kept; ask for the task again")
    if wanted.since is not None and (wanted.since >= wanted.version or wanted.since not in kept):
        raise DeltaUnavailableError("there is no delta from that version; fetch the full copy, without since")
    return kept
