"""What a device may ask either server about its task. Keys and updates are in `uploads`, tables in `tables`."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel

from secemb_party.errors import UnknownTaskError, UnknownVersionError
from secemb_party.http.problems import problem_responses
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.party import Party

TaskHex = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
RoundHex = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
SessionHex = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class TaskView(BaseModel):
    """A task as a server announces it; the device compares both servers' words."""

    task: str  # canonical form
    round: str | None  # canonical form of the current round
    model_version: int
    model_digest: str


def device_routes(party: Party) -> APIRouter:
    """Return the routes that both servers offer to devices."""
    router = APIRouter(prefix="/v1", tags=["devices"])

    @router.get("/tasks/{task}", responses=problem_responses(UnknownTaskError, LedgerUnavailableError))
    async def task(task: TaskHex) -> TaskView:
        """Return the task's public configuration, the current round and the published model."""
        return await view_task(party, task)

    return router


def check_task(party: Party, task: str) -> None:
    """Refuse any task but the one that is served here."""
    if bytes.fromhex(task) != party.task.task_id:
        raise UnknownTaskError("this server does not serve that task")


async def view_task(party: Party, task: str) -> TaskView:
    """Return what this server says about its task."""
    check_task(party, task)
    published = await party.ledger.published_version(party.task.task_id)
    if published is None:
        raise UnknownVersionError("no model is published yet; come back later")
    current = await party.ledger.current_round(party.task.task_id)
    return TaskView(
        task=party.task.encode().decode(),
        round=current.spec.decode() if current is not None else None,
        model_version=published.version,
        model_digest=published.digest.hex(),
    )
