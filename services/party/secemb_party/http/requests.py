"""What arrives from outside: whole numbers, and bodies of a known length, read within a time limit."""

import asyncio
import re
from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.types import Receive

from secemb_shared.errors import LengthError, SecEmbError
from secemb_shared.messages.canonical import LARGEST_NUMBER

_DIGITS = re.compile(r"[0-9]{1,16}")


def read_number(text: str) -> int | None:
    """Return the number that a text is, or None where it is none: `int` alone reads ` +1_0` and `٣` as well."""
    number = int(text) if _DIGITS.fullmatch(text) else LARGEST_NUMBER + 1
    return number if number <= LARGEST_NUMBER else None


def _checked(text: object) -> int:
    number = read_number(text) if isinstance(text, str) else None
    if number is None:
        raise ValueError("a whole number is written in digits, and is not larger than 9007199254740991")
    return number


Number = Annotated[int, Field(ge=0, le=LARGEST_NUMBER), BeforeValidator(_checked)]


class SlowBodyError(SecEmbError):
    """A body did not arrive in time."""


class MediaTypeError(SecEmbError):
    """A body is not what the route takes."""


class RequestInvalidError(SecEmbError):
    """A request is not what the interface describes."""


BINARY, JSON = "application/octet-stream", "application/json"
LARGEST_SMALL_BODY = 4096  # bytes; a wish to join has about 50

Result = TypeVar("Result")
Message = TypeVar("Message", bound=BaseModel)


class WithBody(Protocol):
    """A request, as the framework has it or by hand."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, by their names in small letters."""

    @property
    def receive(self) -> Receive:
        """Return how to get the next piece."""


def describe_binary(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of a binary body."""
    return {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}, "description": description}


def describe_json(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a message."""
    return {"content": {JSON: {"schema": kind.model_json_schema()}}}


def media_type(request: WithBody) -> str:
    """Return what a body is said to be, without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip()


def parse_message(kind: type[Message], body: bytes) -> Message:
    """Return the message that a body holds."""
    try:
        return kind.model_validate_json(body)
    except ValidationError:
        raise RequestInvalidError("the body is not what the interface describes") from None


async def read_exactly(request: WithBody, length: int, seconds: float) -> bytes:
    """Return a body of `length` bytes; refuse another announced length before a byte is read."""
    if media_type(request) != BINARY:
        raise MediaTypeError(f"send the message as {BINARY}")
    announced = request.headers.get("content-length")
    if announced is not None and announced != str(length):
        raise LengthError(f"expected exactly {length} bytes, the header announces another length")
    body = await _in_time(_collect(request, length), seconds)
    if len(body) != length:
        raise LengthError(f"expected exactly {length} bytes, got {'more' if len(body) > length else len(body)}")
    return body


async def read_small(request: WithBody, seconds: float, *, most: int = LARGEST_SMALL_BODY) -> bytes:
    """Return a body of a few words; anything longer or slower is refused, and no more of it is read."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > most:
        raise LengthError(f"a body has at most {most} bytes here")
    body = await _in_time(_collect(request, most), seconds)
    if len(body) > most:
        raise LengthError(f"a body has at most {most} bytes here")
    return body


async def _in_time(reading: Awaitable[Result], seconds: float) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except TimeoutError:
        raise SlowBodyError(f"the body did not arrive within {seconds:g} seconds") from None


async def _collect(request: WithBody, most: int) -> bytes:
    """Return the body, or its beginning where it is longer than it may be."""
    pieces, length = [], 0
    while length <= most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise LengthError("the body ended early")
        pieces.append(message.get("body", b""))
        length += len(pieces[-1])
        if not message.get("more_body"):
            break
    return b"".join(pieces)
