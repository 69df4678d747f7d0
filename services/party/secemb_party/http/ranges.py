"""Responses that a device may cache, revalidate and fetch in parts (RFC 9110: ETag, If-None-Match, Range).

An ETag is the SHA-256 of the whole body in quotes, so it is the same on both servers. Requests for several ranges, or
for anything but a range of bytes, are ignored, as the RFC allows: the answer is the whole body.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping

from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from secemb_party.errors import RangeError
from secemb_party.http.requests import BINARY
from secemb_party.storage.copies import Body

_CHUNK = 2**18
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Conditions(BaseModel):
    """The request headers for revalidation and ranges."""

    if_none_match: str | None = None
    if_range: str | None = None
    range: str | None = None


def conditional(body: Body, conditions: Conditions, headers: Mapping[str, str]) -> Response:
    """Return 304 if the device has this body, otherwise the whole body or the requested range."""
    etag = f'"{body.sha256}"'
    common = {"etag": etag, "accept-ranges": "bytes", "cache-control": "public, immutable, max-age=86400", **headers}
    if _has(conditions.if_none_match, etag):
        return Response(status_code=304, headers=common)
    piece = _piece(conditions.range, body.size) if conditions.if_range in (None, etag) else None
    first, last = piece or (0, body.size)
    common["content-length"] = str(last - first)
    if piece is not None:
        common["content-range"] = f"bytes {first}-{last - 1}/{body.size}"
    status = 200 if piece is None else 206
    return StreamingResponse(_chunks(body, first, last), status, common, BINARY)


def _has(if_none_match: str | None, etag: str) -> bool:
    """Return whether one of the tags matches; a weak tag for the same body is accepted."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or tags == ["*"]


def _piece(range_: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last, or None for the whole body."""
    found = _RANGE.fullmatch(range_ or "")
    if found is None or found[1] == found[2] == "":
        return None
    if not found[1]:
        first, last = max(0, size - int(found[2])), size
    else:
        first, last = int(found[1]), min(int(found[2] or size) + 1, size)
        if found[2] and int(found[2]) < first:
            return None  # not a range
    if first >= last:
        raise RangeError(size)
    return first, last


async def _chunks(body: Body, first: int, last: int) -> AsyncIterator[bytes]:
    """Yield a part in chunks; a thread reads each chunk while the previous one is being sent."""
    for start in range(first, last, _CHUNK):
        yield await asyncio.to_thread(body.read, start, min(_CHUNK, last - start))
