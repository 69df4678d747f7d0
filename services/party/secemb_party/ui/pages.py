"""The routes under `/ui`: each checks the login, gathers facts, and renders a page."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from secemb_party.errors import ControlRefusedError, RollbackRefusedError, UnknownRoundError, UnknownVersionError
from secemb_party.http.operator_routes import event_stream
from secemb_party.http.problems import NOT_FOUND
from secemb_party.http.requests import Number, read_number
from secemb_party.ledger import Event, What
from secemb_party.operators import Operators, Order
from secemb_party.service import Party
from secemb_party.storage.weights import export_weights
from secemb_party.ui.login import Logins, login_routes
from secemb_party.ui.render import Assets, Download, Renderer, nameless
from secemb_party.ui.server_facts import Side, Surroundings
from secemb_party.ui.views.events import latest, tell
from secemb_party.ui.views.models import Versions
from secemb_party.ui.views.overview import LiveFacts
from secemb_party.ui.views.peer import PeerView
from secemb_party.ui.views.privacy import privacy_facts
from secemb_party.ui.views.rounds import round_facts, round_story
from secemb_party.ui.views.safeguards import guard_facts

Which = Annotated[Number, Path()]
Before = Annotated[Number | None, Query()]
Word = Annotated[str, Query(max_length=40)]
_DEVICES = 100  # number shown
_LIFTED = {"resume": What.PAUSE, "drain-end": What.DRAIN}


def ui_routes(party: Party, operators: Operators, side: Side, surroundings: Surroundings) -> APIRouter:
    """Return the operator pages of this server."""
    assets = Assets()
    renderer = Renderer(assets, role=party.role, task=party.task)
    logins = Logins(renderer, operators, party.metrics, party.clock, role=party.role)
    known = [Depends(logins.session)]
    inside = APIRouter(prefix="/ui", route_class=logins.route_class(), include_in_schema=False, dependencies=known)
    desk = _Desk(party, side, logins, renderer, LiveFacts(party, surroundings))
    desk.add_live(inside)
    desk.add_pages(inside, PeerView(party, side, surroundings))
    desk.add_rounds(inside)
    desk.add_model(inside)
    desk.add_control(inside)
    inside.routes[:0] = login_routes(party, logins, renderer, secure=surroundings.secure).routes
    inside.routes.extend(_asset_routes(assets, logins).routes)  # last, because it matches every path under /ui
    return inside


class _Desk:
    """The objects that all pages need."""

    def __init__(self, party: Party, side: Side, logins: Logins, renderer: Renderer, overview: LiveFacts) -> None:
        self._party, self._side, self._logins, self._renderer, self._overview = party, side, logins, renderer, overview
        self._versions = Versions(party)

    def _answer(self, request: Request, template: str, facts: dict[str, object], page: str = "") -> Response:
        session = self._logins.session(request)
        return self._renderer.answer(template, facts | {"page": page}, now=self._party.clock(), session=session)

    def add_live(self, router: APIRouter) -> None:
        """Add the live page, its refreshed part, and its stream of events."""
        overview = self._overview

        @router.get("")
        async def live(request: Request) -> Response:
            return self._answer(request, "live.html", await overview.live() | await latest(self._party), "Live")

        @router.get("/live")
        async def live_part(request: Request) -> Response:
            return self._answer(request, "_live.html", await overview.live())

        @router.get("/events")
        async def events(request: Request, after: Annotated[Number, Query()] = 0) -> StreamingResponse:
            return event_stream(self._party, request, after, self._told)

    def _told(self, event: Event) -> str | None:
        """Return an event as the page lists it."""
        told = tell(event, self._party.role)
        return None if told is None else self._renderer.line("_event.html", {"one": told}, now=self._party.clock())

    def add_pages(self, router: APIRouter, peer: PeerView) -> None:
        """Add the pages that take no input."""
        overview = self._overview

        @router.get("/quality")
        async def quality(request: Request) -> Response:
            return self._answer(request, "quality.html", await overview.quality(), "Quality")

        @router.get("/privacy")
        async def privacy(request: Request) -> Response:
            return self._answer(request, "privacy.html", await privacy_facts(self._party), "Privacy")

        @router.get("/guard")
        async def guard(request: Request) -> Response:
            return self._answer(request, "guard.html", await guard_facts(self._party), "Guard")

        @router.get("/devices")
        async def devices(request: Request) -> Response:
            facts: dict[str, object] = {"devices": await self._party.ledger.notable_devices(limit=_DEVICES)}
            return self._answer(request, "devices.html", facts, "Devices")

        @router.get("/peer")
        async def peer_page(request: Request) -> Response:
            return self._answer(request, "peer.html", await peer.facts(), "Peer")

        @router.get("/capacity")
        async def capacity(request: Request) -> Response:
            return self._answer(request, "capacity.html", await overview.capacity(), "Capacity")

        @router.get("/capacity/now")
        async def capacity_part(request: Request) -> Response:
            return self._answer(request, "_capacity.html", await overview.capacity())

    def add_rounds(self, router: APIRouter) -> None:
        """Add the list of rounds and the page of a round."""
        overview = self._overview

        @router.get("/rounds")
        async def rounds(request: Request, before: Before = None, kind: Word = "", state: Word = "") -> Response:
            facts = await overview.rounds(before=before, kind=kind, state=state)
            return self._answer(request, "rounds.html", facts, "Rounds")

        @router.get("/rounds/{number}")
        async def one_round(request: Request, number: Which) -> Response:
            record = await overview.find_round(number)
            if record is None:
                raise UnknownRoundError("there is no round with this number")
            facts = {"one": await round_facts(self._party, record), "story": await round_story(self._party, record)}
            return self._answer(request, "round.html", facts, "Rounds")

    def add_model(self, router: APIRouter) -> None:
        """Add the page of versions, their export, and rollbacks."""
        logins, roll_back = self._logins, self._side.roll_back

        @router.get("/model")
        async def model(request: Request) -> Response:
            return self._answer(request, "model.html", await self._model_facts(), "Model")

        @router.get("/model/versions")
        async def versions_part(request: Request) -> Response:
            return self._answer(request, "_versions.html", await self._model_facts())

        @router.get("/model/{number}/export")
        async def export(number: Which) -> Response:
            if number not in self._party.models.versions():
                raise UnknownVersionError("this version is no longer kept on this server")
            return await self._export(number)

        @router.get("/model/{number}/rollback")
        async def confirm(request: Request, number: Which) -> Response:
            logins.require_admin(request)
            facts = await self._model_facts()
            if roll_back is None:
                raise RollbackRefusedError("only server 0 can start a rollback; ask its operator")
            if number not in self._party.models.versions():
                raise RollbackRefusedError("this version is no longer kept; choose one that is")
            return self._answer(request, "rollback.html", facts | {"source": number}, "Model")

        @router.post("/model/{number}/rollback")
        async def carry_out(request: Request, number: Which) -> Response:
            order, fields = await logins.order(request)
            seen = read_number(fields.get("seen", ""))
            if roll_back is None or fields.get("sure") != "yes" or seen is None:
                raise RollbackRefusedError("to confirm the rollback, tick the box on server 0's page")
            await roll_back(number, seen, order)
            return RedirectResponse("/ui/model", 303)

    def add_control(self, router: APIRouter) -> None:
        """Add the page for controlling the task, and operators' actions."""

        @router.get("/control")
        async def control(request: Request) -> Response:
            return self._answer(request, "control.html", await self._overview.control(), "Control")

        @router.post("/control")
        async def steer(request: Request) -> Response:
            order, fields = await self._logins.order(request)
            await self._steer(fields.get("what", ""), read_number(fields.get("round", "")), order)
            return RedirectResponse("/ui/control", 303)

    async def _steer(self, what: str, number: int | None, order: Order) -> None:
        control = self._party.control
        if what in _LIFTED:
            await control.lift(_LIFTED[what], order)
        elif what not in set(What) or not order.reason:
            raise ControlRefusedError("choose an action and give a reason")
        elif number is not None:
            await control.end_round(What(what), number, order)
        else:
            await control.tell(What(what), order)

    async def _model_facts(self) -> dict[str, object]:
        return await self._versions.facts() | {"can_roll_back": self._side.roll_back is not None}

    async def _export(self, version: int) -> Response:
        models = self._party.models
        file = await self._party.workers.run(lambda: nameless(lambda path: export_weights(models.load(version), path)))
        return Download(file, f"{self._party.task.name}-v{version}.safetensors")


def _asset_routes(assets: Assets, logins: Logins) -> APIRouter:
    """Return the public scripts and styles, and a page for all other paths."""
    router = APIRouter(prefix="/ui", route_class=logins.route_class(), include_in_schema=False)

    @router.get("/static/{edition}/{name:path}")
    async def static(request: Request, edition: str, name: str) -> Response:
        found = assets.response(name) if edition == assets.edition else None
        return found if found is not None else logins.problem_page(request, NOT_FOUND, None)

    @router.get("/{rest:path}")
    async def nothing(request: Request, rest: str) -> Response:
        if not rest:
            return RedirectResponse("/ui", 303)
        return logins.problem_page(request, NOT_FOUND, None)

    return router
