"""Which task's app answers a request: the task or the round in its path or header decides.

A server with one task passes every request to its app. With several, `/v1/tasks/{task}` names the task, a round belongs
to one task, server 0 names the task in a header of each call to server 1, and operators name it in front of the path:
`/tasks/{task}/v1/operator/…` and `/tasks/{task}/ui/…`.
"""

import re
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from secemb_party.http.app import metrics_app, new_app
from secemb_party.http.health import Readiness
from secemb_party.http.listeners import Listener, listeners_of
from secemb_party.logs import task_lines
from secemb_party.peer_messages import TASK_HEADER
from secemb_party.settings import Settings
from secemb_party.tenancy.host import Host, Hosted
from secemb_shared.errors import SecEmbError

_IN_PATH = re.compile(r"/v1/(tasks|rounds)/([0-9a-f]{64})(?:/|$)")
_NAMED = re.compile(r"/tasks/([0-9a-f]{1,64})(/.*)")
_REFUSAL = "secemb.refusal"  # key in the scope: why no task's app answers
_METHODS = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]

Find = Callable[[Host, Scope], Awaitable[Hosted]]


async def of_device(host: Host, scope: Scope) -> Hosted:
    """Return the task that a device's request is about."""
    if (only := host.only) is not None:
        return only
    found = _IN_PATH.match(scope["path"])
    if found is None:
        return next(iter(host.running.values())) if host.running else host.choose(None)
    named = bytes.fromhex(found[2])
    return host.find(named) if found[1] == "tasks" else await host.of_round(named)


async def of_peer(host: Host, scope: Scope) -> Hosted:
    """Return the task that server 0's call is about."""
    named = next((value for name, value in scope["headers"] if name == TASK_HEADER.encode()), None)
    return host.choose(None) if named is None else host.find(_id(named.decode("latin-1")))


async def of_operator(host: Host, scope: Scope) -> Hosted:
    """Return the task that an operator's request is about; the rest of the path is as if there were one task."""
    found = _NAMED.fullmatch(scope["path"])
    if found is None:
        return host.choose(None)
    hosted = host.choose(found[1])
    scope["root_path"] = scope.get("root_path", "") + f"/tasks/{found[1]}"
    return hosted


def _id(text: str) -> bytes:
    return bytes.fromhex(text) if re.fullmatch("[0-9a-f]{64}", text) else b""


class Dispatch:
    """The app of a listener: it passes each request to the app of its task."""

    def __init__(
        self,
        host: Host,
        title: str,
        *,
        find: Find,
        app_of: Callable[[Hosted], ASGIApp | None],
        own: APIRouter | None = None,
        ready: Readiness | None = None,
    ) -> None:
        self._host, self._find, self._app_of = host, find, app_of
        self._own = self._make_own(title, own, ready)
        self._ours = tuple(filter(None, [own and own.prefix, ready and "/readyz"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"].startswith(self._ours):
            await self._own(scope, receive, send)
            return
        try:
            hosted = await self._find(self._host, scope)
        except SecEmbError as error:
            scope[_REFUSAL] = error
            await self._own(scope, receive, send)
            return
        app = self._app_of(hosted)
        with task_lines(hosted.short):
            await (app or self._own)(scope, receive, send)

    def _make_own(self, title: str, own: APIRouter | None, ready: Readiness | None) -> FastAPI:
        """Return the app for requests about no task, and for refusals."""
        app = new_app(
            title,
            "Requests that are not about one task.",
            metrics=self._host.metrics,
            routers=[own] if own is not None else [],
            ready=ready,
        )
        app.add_api_route("/{path:path}", _refuse, methods=_METHODS, include_in_schema=False)
        return app


async def _refuse(request: Request) -> None:
    raise request.scope.get(_REFUSAL) or HTTPException(404)


def listeners_for(host: Host, settings: Settings, title: str, *, tasks: APIRouter | None) -> list[Listener]:
    """Return the listeners of a server for devices, operators and Prometheus; `tasks` are the routes for all tasks."""
    devices = Dispatch(host, title, find=of_device, app_of=lambda one: one.devices)
    operator = None
    if tasks is not None:
        operator = Dispatch(
            host,
            f"{title}, operator",
            find=of_operator,
            app_of=lambda one: one.operator,
            own=tasks,
            ready=host.readiness,
        )
    metrics = metrics_app(title, metrics=host.metrics, ready=host.readiness)
    return listeners_of(settings, devices=devices, operator=operator, metrics=metrics)
