"""Ids, numbers and headers of requests, and their OpenAPI descriptions."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

from fastapi import Path
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from secemb_party.errors import MediaTypeError, RequestInvalidError
from secemb_party.http.security import TICKET, read_header
from secemb_party.tickets import Claim
from secemb_shared.errors import MacError
from secemb_shared.holds import MARK_BYTES
from secemb_shared.messages.canonical import LARGEST_NUMBER

BINARY, JSON = "application/octet-stream", "application/json"
MAC_HEADER = "secemb-proof"

_DIGITS = re.compile(r"[0-9]{1,16}")
_MAC_DIGITS = re.compile(rf"[0-9a-f]{{{2 * MARK_BYTES}}}")
_TICKET_HEADER = TICKET.model.name.encode()
_LONGEST_TICKET = 128

Message = TypeVar("Message", bound=BaseModel)
_ID_DIGITS = {"task": 64, "round": 64, "session": 32}
TaskHex = Annotated[str, Path(pattern=f"^[0-9a-f]{{{_ID_DIGITS['task']}}}$")]
RoundHex = Annotated[str, Path(pattern=f"^[0-9a-f]{{{_ID_DIGITS['round']}}}$")]
SessionHex = Annotated[str, Path(pattern=f"^[0-9a-f]{{{_ID_DIGITS['session']}}}$")]
_IDS = {name: re.compile(f"[0-9a-f]{{{digits}}}") for name, digits in _ID_DIGITS.items()}


class DeviceRoute(APIRoute):
    """A route that every device calls in every round; its endpoint takes the ids in the path and the request.

    FastAPI describes it like any other route. FastAPI's own handler would spend time on parameters, dependencies and a
    response model at each request, although there are none (docs/adr/0017).
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Validate the ids and call the endpoint."""
        if scope["method"] not in (self.methods or ()) or self.dependencies:
            await super().handle(scope, receive, send)
            return
        ids = scope["path_params"]
        for name, digits in ids.items():
            if not _IDS[name].fullmatch(digits):
                raise RequestInvalidError("an id in the path is malformed")
        response: Response = await self.endpoint(request=Request(scope, receive, send), **ids)
        await response(scope, receive, send)


def read_number(text: str) -> int | None:
    """Return the number in a text, or None if it is not one: `int` alone accepts ` +1_0` and `٣` as well."""
    number = int(text) if _DIGITS.fullmatch(text) else LARGEST_NUMBER + 1
    return number if number <= LARGEST_NUMBER else None


def _checked(text: object) -> int:
    number = read_number(text) if isinstance(text, str) else None
    if number is None:
        raise ValueError("expected a whole number in digits, at most 9007199254740991")
    return number


Number = Annotated[int, Field(ge=0, le=LARGEST_NUMBER), BeforeValidator(_checked)]


def _one_line(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ValueError("expected one line of text")
    return text.strip()


Reason = Annotated[str, Field(max_length=500), AfterValidator(_one_line)]


def read_claim(request: Request, round_: str, session: str) -> Claim:
    """Return the session that a request is about, and the ticket in its header."""
    ticket = read_header(request, _TICKET_HEADER)
    if not 0 < len(ticket) <= _LONGEST_TICKET:
        raise RequestInvalidError("the ticket is missing or too long; send the one that join returned")
    return Claim(bytes.fromhex(round_), bytes.fromhex(session), ticket)


def read_mac(request: Request) -> bytes:
    """Return the upload MAC in a request's header."""
    digits = read_header(request, MAC_HEADER.encode())
    if not _MAC_DIGITS.fullmatch(digits):
        raise MacError(f"send the MAC of this upload in the {MAC_HEADER} header; see docs/reference/protocol.md")
    return bytes.fromhex(digits)


def require_media_type(request: Request, wanted: str) -> None:
    """Refuse a body that has the wrong media type or is compressed."""
    if read_header(request, b"content-type").split(";")[0].strip().lower() != wanted:
        raise MediaTypeError(f"send the body as {wanted}")
    if read_header(request, b"content-encoding", "identity").strip().lower() != "identity":
        raise MediaTypeError("send the body uncompressed, without Content-Encoding")


def parse_message(kind: type[Message], body: bytes) -> Message:
    """Return the message in a body."""
    try:
        return kind.model_validate_json(body)
    except ValidationError:
        raise RequestInvalidError("the body does not match the schema; see /openapi.json") from None


def describe_binary(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of a binary body."""
    return {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}, "description": description}


@cache
def describe_json(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a message."""
    schema = kind.model_json_schema()
    return {"content": {JSON: {"schema": _inlined(schema, schema.pop("$defs", {}))}}}


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without references: pydantic's are relative to the schema, OpenAPI's to the document."""
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(one, definitions) for name, one in part.items()}


def describe_mac() -> dict[str, Any]:
    """Return the OpenAPI description of the header that carries an upload MAC."""
    return {
        "name": MAC_HEADER,
        "in": "header",
        "required": True,
        "schema": {"type": "string", "pattern": f"^{_MAC_DIGITS.pattern}$"},
        "description": "The MAC proves that the upload is from the device that generated the keys;"
        " see docs/reference/protocol.md, section 13.2.",
    }
