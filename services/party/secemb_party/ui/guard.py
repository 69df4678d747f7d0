"""The door to the pages: who is not logged in is led to the login, and what fails ends in a page, not in a document."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from secemb_party.errors import ForbiddenError
from secemb_party.http.bodies import RequestInvalidError, SlowBodyError
from secemb_party.http.problems import INTERNAL, NOT_FOUND, Problem, problem_for
from secemb_party.party import Clock
from secemb_party.telemetry import Metrics, get_logger
from secemb_party.ui.rendering import Renderer
from secemb_party.ui.sessions import Session, Sessions
from secemb_shared.errors import SecEmbError

LOGIN = "/ui/login"
_LONGEST_FORM = 4096
_FORM_SECONDS = 10.0
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LoginNeededError(Exception):
    """Nobody is logged in, or no longer."""


class Guard:
    """Checks who asks, and answers where something went wrong."""

    def __init__(self, renderer: Renderer, metrics: Metrics, clock: Clock, *, role: int) -> None:
        self.sessions = Sessions()
        self.cookie = f"secemb-session-{role}"  # two servers on one host share its cookies
        self._renderer, self._metrics, self._clock = renderer, metrics, clock

    def session(self, request: Request) -> Session:
        """Return the session of a request, or lead to the login."""
        found = self.sessions.find(request.cookies.get(self.cookie, ""))
        if found is None:
            raise LoginNeededError
        return found

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form that was made for the session of this request."""
        fields = await read_form(request)
        if not self.session(request).allows(fields.get("form_token", "")):
            raise ForbiddenError("this form is not of your session; open the page again and repeat it")
        return fields

    def route_class(self) -> type[APIRoute]:
        """Return the class of routes whose failures become pages."""
        guard = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Handler:
                inner = super().get_route_handler()

                async def handle(request: Request) -> Response:
                    try:
                        return await inner(request)
                    except LoginNeededError:
                        return _to_login(request)
                    except (RequestValidationError, HTTPException):
                        return guard.problem_page(request, NOT_FOUND, None)
                    except SecEmbError as error:
                        return guard.problem_page(request, problem_for(type(error)), error)

                return handle

        return PageRoute

    def problem_page(self, request: Request, problem: Problem, error: Exception | None) -> Response:
        """Return a page that says what is wrong and leads back."""
        self._metrics.refused(problem.slug)
        if problem is INTERNAL:
            get_logger().error("request failed", exc_info=error)
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        facts = {"problem": problem, "words": str(error) if error is not None and problem.speaks else ""}
        return self._renderer.answer("problem.html", facts, now=self._clock(), session=session, status=problem.status)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a small form, sent by a page of this server itself."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ForbiddenError("this form was sent by a page of another site")
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            body = await _collect(request)
    except TimeoutError:
        raise SlowBodyError(f"the form did not arrive within {_FORM_SECONDS:g} seconds") from None
    return {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}


async def _collect(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM:
            raise RequestInvalidError("a form of this page is shorter")
    return body


def _to_login(request: Request) -> Response:
    """Lead to the login, and from there back to the page; parts of a page make the whole page go there."""
    if "hx-request" in request.headers:
        return Response(status_code=204, headers={"hx-redirect": f"{LOGIN}?over=1"})
    if "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=204)  # a stream that ends like this is not opened again
    if request.url.path == "/ui":
        return RedirectResponse(LOGIN, 303)
    return RedirectResponse(f"{LOGIN}?next={quote(request.url.path)}", 303)
