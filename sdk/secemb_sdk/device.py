"""The device API for apps: asynchronous or blocking. Both run the same steps.

async with Device.open(home=folder, servers=(url0, url1), task=task_id, token=token) as device:
    device.log(item=318, rating=5.0)
    outcome = await device.contribute()
    best = await device.recommend(k=10)

Without `async with`: `device = await Device.open(…).open()`, and at the end `await device.close()`.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar, Literal

from secemb_sdk.context import DIRECT, RELAYED, Clock, Context, Policy
from secemb_sdk.errors import AddressError, EnrolmentError, PinError, PolicyError, RatingError
from secemb_sdk.home.detections import Detection
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.export import export_home
from secemb_sdk.home.files import Home
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.switches import SwitchReceipt
from secemb_sdk.home.vault import Vault
from secemb_sdk.items import Item, Items
from secemb_sdk.models import Model
from secemb_sdk.recommend import (
    Recommendation,
    Suggestion,
    TableFormat,
    find_catalogue,
    rank_candidates,
    recommend_items,
    suggest_words,
)
from secemb_sdk.round.contribute import Outcome, contribute
from secemb_sdk.steps import AsyncTransport, BlockingTransport, Steps, drive_async, drive_blocking
from secemb_sdk.succession import following
from secemb_sdk.trust import Authorities, Pins, check_address
from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import RandomBytes, secure_bytes

_TASK_DIGITS = 64


@dataclass(kw_only=True)
class Opening:
    """The arguments of `Device.open` and `Device.open_blocking`."""

    home: Path | str  # a directory used only by this device and task; created if missing
    servers: tuple[str, str]  # addresses of server 0 and server 1
    task: str  # the task's id: 64 hexadecimal digits
    token: str | None = field(default=None, repr=False)  # from the operator of server 0; None where enrolment is open
    model: Model | None = None  # None: matrix factorisation with the task's width
    key: bytes | None = field(default=None, repr=False)  # 16 or 32 random bytes; if given, the home is encrypted
    policy: Policy | None = None
    pins: Sequence[Pins] | None = None  # for each server, digests of public keys, one of which it must present
    ca: Authorities = None  # a file of authorities (PEM) or an SSLContext; None: the system's authorities
    rate: float | None = None  # learning rate of the private part; None: the task's rate for rows
    epochs: int = 1  # passes over the ratings in a round
    hold_out: float = 0.1  # the fraction of ratings reserved for evaluation and never trained on
    transport: Literal["direct", "relayed"] | None = None  # None: relayed if the task allows it
    clock: Clock = field(default=monotonic, repr=False)
    wall_clock: Clock = field(default=time, repr=False)
    random_bytes: RandomBytes = field(default=secure_bytes, repr=False)

    def __post_init__(self) -> None:
        if len(self.servers) != 2:
            raise AddressError("a device needs two servers; give the addresses of server 0 and server 1")
        if self.addresses[0] == self.addresses[1]:
            raise AddressError("both servers have the same address; they must be run by two different operators")
        if len(self.task) != _TASK_DIGITS or not set(self.task) <= set("0123456789abcdef"):
            raise PinError("a task id is 64 lowercase hexadecimal digits; `secemb task show` prints it")
        if self.pins is not None and len(self.pins) != 2:
            raise PinError("pins must be two lists of digests, one for each server")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise EnrolmentError("a token is one line of printable ASCII; copy it again from the operator's message")
        if self.epochs < 1 or not 0 <= self.hold_out < 1:
            raise PolicyError("epochs must be at least 1, and hold_out at least 0 and less than 1")
        if self.transport not in (None, DIRECT, RELAYED):
            raise PolicyError("transport must be 'direct', 'relayed', or None to let the task decide")

    @property
    def addresses(self) -> tuple[str, str]:
        """Return the servers' addresses in normalised form."""
        return check_address(self.servers[0]), check_address(self.servers[1])

    def open_home(self) -> Context:
        """Open the home, and return the context for the device's steps."""
        home = Home(self.home, FileCipher(self.key))
        try:
            vault = Vault(home, random_bytes=self.random_bytes)
            vault.bind(bytes.fromhex(self.task), self.addresses)
        except BaseException:
            home.close()
            raise
        return Context(
            vault=vault,
            task_id=bytes.fromhex(self.task),
            token=self.token,
            policy=self.policy or Policy(),
            model=self.model,
            rate=self.rate,
            epochs=self.epochs,
            hold_out=self.hold_out,
            transport=self.transport,
            clock=self.clock,
            wall_clock=self.wall_clock,
            random_bytes=self.random_bytes,
        )


class Owned:
    """The operations on a device's own data that need no network."""

    def __init__(self, context: Context) -> None:
        self._context, self._items = context, Items(context)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of task {self._context.current_task.hex()[:8]}>"

    def log(self, *, item: Item, rating: float | None = None, at: float | None = None) -> None:
        """Store the owner's rating of an item or, without a rating, that the owner chose it; durable on return.

        An item is its row, or its external id, such as "tt0111161", which is looked up in the device's catalogue.
        The last rating of an item counts. Choices are events, which are ordered by time: `at` is the time, in seconds.
        Without it the event is the newest.
        """
        if rating is None:
            self.log_events([(item, at)])
        elif at is None:
            self._context.vault.log([(self._items.row(item), rating)])
        else:
            raise RatingError(
                "a rating has no time and an event has no rating; pass either `rating` or `at`, or log them separately"
            )

    def ratings(self) -> dict[int, float]:
        """Return the owner's ratings by item."""
        return dict(self._context.vault.ratings())

    def remove(self, *, item: Item) -> bool:
        """Erase the owner's rating of an item and all events with it; return whether there were any.

        A pending session keeps the items it has already selected.
        """
        return self._context.vault.remove(self._items.row(item))

    def log_many(self, ratings: Mapping[int, float] | Mapping[str, float]) -> None:
        """Store several ratings in one write."""
        self._context.vault.log([(self._items.row(item), rating) for item, rating in ratings.items()])

    def log_events(self, events: Iterable[tuple[Item, float | None]]) -> None:
        """Store several events in one write: items, and when the owner chose them (None: now, in the given order)."""
        rows = [(self._items.row(item), at) for item, at in events]
        self._context.vault.log_events(rows, now=self._context.wall_clock())

    def log_text(self, text: str, *, at: float | None = None) -> None:
        """Store a text that the owner has written; durable on return. `at` is the time in seconds; None is now."""
        self.log_texts([(text, at)])

    def log_texts(self, texts: Iterable[tuple[str, float | None]]) -> None:
        """Store several texts in one write, and when the owner wrote them (None: now, in the given order)."""
        self._context.vault.log_texts(texts, now=self._context.wall_clock())

    def receipts(self) -> list[Receipt]:
        """Return what was sent in each round, oldest first."""
        return self._context.vault.receipts()

    def switches(self) -> list[SwitchReceipt]:
        """Return the switches of this device from a task to its successor, oldest first."""
        return self._context.vault.chain.receipts()

    def detections(self) -> list[Detection]:
        """Return the protocol violations by servers that this device has detected, by kind."""
        return [one for _, one in sorted(self._context.vault.detections().items())]

    def _rank(self, items: list[Item], *, include_rated: bool, titles: bool) -> Steps[list[Recommendation]]:
        context, task = self._context, self._context.current_task

        def begin() -> Steps[list[Recommendation]]:
            rows = self._items.rows(items, task)
            return rank_candidates(context, rows, include_rated=include_rated, titles=titles)

        return following(context, begin)

    def forget(self, *, receipts: bool = False) -> None:
        """Erase ratings, events, texts, private part and session; with `receipts`, also receipts and detections."""
        self._context.vault.forget(receipts=receipts)

    def export(self) -> dict[str, Any]:
        """Return everything that this device knows about its owner, in a form that `json.dumps` accepts."""
        return export_home(self._context.vault)


class Device(Owned):
    """A device on an event loop: `async with Device.open(…)`. Without an event loop: `with Device.open_blocking(…)`."""

    open: ClassVar[type["AsyncOpening"]]
    open_blocking: ClassVar[type["BlockingOpening"]]

    def __init__(self, context: Context, transport: AsyncTransport, opened: AsyncExitStack | None = None) -> None:
        super().__init__(context)
        self._transport, self._opened = transport, opened or AsyncExitStack()
        self._contributing, self._advising = asyncio.Lock(), asyncio.Lock()

    async def close(self) -> None:
        """Close the home and all connections; calls in progress fail. Closing again does nothing."""
        await self._opened.aclose()

    async def contribute(self) -> Outcome:
        """Take part in one round, or continue one that was interrupted; return how it ended."""
        async with self._contributing:
            return await drive_async(contribute(self._context), self._transport)

    async def recommend(
        self, k: int = 10, *, table: TableFormat = TableFormat.INT8, include_rated: bool = False, titles: bool = True
    ) -> list[Recommendation]:
        """Return the k items that the owner may like best, from a copy of the table; with `titles`, their names too."""
        steps = following(
            self._context,
            lambda: recommend_items(self._context, k=k, table=table, include_rated=include_rated, titles=titles),
        )
        async with self._advising:
            return await drive_async(steps, self._transport)

    async def rank(
        self, candidates: Iterable[Item], *, include_rated: bool = False, titles: bool = True
    ) -> list[Recommendation]:
        """Return candidates with their scores, best first; neither server learns which they are."""
        steps = self._rank(list(candidates), include_rated=include_rated, titles=titles)
        async with self._advising:
            return await drive_async(steps, self._transport)

    async def suggest(
        self, text: str, k: int = 3, *, words: int = 1, table: TableFormat = TableFormat.INT8, refresh: bool = False
    ) -> list[Suggestion]:
        """Return k suggestions to continue a text, from the local copy; `refresh` fetches a newer one first.

        Each is a next word followed by the most likely words, up to `words` in total or until the text ends.
        """
        steps = following(
            self._context,
            lambda: suggest_words(self._context, text, k=k, words=words, table=table, refresh=refresh),
        )
        async with self._advising:
            return await drive_async(steps, self._transport)

    async def catalogue(self) -> Catalogue:
        """Return the ids and titles of the task's items; they are fetched once."""
        async with self._advising:
            return await drive_async(following(self._context, lambda: find_catalogue(self._context)), self._transport)


class BlockingDevice(Owned):
    """A device for programs without an event loop."""

    def __init__(self, context: Context, transport: BlockingTransport, opened: ExitStack | None = None) -> None:
        super().__init__(context)
        self._transport, self._opened = transport, opened or ExitStack()
        self._contributing, self._advising = threading.Lock(), threading.Lock()

    def close(self) -> None:
        """Close the home and all connections; calls in other threads return. Closing again does nothing."""
        self._opened.close()

    def contribute(self) -> Outcome:
        """Take part in one round, or continue one that was interrupted; return how it ended."""
        with self._contributing:
            return drive_blocking(contribute(self._context), self._transport)

    def recommend(
        self, k: int = 10, *, table: TableFormat = TableFormat.INT8, include_rated: bool = False, titles: bool = True
    ) -> list[Recommendation]:
        """Return the k items that the owner may like best, from a copy of the table; with `titles`, their names too."""
        steps = following(
            self._context,
            lambda: recommend_items(self._context, k=k, table=table, include_rated=include_rated, titles=titles),
        )
        with self._advising:
            return drive_blocking(steps, self._transport)

    def rank(
        self, candidates: Iterable[Item], *, include_rated: bool = False, titles: bool = True
    ) -> list[Recommendation]:
        """Return candidates with their scores, best first; neither server learns which they are."""
        steps = self._rank(list(candidates), include_rated=include_rated, titles=titles)
        with self._advising:
            return drive_blocking(steps, self._transport)

    def suggest(
        self, text: str, k: int = 3, *, words: int = 1, table: TableFormat = TableFormat.INT8, refresh: bool = False
    ) -> list[Suggestion]:
        """Return k suggestions to continue a text, from the local copy; `refresh` fetches a newer one first.

        Each is a next word followed by the most likely words, up to `words` in total or until the text ends.
        """
        steps = following(
            self._context,
            lambda: suggest_words(self._context, text, k=k, words=words, table=table, refresh=refresh),
        )
        with self._advising:
            return drive_blocking(steps, self._transport)

    def catalogue(self) -> Catalogue:
        """Return the ids and titles of the task's items; they are fetched once."""
        with self._advising:
            return drive_blocking(following(self._context, lambda: find_catalogue(self._context)), self._transport)


@dataclass(kw_only=True)
class AsyncOpening(Opening):
    """A device that is opened by `async with` or by `open()`."""

    _device: Device | None = field(default=None, init=False, repr=False)

    async def open(self) -> Device:
        """Return the open device; the caller closes it."""
        from secemb_sdk.http import HttpTransport  # imported here because httpx is slow to import

        async with AsyncExitStack() as opened:
            context = await asyncio.to_thread(self.open_home)
            opened.callback(context.vault.close)
            transport = await asyncio.to_thread(HttpTransport, self.addresses, ca=self.ca, pins=self.pins)
            opened.push_async_callback(transport.aclose)
            return Device(context, transport, opened.pop_all())

    async def __aenter__(self) -> Device:
        self._device = await self.open()
        return self._device

    async def __aexit__(self, *raised: object) -> None:
        if self._device is not None:
            await self._device.close()


@dataclass(kw_only=True)
class BlockingOpening(Opening):
    """A device that is opened by `with` or by `open()`."""

    _device: BlockingDevice | None = field(default=None, init=False, repr=False)

    def open(self) -> BlockingDevice:
        """Return the open device; the caller closes it."""
        from secemb_sdk.http import BlockingHttpTransport, refuse_event_loop

        refuse_event_loop()
        with ExitStack() as opened:
            context = self.open_home()
            opened.callback(context.vault.close)
            transport = BlockingHttpTransport(self.addresses, ca=self.ca, pins=self.pins)
            opened.callback(transport.close)
            return BlockingDevice(context, transport, opened.pop_all())

    def __enter__(self) -> BlockingDevice:
        self._device = self.open()
        return self._device

    def __exit__(self, *raised: object) -> None:
        if self._device is not None:
            self._device.close()


# The dataclass fields define the arguments, so that both functions share one definition.
Device.open = AsyncOpening
Device.open_blocking = BlockingOpening
