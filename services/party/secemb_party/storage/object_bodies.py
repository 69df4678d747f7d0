"""The bodies of sessions as objects, outside the ledger's database: `bodies/<round>/<session>.<part>.<digest>`.

The digest in the name makes an upload repeatable: the same name always has the same bytes. A body that the ledger then
refuses is removed with its round.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection

from secemb_party.errors import NotRecordedError
from secemb_party.evaluation import SessionBodies
from secemb_party.storage.interfaces import KEYS, UPDATE, BodyNames, Step
from secemb_party.storage.objects import Objects

_FOLDER = "bodies"


class ObjectBodies:
    """Bodies of sessions as objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
        """Store a body; nothing is left for the transaction to do."""
        await asyncio.to_thread(self._objects.replace, _name(round_id, session_id, part, digest), body)
        return _nothing

    async def read(self, round_id: bytes, names: Sequence[BodyNames]) -> list[SessionBodies]:
        """Return these bodies in this order, each with the digest that the ledger has recorded."""
        return await asyncio.gather(*(asyncio.to_thread(partial(self._both, round_id, one)) for one in names))

    async def rounds(self) -> list[bytes]:
        """Return the rounds that have bodies, as far as the listing shows; the next call shows the others."""
        return [bytes.fromhex(name) for name in await asyncio.to_thread(self._objects.folders, _FOLDER)]

    async def drop(self, round_id: bytes) -> int:
        """Remove the bodies of a round."""
        names = await asyncio.to_thread(self._objects.names, f"{_FOLDER}/{round_id.hex()}")
        await asyncio.to_thread(self._objects.remove, names)
        return len(names)

    def _both(self, round_id: bytes, one: BodyNames) -> SessionBodies:
        keys = self._body(_name(round_id, one.session_id, KEYS, one.keys), one.keys)
        return SessionBodies(
            one.session_id, keys, self._body(_name(round_id, one.session_id, UPDATE, one.update), one.update)
        )

    def _body(self, name: str, digest: bytes) -> bytes:
        body = self._objects.read(name)
        if body is None:
            raise NotRecordedError("the message bodies of a session on the list have been deleted")
        if hashlib.sha256(body).digest() != digest:
            raise NotRecordedError("a message body of a session on the list is corrupted; restore it from a backup")
        return body


def _name(round_id: bytes, session_id: bytes, part: str, digest: bytes) -> str:
    return f"{_FOLDER}/{round_id.hex()}/{session_id.hex()}.{part}.{digest.hex()}"


def _nothing(_: Connection) -> None:
    """Do nothing: the body is already stored."""
