"""Logging in with the operator's token, and out again."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from secemb_party.http.operator import is_operator
from secemb_party.party import Party
from secemb_party.ui.guard import LOGIN, Guard, read_form
from secemb_party.ui.rendering import Renderer
from secemb_party.ui.sessions import LIFETIME, LoginLimit

_PAGE = re.compile(r"/ui(/[a-z0-9]+)*")
Place = Annotated[str, Query(max_length=200)]


def login_routes(party: Party, guard: Guard, renderer: Renderer, token_hash: bytes, *, secure: bool) -> APIRouter:
    """Return the login and the logout."""
    router = APIRouter(prefix="/ui", route_class=guard.route_class())
    limit = LoginLimit()

    def page(words: str, place: str, status: int = 200) -> Response:
        facts = {"words": words, "next": place if _PAGE.fullmatch(place) else "/ui", "page": ""}
        return renderer.answer("login.html", facts, now=party.clock(), status=status)

    @router.get("/login")
    async def show(request: Request, next: Place = "/ui", over: bool = False) -> Response:
        return page("Your session is over. Log in again." if over else "", next)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        fields = await read_form(request)
        place = fields.get("next", "/ui")
        # The right token first: strangers who try wrong ones must not keep the operator out.
        if is_operator(fields.get("token", "").strip(), token_hash):
            return _enter(guard, request, place if _PAGE.fullmatch(place) else "/ui", secure=secure)
        if (seconds := limit.seconds_to_wait()) > 0:
            party.metrics.refused("busy")
            answer = page(f"Too many wrong tries. Try again in {seconds} s.", place, 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        limit.count_wrong()
        party.metrics.refused("unauthorized")
        return page("This is not the operator's token. secemb init printed it once.", place, 401)

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        await guard.form(request)
        guard.sessions.close(request.cookies.get(guard.cookie, ""))
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(guard.cookie, path="/ui")
        return answer

    return router


def _enter(guard: Guard, request: Request, place: str, *, secure: bool) -> Response:
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        guard.cookie,
        guard.sessions.open(),
        max_age=int(LIFETIME),
        path="/ui",
        # A proxy may end TLS; the browser says how it sees this page.
        secure=secure or request.headers.get("origin", "").startswith("https://"),
        httponly=True,
        samesite="strict",
    )
    return answer
