"""Startup while the ledger cannot be opened: the server stays up, reports the reason, and retries.

The disk may be full, or PostgreSQL down. A process that exited would report this only in its last log line, and its
supervisor would restart it again and again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from fastapi import FastAPI

from secemb_party.assembly import Assembly, open_host
from secemb_party.certificates import watch_certificates
from secemb_party.errors import (
    LedgerFullError,
    LedgerUnavailableError,
    StorageFullError,
    StorageUnavailableError,
)
from secemb_party.http.app import metrics_app, new_app
from secemb_party.http.listeners import listeners_of, serve
from secemb_party.logs import Outage
from secemb_party.metrics import Metrics
from secemb_party.room import Space
from secemb_party.service import Check
from secemb_party.settings import Settings
from secemb_party.tenancy.host import Host

TITLE = "SecEmb, starting"
_METHODS = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]
_PASSING = (LedgerUnavailableError, StorageUnavailableError)
_EVERY_SECONDS = 5.0


async def start_host(settings: Settings, assembly: Assembly) -> Host | None:
    """Return the host of the server's tasks as soon as it can be opened, or None if a signal came first."""
    try:
        return await open_host(settings, assembly)
    except _PASSING as error:
        start = _Start(settings, lambda: open_host(settings, assembly), error)
    everyone, prometheus = start.apps()
    operator = everyone if settings.operator.tokens_file is not None else None
    await serve(listeners_of(settings, devices=everyone, operator=operator, metrics=prometheus), start.repeat)
    return start.host


class _Start:
    """Startup attempts, and the answers in between: alive, not ready, 503 before a body is read."""

    def __init__(self, settings: Settings, open_: Callable[[], Awaitable[Host]], error: Exception) -> None:
        self._open = open_
        self.host: Host | None = None
        self._metrics = Metrics()
        self._metrics.task_phase("starting", number=None, since=time.time())
        space = Space(settings.data_dir, reserve=settings.storage.min_free_bytes, ledger_full=self._is_full)
        self._metrics.watch_space(space.free, space.reserve, self._is_full)
        watch_certificates(self._metrics, settings)
        self._outage = Outage("the server cannot start", "the server is starting")
        self._fail(error)

    def apps(self) -> tuple[FastAPI, FastAPI]:
        """Return the app for devices and operators, and the one for Prometheus."""
        everything = new_app(
            TITLE, "The server cannot open its ledger yet.", metrics=self._metrics, routers=[], ready=self._ready
        )
        everything.add_api_route("/{path:path}", self._refuse, methods=_METHODS, include_in_schema=False)
        return everything, metrics_app(TITLE, metrics=self._metrics, ready=self._ready)

    async def repeat(self) -> None:
        """Try until the server's tasks are open."""
        while self.host is None:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                self.host = await self._open()
            except (*_PASSING, OSError) as error:  # for example, too many open files
                self._fail(error)
        self._outage.worked()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._outage.failed(str(error))

    def _is_full(self) -> bool:
        return isinstance(self._error, LedgerFullError)

    async def _ready(self) -> list[Check]:
        again = "the server retries every few seconds"
        if isinstance(self._error, StorageUnavailableError):
            return [Check("storage", False, f"{self._error}; {again}")]
        fix = "free up disk space" if self._is_full() else "check [ledger] url and that the database is running"
        return [Check("ledger", False, f"{self._error}; {fix}; {again}")]

    @staticmethod
    async def _refuse() -> None:
        raise StorageFullError("the server cannot start yet; try again after the time in Retry-After")
