"""Logging in to the operator's pages: the token, sessions of eight hours at most, and errors shown as pages."""

import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from secemb_party.errors import ForbiddenError, LoginNeededError
from secemb_party.http.problems import INTERNAL, NOT_FOUND, Problem, problem_for
from secemb_party.http.request_body import Patience, read_small
from secemb_party.logs import get_logger
from secemb_party.metrics import Metrics
from secemb_party.operators import OperatorRole, Operators, Order
from secemb_party.parts import Clock
from secemb_party.service import Party
from secemb_party.ui.login_sessions import LIFETIME, LoginLimit, Session, Sessions
from secemb_party.ui.render import Renderer
from secemb_shared.errors import SecEmbError

LOGIN = "/ui/login"
_LONGEST_FORM = 4096
_PATIENCE = Patience(seconds=10.0, rate=0.0)
_LONGEST_REASON = 500
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Logins:
    """Checks logins, and shows errors as pages."""

    def __init__(self, renderer: Renderer, operators: Operators, metrics: Metrics, clock: Clock, *, role: int) -> None:
        self.sessions, self.operators = Sessions(), operators
        self.cookie = f"secemb-session-{role}"  # two servers on one host share its cookies
        self._renderer, self._metrics, self._clock = renderer, metrics, clock

    def session(self, request: Request) -> Session:
        """Return the session of a request, or raise LoginNeededError."""
        found = self._find(request)
        if found is None:
            raise LoginNeededError("log in with an operator token")
        return found

    def _find(self, request: Request) -> Session | None:
        """Return the session of a request if its token is active: revoking a token ends its sessions."""
        found = self.sessions.find(request.cookies.get(self.cookie, ""))
        active = found is not None and self.operators.named(found.name, self._clock()) is not None
        return found if active else None

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, which must have been made for the session of this request."""
        fields = await read_form(request)
        if not self.session(request).allows(fields.get("form_token", "")):
            raise ForbiddenError("this form belongs to another session; reload the page and try again")
        return fields

    def require_admin(self, request: Request) -> Session:
        """Return the session of a request, or raise unless its role allows changes."""
        session = self.session(request)
        if not session.changes:
            raise ForbiddenError("this login is read-only; log in with a token that has the role admin")
        return session

    async def order(self, request: Request) -> tuple[Order, dict[str, str]]:
        """Return who requests a change and why, and the form's fields; raise unless the login allows changes."""
        session, fields = self.require_admin(request), await self.form(request)
        return Order(session.name, _reason(fields.get("reason", ""))), fields

    def route_class(self) -> type[APIRoute]:
        """Return the class of routes whose errors become pages."""
        logins = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Handler:
                inner = super().get_route_handler()

                async def handle(request: Request) -> Response:
                    try:
                        return await inner(request)
                    except LoginNeededError:
                        return _to_login(request)
                    except (RequestValidationError, HTTPException):
                        return logins.problem_page(request, NOT_FOUND, None)
                    except SecEmbError as error:
                        return logins.problem_page(request, problem_for(type(error)), error)

                return handle

        return PageRoute

    def problem_page(self, request: Request, problem: Problem, error: Exception | None) -> Response:
        """Return an error page."""
        self._metrics.refused(problem.slug)
        if problem is INTERNAL:
            get_logger().error("request failed", exc_info=error)
        session = self._find(request)
        facts = {"problem": problem, "words": str(error) if error is not None and problem.speaks else ""}
        return self._renderer.answer("problem.html", facts, now=self._clock(), session=session, status=problem.status)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a small form, which must have been sent by a page of this server."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ForbiddenError("this form was sent from another site")
    body = await read_small(request, _PATIENCE, most=_LONGEST_FORM)
    return {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}


def _reason(text: str) -> str | None:
    """Return a reason in the form in which it is stored: one line of limited length."""
    printable = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(printable.split())[:_LONGEST_REASON] or None


def _to_login(request: Request) -> Response:
    """Redirect to the login, and from there back to the page; a part of a page redirects the whole page."""
    if "hx-request" in request.headers:
        return Response(status_code=204, headers={"hx-redirect": f"{LOGIN}?over=1"})
    if "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=204)  # browsers do not reopen a stream that ends with this
    if request.url.path == "/ui":
        return RedirectResponse(LOGIN, 303)
    return RedirectResponse(f"{LOGIN}?next={quote(request.url.path)}", 303)


_PAGE = re.compile(r"/ui(/[a-z0-9]+)*")
Place = Annotated[str, Query(max_length=200)]


def login_routes(party: Party, logins: Logins, renderer: Renderer, *, secure: bool) -> APIRouter:
    """Return the login and the logout."""
    router = APIRouter(prefix="/ui", route_class=logins.route_class(), include_in_schema=False)
    limit = LoginLimit()

    def page(words: str, place: str, status: int = 200) -> Response:
        facts = {"words": words, "next": place if _PAGE.fullmatch(place) else "/ui", "page": ""}
        return renderer.answer("login.html", facts, now=party.clock(), status=status)

    @router.get("/login")
    async def show(request: Request, next: Place = "/ui", over: bool = False) -> Response:
        return page("Your session has expired. Log in again." if over else "", next)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        fields = await read_form(request)
        place = fields.get("next", "/ui")
        # Check for the right token first: failed logins by others must not lock the operator out.
        operator = logins.operators.find(fields.get("token", "").strip(), party.clock())
        if operator is not None and operator.role.includes(OperatorRole.READ_ONLY):
            cookie = logins.sessions.open(operator.name, changes=operator.role.includes(OperatorRole.ADMIN))
            return _enter(logins, request, cookie, place if _PAGE.fullmatch(place) else "/ui", secure=secure)
        if (seconds := limit.seconds_to_wait()) > 0:
            party.metrics.refused("busy")
            answer = page(f"Too many failed logins. Try again in {seconds} s.", place, 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        limit.count_wrong()
        party.metrics.refused("unauthorized")
        return page("This is not an active operator token with the role read-only or admin.", place, 401)

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        await logins.form(request)
        logins.sessions.close(request.cookies.get(logins.cookie, ""))
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(logins.cookie, path="/ui")
        return answer

    return router


def _enter(logins: Logins, request: Request, cookie: str, place: str, *, secure: bool) -> Response:
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        logins.cookie,
        cookie,
        max_age=int(LIFETIME),
        path="/ui",
        # A proxy may terminate TLS, but the browser knows the scheme of this page.
        secure=secure or request.headers.get("origin", "").startswith("https://"),
        httponly=True,
        samesite="strict",
    )
    return answer
