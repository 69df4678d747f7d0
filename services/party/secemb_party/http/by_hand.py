"""What every session asks, served next to the framework.

FastAPI's layers between the socket and a route cost more processor time than everything else that a session needs
beyond the kernel. These requests need none of them: ids in the path, a few headers and a body of a known or small
length. Their OpenAPI description is written by hand beside them.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from secemb_party.http.problems import METHOD_NOT_ALLOWED, Refused, problem_response, refusal

Serve = Callable[..., Awaitable[Response]]  # the request, then what stands in the path's places

_PLACE = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True, slots=True)
class HandRequest:
    """What these routes look at; the framework's own request searches all headers for each one that is asked for."""

    headers: Mapping[str, str]  # by their names in small letters; of several the first
    receive: Receive


@dataclass(frozen=True, slots=True, kw_only=True)
class HandRoute:
    """One method of one path."""

    method: str
    path_format: str  # measurements know the request by it, as they do those of the framework's own routes
    serve: Serve
    operation: dict[str, Any]  # OpenAPI
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(_PLACE.sub("([^/]+)", self.path_format)))


class ByHand:
    """Middleware that serves these routes and hands on every other request."""

    def __init__(self, app: ASGIApp, routes: Sequence[HandRoute], refused: Refused) -> None:
        self._app, self._routes, self._refused = app, routes, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            for route in self._routes:
                if found := route.pattern.fullmatch(scope["path"]):
                    scope["route"] = route
                    response = await self._answer(route, scope, receive, found.groups())
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answer(
        self, route: HandRoute, scope: Scope, receive: Receive, places: tuple[str | Any, ...]
    ) -> Response:
        if scope["method"] != route.method:
            self._refused(METHOD_NOT_ALLOWED.slug)
            return problem_response(METHOD_NOT_ALLOWED, headers={"Allow": route.method})
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
            return await route.serve(HandRequest(headers, receive), *places)
        except Exception as error:  # what nobody expected is logged, and ends in a document without its words
            return refusal(error, self._refused)


def describe_parameter(name: str, place: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Return the OpenAPI description of a parameter in the path or a header."""
    return {"name": name, "in": place, "required": required, "schema": schema}
