"""The addresses under `/ui`: each checks who asks, gathers, and renders."""

import tempfile
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse

from secemb_party.errors import RollbackRefusedError, UnknownRoundError, UnknownVersionError
from secemb_party.http.operator import event_stream
from secemb_party.http.problems import NOT_FOUND
from secemb_party.party import Party
from secemb_party.ui.assets import Assets
from secemb_party.ui.guard import Guard
from secemb_party.ui.login import login_routes
from secemb_party.ui.model_view import Versions
from secemb_party.ui.rendering import Renderer
from secemb_party.ui.round_view import round_facts, round_story
from secemb_party.ui.side import Side
from secemb_party.ui.surroundings import Surroundings
from secemb_party.ui.views import Views
from secemb_shared.messages.canonical import LARGEST_NUMBER

Number = Annotated[int, Path(ge=0, lt=LARGEST_NUMBER)]
Before = Annotated[int | None, Query(ge=0, le=LARGEST_NUMBER)]
Word = Annotated[str, Query(max_length=40)]


def ui_routes(party: Party, token_hash: bytes, side: Side, surroundings: Surroundings) -> APIRouter:
    """Return the operator's page of this server."""
    assets = Assets()
    renderer = Renderer(assets, role=party.role, task=party.task.name)
    guard = Guard(renderer, party.metrics, party.clock, role=party.role)
    inside = APIRouter(prefix="/ui", route_class=guard.route_class(), dependencies=[Depends(guard.session)])
    desk = _Desk(party, side, guard, renderer, Views(party, side, surroundings))
    desk.add_pages(inside)
    desk.add_rounds(inside)
    desk.add_model(inside)
    router = APIRouter(include_in_schema=False)
    router.include_router(login_routes(party, guard, renderer, token_hash, secure=surroundings.secure))
    router.include_router(inside)
    router.include_router(_asset_routes(assets, guard))  # the last: it answers every address under /ui
    return router


class _Desk:
    """What every page needs at hand."""

    def __init__(self, party: Party, side: Side, guard: Guard, renderer: Renderer, views: Views) -> None:
        self._party, self._side, self._guard, self._renderer, self._views = party, side, guard, renderer, views
        self._versions = Versions(party)

    def _answer(self, request: Request, template: str, facts: dict[str, object], page: str = "") -> Response:
        session = self._guard.session(request)
        return self._renderer.answer(template, facts | {"page": page}, now=self._party.clock(), session=session)

    def add_pages(self, router: APIRouter) -> None:
        """Add the pages that need nothing but a glance."""
        views = self._views

        @router.get("")
        async def live(request: Request) -> Response:
            return self._answer(request, "live.html", await views.live(), "Live")

        @router.get("/live")
        async def live_part(request: Request) -> Response:
            return self._answer(request, "_live.html", await views.live())

        @router.get("/events")
        async def events(request: Request, after: Annotated[int, Query(ge=0)] = 0) -> StreamingResponse:
            return event_stream(self._party, request, after)

        @router.get("/quality")
        async def quality(request: Request) -> Response:
            return self._answer(request, "quality.html", await views.quality(), "Quality")

        @router.get("/partner")
        async def partner(request: Request) -> Response:
            return self._answer(request, "partner.html", await views.partner(), "Partner")

        @router.get("/capacity")
        async def capacity(request: Request) -> Response:
            return self._answer(request, "capacity.html", await views.capacity(), "Capacity")

        @router.get("/capacity/now")
        async def capacity_part(request: Request) -> Response:
            return self._answer(request, "_capacity.html", await views.capacity())

    def add_rounds(self, router: APIRouter) -> None:
        """Add the list of rounds and the page of one."""
        views = self._views

        @router.get("/rounds")
        async def rounds(request: Request, before: Before = None, kind: Word = "", state: Word = "") -> Response:
            facts = await views.rounds(before=before, kind=kind, state=state)
            return self._answer(request, "rounds.html", facts, "Rounds")

        @router.get("/rounds/{number}")
        async def one_round(request: Request, number: Number) -> Response:
            record = await views.find_round(number)
            if record is None:
                raise UnknownRoundError("there is no round of this number")
            facts = {"one": await round_facts(self._party, record), "story": await round_story(self._party, record)}
            return self._answer(request, "round.html", facts, "Rounds")

    def add_model(self, router: APIRouter) -> None:
        """Add the versions, their export and the way back to one."""
        guard, roll_back = self._guard, self._side.roll_back

        @router.get("/model")
        async def model(request: Request) -> Response:
            return self._answer(request, "model.html", await self._model_facts(), "Model")

        @router.get("/model/versions")
        async def versions_part(request: Request) -> Response:
            return self._answer(request, "_versions.html", await self._model_facts())

        @router.get("/model/{number}/export")
        async def export(number: Number) -> Response:
            if number not in self._party.models.versions():
                raise UnknownVersionError("this version is not kept here any more")
            return await self._export(number)

        @router.get("/model/{number}/rollback")
        async def confirm(request: Request, number: Number) -> Response:
            facts = await self._model_facts()
            if roll_back is None:
                raise RollbackRefusedError("a rollback is decided at server 0; ask its operator")
            if number not in self._party.models.versions():
                raise RollbackRefusedError("this version is no longer kept; choose one whose file is still here")
            return self._answer(request, "rollback.html", facts | {"source": number}, "Model")

        @router.post("/model/{number}/rollback")
        async def carry_out(request: Request, number: Number) -> Response:
            fields = await guard.form(request)
            if roll_back is None or fields.get("sure") != "yes" or not fields.get("seen", "").isdigit():
                raise RollbackRefusedError("tick the box to say that you are sure, at server 0")
            await roll_back(number, int(fields["seen"]))
            return RedirectResponse("/ui/model", 303)

    async def _model_facts(self) -> dict[str, object]:
        return await self._versions.facts() | {"can_roll_back": self._side.roll_back is not None}

    async def _export(self, version: int) -> Response:
        path = await self._party.workers.run(lambda: self._write_export(version))
        name = f"{self._party.task.name}-v{version}.safetensors"
        return FileResponse(path, filename=name, background=BackgroundTask(path.unlink, missing_ok=True))

    def _write_export(self, version: int) -> FilePath:
        with tempfile.NamedTemporaryFile(prefix="secemb-export-", suffix=".safetensors", delete=False) as file:
            path = FilePath(file.name)
        try:
            self._party.models.export(version, path)
        except BaseException:
            path.unlink()
            raise
        return path


def _asset_routes(assets: Assets, guard: Guard) -> APIRouter:
    """Return scripts and styles, which anybody may have, and an end for all other addresses."""
    router = APIRouter(prefix="/ui", route_class=guard.route_class())

    @router.get("/static/{edition}/{name:path}")
    async def static(request: Request, edition: str, name: str) -> Response:
        found = assets.response(name) if edition == assets.edition else None
        return found if found is not None else guard.problem_page(request, NOT_FOUND, None)

    @router.get("/{rest:path}")
    async def nothing(request: Request, rest: str) -> Response:
        if not rest:
            return RedirectResponse("/ui", 303)
        return guard.problem_page(request, NOT_FOUND, None)

    return router
