"""Request bodies of exactly the length that the round asks for, read within a time limit."""

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from secemb_shared.errors import LengthError, SecEmbError


class SlowBodyError(SecEmbError):
    """A body did not arrive in time."""


class MediaTypeError(SecEmbError):
    """A body is not what the route takes."""


class RequestInvalidError(SecEmbError):
    """A request is not what the interface describes."""


BINARY = "application/octet-stream"


def describe_binary(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of a binary body."""
    return {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}, "description": description}


async def read_exactly(request: Request, length: int, seconds: float) -> bytes:
    """Return a body of `length` bytes; refuse another announced length before a byte is read."""
    if request.headers.get("content-type", "").split(";")[0].strip() != BINARY:
        raise MediaTypeError(f"send the message as {BINARY}")
    announced = request.headers.get("content-length")
    if announced is not None and announced != str(length):
        raise LengthError(f"expected exactly {length} bytes, the header announces another length")
    try:
        async with asyncio.timeout(seconds):
            return await _collect(request, length)
    except TimeoutError:
        raise SlowBodyError(f"the body did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise LengthError("the body ended early") from None


async def _collect(request: Request, length: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > length:
            raise LengthError(f"expected exactly {length} bytes, got more")
    if len(body) != length:
        raise LengthError(f"expected exactly {length} bytes, got {len(body)}")
    return bytes(body)
