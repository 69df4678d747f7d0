"""Request bodies: of exactly the length that the round asks for, or small ones, read within a time limit."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from secemb_shared.errors import LengthError, SecEmbError


class SlowBodyError(SecEmbError):
    """A body did not arrive in time."""


class MediaTypeError(SecEmbError):
    """A body is not what the route takes."""


class RequestInvalidError(SecEmbError):
    """A request is not what the interface describes."""


BINARY = "application/octet-stream"
LARGEST_SMALL_BODY = 4096  # bytes; a wish to join has about 50

Result = TypeVar("Result")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


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
    body = await _in_time(_collect(request, length), seconds)
    if len(body) != length:
        raise LengthError(f"expected exactly {length} bytes, got {'more' if len(body) > length else len(body)}")
    return body


def small_body_route(seconds: float) -> type[APIRoute]:
    """Return the class of routes whose body the framework parses.

    It would read to the end whatever comes, however long and however slowly, before anybody looks at a token.
    """

    class SmallBodyRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            inner = super().get_route_handler()

            async def handle(request: Request) -> Response:
                return await inner(await _with_small_body(request, seconds))

            return handle

    return SmallBodyRoute


async def _with_small_body(request: Request, seconds: float) -> Request:
    """Return the request with its body at hand."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > LARGEST_SMALL_BODY:
        raise LengthError(f"a body has at most {LARGEST_SMALL_BODY} bytes here")
    body = await _in_time(_collect(request, LARGEST_SMALL_BODY), seconds)
    if len(body) > LARGEST_SMALL_BODY:
        raise LengthError(f"a body has at most {LARGEST_SMALL_BODY} bytes here")

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


async def _in_time(reading: Awaitable[Result], seconds: float) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except TimeoutError:
        raise SlowBodyError(f"the body did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise LengthError("the body ended early") from None


async def _collect(request: Request, most: int) -> bytes:
    """Return the body, or its beginning where it is longer than it may be."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            break
    return bytes(body)
