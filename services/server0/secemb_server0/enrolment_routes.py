"""The enrolment API, for an app's backend: it creates, lists, replaces and revokes the tokens of devices.

Names of devices travel in bodies and never in addresses, which proxies log.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from secemb_party.errors import (
    LedgerUnavailableError,
    MediaTypeError,
    RequestInvalidError,
    SlowBodyError,
    TokenConflictError,
    UnknownTokenError,
)
from secemb_party.http.operator_routes import OrderOf, operator_router
from secemb_party.http.problems import problem_responses
from secemb_party.http.request_body import Patience, read_small
from secemb_party.http.requests import JSON, describe_json, media_type, parse_message
from secemb_party.ledger import Added, Token, TokenState
from secemb_party.operators import OperatorRole, Operators
from secemb_party.service import Party
from secemb_server0.enrolment import OVERLAP_SECONDS, Enrolment, WantedToken
from secemb_shared.errors import LengthError

MOST = 1000  # devices in one call
_MOST_BYTES = 1 << 20
_LONGEST_LIFE = 10 * 365 * 86_400
_REFUSED = problem_responses(
    RequestInvalidError, LengthError, SlowBodyError, MediaTypeError, LedgerUnavailableError, TokenConflictError
)


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("expected printable characters, without spaces at either end")
    return name


Name = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of a token that the caller generated")]
Seconds = Annotated[int, Field(ge=0, le=_LONGEST_LIFE)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeviceRequest(_Message):
    """A device that is to have a token."""

    name: Name
    sha256: Hash | None = None


class CreateRequest(_Message):
    """Devices that are to have their first tokens."""

    devices: Annotated[list[DeviceRequest], Field(min_length=1, max_length=MOST)]
    valid_seconds: Seconds | None = None  # None: until revoked


class ReplaceRequest(DeviceRequest):
    """A device that is to have its next token."""

    valid_seconds: Seconds | None = None
    overlap_seconds: Seconds = OVERLAP_SECONDS  # that the old token is still valid


class NamesRequest(_Message):
    """Some devices."""

    names: Annotated[list[Name], Field(min_length=1, max_length=MOST)]


class ListRequest(_Message):
    """The devices to list: some by their names, or those behind a token that was listed before, in order."""

    names: Annotated[list[Name], Field(max_length=MOST)] | None = None
    after_name: Annotated[str, Field(max_length=100)] = ""
    after_generation: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST)] = 100


class EnrolledView(BaseModel):
    """What became of a device's token; the token itself is here once, if the server has drawn it now."""

    name: str
    outcome: Added
    token: str | None


class TokenView(BaseModel):
    """What is known about a token."""

    name: str
    generation: int
    state: TokenState
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    hash: str  # the first digits of the token's SHA-256
    joined: int  # sessions of the device, with any of its tokens
    completed: int  # of them, part of a sum
    refused: int  # messages that did not fit their round
    rejected: int  # sessions that failed a check between the servers
    problem: str | None  # the last refusal or rejection
    problem_at: float | None
    suspended_at: float | None


class Revoked(BaseModel):
    """How many devices had an open token that was revoked now."""

    revoked: int


class Suspended(BaseModel):
    """How many devices were suspended now."""

    suspended: int


class Resumed(BaseModel):
    """How many devices were suspended and may take part again."""

    resumed: int


Kind = TypeVar("Kind", bound=_Message)


def _body(kind: type[Kind], patience: Patience) -> Callable[[Request], Any]:
    """Return a dependency that reads a message, after the caller's token was checked."""

    async def read(request: Request) -> Kind:
        if media_type(request) != JSON:
            raise MediaTypeError(f"send the message as {JSON}")
        return parse_message(kind, await read_small(request, patience, most=_MOST_BYTES))

    return read


def _describe(kind: type[_Message]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **describe_json(kind)}}


def enrolment_routes(party: Party, operators: Operators, *, patience: Patience) -> APIRouter:
    """Return the routes by which tokens with the role enrol, or admin, enrol devices."""
    router = operator_router(party, operators, OperatorRole.ENROL)
    enrolment = Enrolment(party.ledger, party.clock)
    creation, replacement = _body(CreateRequest, patience), _body(ReplaceRequest, patience)
    names, listing = _body(NamesRequest, patience), _body(ListRequest, patience)

    def until(seconds: int | None) -> float | None:
        return None if seconds is None else party.clock() + seconds

    @router.post("/tokens", responses=_REFUSED, openapi_extra=_describe(CreateRequest))
    async def create(order: OrderOf, asked: Annotated[CreateRequest, Depends(creation)]) -> list[EnrolledView]:
        """Create the first token of each device; one that has a token keeps it, so that a call can be repeated."""
        wanted = [_wanted(one, until(asked.valid_seconds)) for one in asked.devices]
        return [EnrolledView.model_validate(one, from_attributes=True) for one in await enrolment.create(wanted, order)]

    @router.post(
        "/tokens/replace",
        responses={**_REFUSED, **problem_responses(UnknownTokenError)},
        openapi_extra=_describe(ReplaceRequest),
    )
    async def replace(order: OrderOf, asked: Annotated[ReplaceRequest, Depends(replacement)]) -> EnrolledView:
        """Create a device's next token; the old one stays valid for a while. With `sha256` a call can be repeated."""
        wanted = _wanted(asked, until(asked.valid_seconds))
        made = await enrolment.replace(wanted, order, overlap=asked.overlap_seconds)
        return EnrolledView.model_validate(made, from_attributes=True)

    @router.post("/tokens/revoke", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def revoke(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Revoked:
        """Revoke all tokens of devices, for good; a session that has joined a round stays in it."""
        return Revoked(revoked=await enrolment.revoke(asked.names, order))

    @router.post("/tokens/suspend", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def suspend(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Suspended:
        """Let devices neither join nor read until they are resumed; a session that has joined a round stays in it."""
        return Suspended(suspended=await enrolment.suspend(asked.names, order))

    @router.post("/tokens/resume", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def resume(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Resumed:
        """Let suspended devices take part again."""
        return Resumed(resumed=await enrolment.resume(asked.names, order))

    @router.post("/tokens/list", responses=_REFUSED, openapi_extra=_describe(ListRequest))
    async def list_(asked: Annotated[ListRequest, Depends(listing)]) -> list[TokenView]:
        """List tokens, in the order of names; a device that was given a next token has several."""
        if asked.names is not None:
            found = await enrolment.find(asked.names)
        else:
            found = await party.ledger.tokens(after=(asked.after_name, asked.after_generation), limit=asked.limit)
        return [_view(one, party.clock()) for one in found]

    return router


def _wanted(asked: DeviceRequest, expires_at: float | None) -> WantedToken:
    return WantedToken(asked.name, None if asked.sha256 is None else bytes.fromhex(asked.sha256), expires_at)


def _view(one: Token, now: float) -> TokenView:
    return TokenView(
        name=one.name,
        generation=one.generation,
        state=one.state(now),
        created_at=one.created_at,
        expires_at=one.expires_at,
        revoked_at=one.revoked_at,
        hash=one.token_hash.hex()[:16],
        joined=one.conduct.joined,
        completed=one.conduct.completed,
        refused=one.conduct.refused,
        rejected=one.conduct.rejected,
        problem=one.conduct.problem,
        problem_at=one.conduct.problem_at,
        suspended_at=one.conduct.suspended_at,
    )
