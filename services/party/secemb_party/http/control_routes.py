"""How an operator steers a task: pause and resume it, drain the server, close or abort the open round."""

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
    """What an operator of this server has told it to do, and it holds."""

    by: str  # the name of an operator token
    reason: str
    at: float


class PeerPauseView(BaseModel):
    """Why the other server takes part in no new round."""

    what: str  # pause or drain
    reason: str
    since: float


class ControlView(BaseModel):
    """How a task is steered, on this server's side and as the other server has last said."""

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


Reasoned = Annotated[Order, Depends(_order)]  # who asks, and why: without a reason nobody else can understand it later


def control_routes(party: Party, operators: Operators) -> APIRouter:
    """Return what an operator of this server may do with its task."""
    router, control = operator_router(party, operators), party.control

    @router.get("/control")
    async def current() -> ControlView:
        """Return what holds."""
        return await view_control(party)

    @router.post("/pause")
    async def pause(order: Reasoned) -> ControlView:
        """Let no new round begin; a round whose deadlines run goes on to its end."""
        await control.tell(What.PAUSE, order)
        return await view_control(party)

    @router.post("/resume")
    async def resume(order: OrderOf) -> ControlView:
        """Let rounds begin again, as far as this server's operator is concerned."""
        await control.lift(What.PAUSE, order)
        return await view_control(party)

    @router.post("/drain")
    async def drain(order: Reasoned) -> ControlView:
        """Take no new session, and finish the round whose deadlines run; a restart ends the drain."""
        await control.tell(What.DRAIN, order)
        return await view_control(party)

    @router.post("/drain/end")
    async def end_drain(order: OrderOf) -> ControlView:
        """Take sessions again."""
        await control.lift(What.DRAIN, order)
        return await view_control(party)

    @router.post("/rounds/{number}/close", status_code=202, responses=problem_responses(ControlRefusedError))
    async def close(number: Which, order: Reasoned) -> ControlView:
        """Seal the open round as soon as both servers hold the smallest cohort; only server 0 can."""
        await control.end_round(What.CLOSE, number, order)
        return await view_control(party)

    @router.post("/rounds/{number}/abort", status_code=202, responses=problem_responses(ControlRefusedError))
    async def abort(number: Which, order: Reasoned) -> ControlView:
        """End the open round without a sum, on both servers."""
        await control.end_round(What.ABORT, number, order)
        return await view_control(party)

    return router


async def view_control(party: Party) -> ControlView:
    """Return how the task is steered."""
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
