"""Routes for controlling a task: pause and resume it, drain the server, close or abort the open round."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel

from secemb_party.errors import ControlRefusedError
from secemb_party.http.operator_routes import OrderOf, operator_router
from secemb_party.http.problems import problem_responses
from secemb_party.http.requests import Number, Reason
from secemb_party.ledger import Instruction, What
from secemb_party.operators import Operator, Operators, Order
from secemb_party.service import Party

Which = Annotated[Number, Path(description="the number of the open round")]


class InstructionView(BaseModel):
    """An instruction by an operator of this server that is in force."""

    by: str  # the name of an operator token
    reason: str
    at: float


class PeerPauseView(BaseModel):
    """Why the other server is not joining new rounds."""

    what: str  # pause or drain
    reason: str
    since: float


class ControlView(BaseModel):
    """The instructions in force for a task, on this server and as last reported by the other server."""

    paused: InstructionView | None
    draining: InstructionView | None
    safe_to_stop: bool  # a server that was drained has finished its round
    unfinished: str | None  # what it must finish before
    closing: InstructionView | None  # of the open round
    aborting: InstructionView | None
    peer: PeerPauseView | None


def _order(request: Request, reason: Annotated[Reason, Query(description="the reason, for the record")]) -> Order:
    operator: Operator = request.state.operator
    return Order(operator.name, reason)


Reasoned = Annotated[Order, Depends(_order)]  # who and why: without a reason, no one else can understand it later


def control_routes(party: Party, operators: Operators) -> APIRouter:
    """Return the routes for controlling the task of this server."""
    router, control = operator_router(party, operators), party.control

    @router.get("/control")
    async def current() -> ControlView:
        """Return the instructions in force."""
        return await view_control(party)

    @router.post("/pause")
    async def pause(order: Reasoned) -> ControlView:
        """Open no new rounds. A round that is running toward its deadline finishes."""
        await control.tell(What.PAUSE, order)
        return await view_control(party)

    @router.post("/resume")
    async def resume(order: OrderOf) -> ControlView:
        """Let rounds open again, unless the other server is paused."""
        await control.lift(What.PAUSE, order)
        return await view_control(party)

    @router.post("/drain")
    async def drain(order: Reasoned) -> ControlView:
        """Accept no new sessions, and finish a round that is running toward its deadline. A restart ends the drain."""
        await control.tell(What.DRAIN, order)
        return await view_control(party)

    @router.post("/drain/end")
    async def end_drain(order: OrderOf) -> ControlView:
        """Accept sessions again."""
        await control.lift(What.DRAIN, order)
        return await view_control(party)

    @router.post("/rounds/{number}/close", status_code=202, responses=problem_responses(ControlRefusedError))
    async def close(number: Which, order: Reasoned) -> ControlView:
        """Seal the open round as soon as both servers have the minimum cohort. Server 0 only."""
        await control.end_round(What.CLOSE, number, order)
        return await view_control(party)

    @router.post("/rounds/{number}/abort", status_code=202, responses=problem_responses(ControlRefusedError))
    async def abort(number: Which, order: Reasoned) -> ControlView:
        """End the open round without a sum, on both servers."""
        await control.end_round(What.ABORT, number, order)
        return await view_control(party)

    return router


async def view_control(party: Party) -> ControlView:
    """Return the instructions in force."""
    control, current = party.control, await party.ledger.current_round(party.task.task_id)
    ending = control.of_round(current.round_id) if current is not None else None
    unfinished = await control.unfinished() if control.drain is not None else None
    there = control.there
    return ControlView(
        paused=_view(control.pause),
        draining=_view(control.drain),
        safe_to_stop=await control.drained(),
        unfinished=unfinished,
        closing=_view(ending) if ending is not None and ending.what is What.CLOSE else None,
        aborting=_view(ending) if ending is not None and ending.what is What.ABORT else None,
        peer=PeerPauseView(**there.model_dump()) if there is not None else None,
    )


def _view(one: Instruction | None) -> InstructionView | None:
    return InstructionView(by=one.by, reason=one.reason, at=one.at) if one is not None else None
