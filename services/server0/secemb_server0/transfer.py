"""Large bodies between the servers: shares and models, in pieces, each of which is checked and can be repeated.

Nothing larger than a piece is in memory. A transfer that was cut goes on where it ended, also after a restart.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import httpx

from secemb_party.errors import PeerRefusedError
from secemb_party.peer_messages import Published, Reception, StoredShare
from secemb_party.storage import Blob, sha256_of
from secemb_party.storage.blob import PIECE
from secemb_party.storage.transit import PIECE_DIGEST, Incoming

BINARY = {"content-type": "application/octet-stream"}


class Call(Protocol):
    """A call to server 1; `route` is its name in the metrics."""

    def __call__(self, method: str, path: str, *, route: str, **request: Any) -> Awaitable[httpx.Response]:
        """Return the answer, or raise if server 1 refuses or cannot be reached."""


Finish = Callable[[Published], Awaitable[Reception]]  # uses a model once all of it has arrived


async def download(call: Call, path: str, share: StoredShare, incoming: Incoming) -> Blob:
    """Fetch a share in pieces, from the first byte that is not here."""
    while (there := await asyncio.to_thread(incoming.received, share.digest)) < share.size:
        answer = await call("GET", f"{path}/{there}", route="share-piece")
        piece, told = answer.content, answer.headers.get(PIECE_DIGEST, "")
        if not 0 < len(piece) <= min(PIECE, share.size - there):
            raise PeerRefusedError("server 1 sent a piece of the wrong length; check that both run the same version")
        await asyncio.to_thread(incoming.append, share.digest, there, piece, told)
    return await asyncio.to_thread(_checked, share, incoming)


def _checked(share: StoredShare, incoming: Incoming) -> Blob:
    """Return the share. Its file loses its name, so that the space is free again when the share is not needed."""
    found = incoming.open(share.digest)
    intact = found.size == share.size and sha256_of(found).hex() == share.digest
    incoming.clear()
    if not intact:
        raise PeerRefusedError("server 1's share was damaged in transit; it is fetched again")
    return found


async def upload(call: Call, body: Blob, published: Published, finish: Finish) -> bytes:
    """Send the bytes that server 1 does not have yet, and return the digest of what it has published then."""
    receipt = await finish(published)
    there = receipt.received
    while receipt.digest is None:
        if there >= body.size:
            raise PeerRefusedError("server 1 has all of the model and has not published it")
        piece = await asyncio.to_thread(body.read, there, PIECE)
        headers: Mapping[str, str] = BINARY | {PIECE_DIGEST: await asyncio.to_thread(_sha256, piece)}
        path = f"/peer/v1/models/{published.digest_hex}/{there}"
        answer = await call("PUT", path, route="model-piece", content=piece, headers=headers)
        there = read_reception(answer).received
        if there >= body.size:
            receipt = await finish(published)
            there = receipt.received
    return bytes.fromhex(receipt.digest)


def read_reception(answer: httpx.Response) -> Reception:
    """Return the receipt in an answer."""
    try:
        return Reception.model_validate_json(answer.content)
    except ValueError:
        raise PeerRefusedError(
            "cannot parse server 1's response; check that both servers run the same version"
        ) from None


def _sha256(piece: bytes) -> str:
    return hashlib.sha256(piece).hexdigest()
