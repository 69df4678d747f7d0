"""Routes about a task's successor: the link that devices follow, and the operator's agreement."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from secemb_party.errors import LedgerUnavailableError, MediaTypeError, RequestInvalidError, SlowBodyError
from secemb_party.http.operator_routes import OrderOf, operator_router
from secemb_party.http.problems import problem_responses
from secemb_party.http.request_body import Patience, read_small
from secemb_party.http.requests import (
    BINARY,
    JSON,
    TaskHex,
    describe_binary,
    describe_json,
    parse_message,
    require_media_type,
)
from secemb_party.http.task_routes import check_served
from secemb_party.operators import Operators
from secemb_party.service import Party
from secemb_party.succession.errors import NoSuccessorError, SuccessionRefusedError
from secemb_shared.catalogue import LARGEST
from secemb_shared.errors import LengthError
from secemb_shared.messages.succession import CONTINUED
from secemb_shared.row_map import SEEDED

_MOST_BYTES = 2 * LARGEST + (1 << 20)  # JSON may need two bytes for one
_PATIENCE = Patience(seconds=120.0, rate=0.0)
_REFUSED = problem_responses(
    SuccessionRefusedError,
    LedgerUnavailableError,
    LengthError,
    RequestInvalidError,
    SlowBodyError,
    MediaTypeError,
)


class SuccessorView(BaseModel):
    """The link from a task to its successor; devices compare those of both servers."""

    predecessor: str  # canonical form
    task: str  # of the successor
    succession: str  # the signed document
    signatures: list[str]  # of server 0 and server 1


class AgreementRequest(BaseModel):
    """The successor that the operator agrees to."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(max_length=1 << 16)  # the content of task.json
    catalogue: str | None = None  # the content of catalogue.csv, if the task has one
    start: str = SEEDED  # of new rows
    budget: str = CONTINUED


class AgreementView(BaseModel):
    """What this server's operator has agreed to, and whether the switch has happened."""

    successor: str | None
    items: int | None
    kept: int | None  # rows
    new: int | None
    retired: int | None
    start: str | None
    budget: str | None
    agreement: str | None  # the servers switch once both have the same
    switched: bool


def succession_routes(party: Party) -> APIRouter:
    """Return the routes by which devices follow a task to its successor."""
    router = APIRouter(prefix="/v1/tasks/{task}/successor", tags=["devices"])

    @router.get("", responses=problem_responses(NoSuccessorError))
    async def successor(task: TaskHex) -> SuccessorView:
        """Return the link to the task's successor, signed by both servers."""
        check_served(party, task)
        link = party.successions.link
        if link is None:
            raise NoSuccessorError("this task has no successor on this server")
        return SuccessorView(predecessor=party.task.encode().decode(), **link.as_json())

    @router.get(
        "/rows",
        response_class=Response,
        responses={200: describe_binary("the row map"), **problem_responses(NoSuccessorError)},
    )
    async def rows(task: TaskHex) -> Response:
        """Return the map of the successor's rows; its digest is in the link."""
        check_served(party, task)
        return Response(await party.successions.row_map(), media_type=BINARY)

    return router


def agreement_routes(party: Party, operators: Operators) -> APIRouter:
    """Return the routes by which an operator agrees to a successor, or withdraws the agreement."""
    router = operator_router(party, operators)
    described: dict[str, Any] = {"requestBody": {"required": True, **describe_json(AgreementRequest)}}

    @router.get("/successor")
    async def agreed() -> AgreementView:
        """Return what the operator of this server has agreed to."""
        return _view(party)

    @router.post("/successor", responses=_REFUSED, openapi_extra=described)
    async def agree(request: Request, order: OrderOf) -> AgreementView:
        """Check a successor and agree to it: the servers switch between two rounds, once both have agreed to it."""
        require_media_type(request, JSON)
        given = parse_message(AgreementRequest, await read_small(request, _PATIENCE, most=_MOST_BYTES))
        catalogue = given.catalogue.encode() if given.catalogue is not None else None
        await party.successions.agree(given.task.encode(), catalogue, start=given.start, budget=given.budget)
        named = _view(party).model_dump(include={"successor", "kept", "new", "retired"})
        await party.ledger.record_action(order, "agree to successor", named, party.clock())
        return _view(party)

    @router.delete("/successor", responses=_REFUSED)
    async def withdraw(order: OrderOf) -> AgreementView:
        """Withdraw the agreement, if the servers have not switched yet."""
        await party.successions.withdraw()
        await party.ledger.record_action(order, "withdraw successor", {}, party.clock())
        return _view(party)

    return router


def _view(party: Party) -> AgreementView:
    agreed, link = party.successions.agreed, party.successions.link
    rows = agreed.rows if agreed is not None else None
    return AgreementView(
        successor=agreed.task.task_id.hex() if agreed is not None else None,
        items=len(rows) if rows is not None else None,
        kept=rows.kept.size if rows is not None else None,
        new=len(rows) - rows.kept.size if rows is not None else None,
        retired=rows.retired if rows is not None else None,
        start=agreed.start if agreed is not None else None,
        budget=agreed.budget if agreed is not None else None,
        agreement=agreed.digest if agreed is not None else None,
        switched=link is not None,
    )
