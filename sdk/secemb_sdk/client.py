"""A device as an app uses it: on an event loop, or blocking. Both are thin; the steps are the same.

async with Device.open(home=folder, servers=(url0, url1), task=task_id, token=token) as device:
    device.log(item=318, rating=5.0)
    outcome = await device.contribute()
    best = await device.recommend(k=10)
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

from secemb_sdk.advising import rank_candidates, recommend_items
from secemb_sdk.detections import Detection
from secemb_sdk.driving import AsyncTransport, BlockingTransport, drive_async, drive_blocking
from secemb_sdk.opening import Opening
from secemb_sdk.outcome import Outcome
from secemb_sdk.participation import contribute
from secemb_sdk.parts import Parts
from secemb_sdk.ranking import Scored, TableFormat
from secemb_sdk.receipts import Receipt


class Owned:
    """What the owner of a device may do without a network."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of task {self._parts.task_id.hex()[:8]}>"

    def log(self, *, item: int, rating: float) -> None:
        """Remember what the owner thinks of an item; it is on disk on return. The last rating of an item counts."""
        self._parts.vault.log([(item, rating)])

    def log_many(self, ratings: Mapping[int, float]) -> None:
        """Remember several ratings in one write."""
        self._parts.vault.log(ratings.items())

    def receipts(self) -> list[Receipt]:
        """Return what was sent in each round, oldest first."""
        return self._parts.vault.receipts()

    def detections(self) -> list[Detection]:
        """Return what this device has noticed of servers that do not keep to the protocol, by kind."""
        return [one for _, one in sorted(self._parts.vault.detections().items())]

    def forget(self, *, receipts: bool = False) -> None:
        """Erase ratings, the private part and the session under way; with `receipts` those and the detections too."""
        self._parts.vault.forget(receipts=receipts)

    def export(self) -> dict[str, Any]:
        """Return everything that is known about the owner, as data that `json.dumps` takes."""
        return self._parts.vault.export()


class Device(Owned):
    """A device on an event loop. Make one with `async with Device.open(…)` or `with Device.open_blocking(…)`."""

    open: ClassVar[type["AsyncOpening"]]
    open_blocking: ClassVar[type["BlockingOpening"]]

    def __init__(self, parts: Parts, transport: AsyncTransport) -> None:
        super().__init__(parts)
        self._transport = transport
        self._contributing, self._advising = asyncio.Lock(), asyncio.Lock()

    async def contribute(self) -> Outcome:
        """Take part in one round, or go on with one that was cut short; return what became of it."""
        async with self._contributing:
            return await drive_async(contribute(self._parts), self._transport)

    async def recommend(
        self, k: int = 10, *, table: TableFormat = TableFormat.INT8, include_rated: bool = False
    ) -> Scored:
        """Return the k items that the owner may like best, with their scores, from a copy of the table."""
        steps = recommend_items(self._parts, k=k, table=table, include_rated=include_rated)
        async with self._advising:
            return await drive_async(steps, self._transport)

    async def rank(self, candidates: Iterable[int], *, include_rated: bool = False) -> Scored:
        """Return candidates with their scores, best first, from rows that are read privately."""
        steps = rank_candidates(self._parts, candidates, include_rated=include_rated)
        async with self._advising:
            return await drive_async(steps, self._transport)


class BlockingDevice(Owned):
    """A device for programs without an event loop."""

    def __init__(self, parts: Parts, transport: BlockingTransport) -> None:
        super().__init__(parts)
        self._transport = transport
        self._contributing, self._advising = threading.Lock(), threading.Lock()

    def contribute(self) -> Outcome:
        """Take part in one round, or go on with one that was cut short; return what became of it."""
        with self._contributing:
            return drive_blocking(contribute(self._parts), self._transport)

    def recommend(self, k: int = 10, *, table: TableFormat = TableFormat.INT8, include_rated: bool = False) -> Scored:
        """Return the k items that the owner may like best, with their scores, from a copy of the table."""
        steps = recommend_items(self._parts, k=k, table=table, include_rated=include_rated)
        with self._advising:
            return drive_blocking(steps, self._transport)

    def rank(self, candidates: Iterable[int], *, include_rated: bool = False) -> Scored:
        """Return candidates with their scores, best first, from rows that are read privately."""
        steps = rank_candidates(self._parts, candidates, include_rated=include_rated)
        with self._advising:
            return drive_blocking(steps, self._transport)


@dataclass(kw_only=True)
class AsyncOpening(Opening):
    """A device that is open within `async with`."""

    _open: AsyncExitStack = field(default_factory=AsyncExitStack, init=False, repr=False)

    async def __aenter__(self) -> Device:
        from secemb_sdk.transport import HttpTransport  # here, because httpx takes long to import

        async with AsyncExitStack() as opened:
            parts = await asyncio.to_thread(self.open_home)
            opened.callback(parts.vault.close)
            transport = await asyncio.to_thread(HttpTransport, self.addresses, trust=self.trust, pins=self.pins)
            opened.push_async_callback(transport.aclose)
            self._open = opened.pop_all()
        return Device(parts, transport)

    async def __aexit__(self, *raised: object) -> None:
        await self._open.aclose()


@dataclass(kw_only=True)
class BlockingOpening(Opening):
    """A device that is open within `with`."""

    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def __enter__(self) -> BlockingDevice:
        from secemb_sdk.transport import BlockingHttpTransport

        with ExitStack() as opened:
            parts = self.open_home()
            opened.callback(parts.vault.close)
            transport = BlockingHttpTransport(self.addresses, trust=self.trust, pins=self.pins)
            opened.callback(transport.close)
            self._open = opened.pop_all()
        return BlockingDevice(parts, transport)

    def __exit__(self, *raised: object) -> None:
        self._open.close()


# The arguments of an opening are those of its dataclass, written once for both.
Device.open = AsyncOpening
Device.open_blocking = BlockingOpening
