"""The enrolment API, for an app's backend: it creates, lists, replaces and revokes the tokens of devices.

Names of devices are sent in bodies and never in URLs, which proxies log.
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
from secemb_party.http.requests import JSON, describe_json, parse_message, require_media_type
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
    """A device to enrol."""

    name: Name
    sha256: Hash | None = None


class CreateRequest(_Message):
    """Devices to enrol."""

    devices: Annotated[list[DeviceRequest], Field(min_length=1, max_length=MOST)]
    valid_seconds: Seconds | None = None  # None: until revoked


class ReplaceRequest(DeviceRequest):
    """A device that needs its next token."""

    valid_seconds: Seconds | None = None
    overlap_seconds: Seconds = OVERLAP_SECONDS  # that the old token is still valid


class NamesRequest(_Message):
    """A list of devices."""

    names: Annotated[list[Name], Field(min_length=1, max_length=MOST)]


class ListRequest(_Message):
    """The devices to list: by name, or those that follow a listed token in order."""

    names: Annotated[list[Name], Field(max_length=MOST)] | None = None
    after_name: Annotated[str, Field(max_length=100)] = ""
    after_generation: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST)] = 100


class EnrolledView(BaseModel):
    """The outcome for a device; contains the token, once, if the server generated it in this call."""

    name: str
    outcome: Added
    token: str | None


class TokenView(BaseModel):
    """Information about a token."""

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
    """Number of devices whose tokens were revoked by this call."""

    revoked: int


class Suspended(BaseModel):
    """Number of devices suspended by this call."""

    suspended: int


class Resumed(BaseModel):
    """Number of devices resumed by this call."""

    resumed: int


Kind = TypeVar("Kind", bound=_Message)


def _body(kind: type[Kind], patience: Patience) -> Callable[[Request], Any]:
    """Return a dependency that reads a message after checking the caller's token."""

    async def read(request: Request) -> Kind:
        require_media_type(request, JSON)
        return parse_message(kind, await read_small(request, patience, most=_MOST_BYTES))

    return read


def _describe(kind: type[_Message]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **describe_json(kind)}}


def enrolment_routes(party: Party, operators: Operators, *, patience: Patience) -> APIRouter:
    """Return the routes for enrolling devices with a token of the role enrol or admin."""
    router = operator_router(party, operators, OperatorRole.ENROL)
    enrolment = Enrolment(party.ledger, party.clock)
    creation, replacement = _body(CreateRequest, patience), _body(ReplaceRequest, patience)
    names, listing = _body(NamesRequest, patience), _body(ListRequest, patience)

    def until(seconds: int | None) -> float | None:
        return None if seconds is None else party.clock() + seconds

    @router.post("/tokens", responses=_REFUSED, openapi_extra=_describe(CreateRequest))
    async def create(order: OrderOf, asked: Annotated[CreateRequest, Depends(creation)]) -> list[EnrolledView]:
        """Create the first token of each device. Devices that have a token keep it, so the call can be repeated."""
        wanted = [_wanted(one, until(asked.valid_seconds)) for one in asked.devices]
        return [EnrolledView.model_validate(one, from_attributes=True) for one in await enrolment.create(wanted, order)]

    @router.post(
        "/tokens/replace",
        responses={**_REFUSED, **problem_responses(UnknownTokenError)},
        openapi_extra=_describe(ReplaceRequest),
    )
    async def replace(order: OrderOf, asked: Annotated[ReplaceRequest, Depends(replacement)]) -> EnrolledView:
        """Create a device's next token. The old one stays valid for a while. With `sha256`, calls can be repeated."""
        wanted = _wanted(asked, until(asked.valid_seconds))
        made = await enrolment.replace(wanted, order, overlap=asked.overlap_seconds)
        return EnrolledView.model_validate(made, from_attributes=True)

    @router.post("/tokens/revoke", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def revoke(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Revoked:
        """Permanently revoke all tokens of devices. Sessions that have joined a round stay in it."""
        return Revoked(revoked=await enrolment.revoke(asked.names, order))

    @router.post("/tokens/suspend", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def suspend(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Suspended:
        """Suspend devices: they can neither join nor read until resumed. Sessions that have joined stay."""
        return Suspended(suspended=await enrolment.suspend(asked.names, order))

    @router.post("/tokens/resume", responses=_REFUSED, openapi_extra=_describe(NamesRequest))
    async def resume(order: OrderOf, asked: Annotated[NamesRequest, Depends(names)]) -> Resumed:
        """Resume suspended devices."""
        return Resumed(resumed=await enrolment.resume(asked.names, order))

    @router.post("/tokens/list", responses=_REFUSED, openapi_extra=_describe(ListRequest))
    async def list_(asked: Annotated[ListRequest, Depends(listing)]) -> list[TokenView]:
        """List tokens in the order of device names. A device whose token was replaced has several."""
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
