"""Routes by which operators see, start, stop and archive the tasks of a server."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from secemb_party.errors import LedgerUnavailableError, MediaTypeError, RequestInvalidError, SlowBodyError
from secemb_party.http.control_routes import Reasoned
from secemb_party.http.operator_routes import operator_router
from secemb_party.http.problems import problem_responses
from secemb_party.http.request_body import Patience, read_small
from secemb_party.http.requests import JSON, describe_json, parse_message, require_media_type
from secemb_party.operators import Operators
from secemb_party.tenancy.errors import TaskControlError, UnknownTaskError
from secemb_party.tenancy.host import Host
from secemb_party.tenancy.standings import TaskStanding
from secemb_shared.catalogue import LARGEST
from secemb_shared.errors import LengthError

_MOST_BYTES = 2 * LARGEST + (1 << 20)  # JSON may need two bytes for one
_PATIENCE = Patience(seconds=120.0, rate=0.0)
_REFUSED = problem_responses(
    TaskControlError,
    UnknownTaskError,
    LedgerUnavailableError,
    LengthError,
    RequestInvalidError,
    SlowBodyError,
    MediaTypeError,
)
Which = Annotated[str, Path(pattern="^[0-9a-f]{4,64}$", description="the id of a task, or its first digits")]


class StartRequest(BaseModel):
    """The files of a task that this server does not have yet."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(max_length=1 << 16)  # the content of task.json
    catalogue: str | None = None  # the content of catalogue.csv, if the task has one


class TaskStandingView(BaseModel):
    """A task that this server knows."""

    task: str  # its id
    name: str
    # running, succeeded, stopped, archived, failed, new if it was never started, or earlier if it ran alone before
    state: str
    in_settings: bool  # the settings name its file
    fault: str | None  # why it cannot run


def task_control_routes(host: Host, operators: Operators) -> APIRouter:
    """Return the routes; they exist whichever tasks run."""
    inner = operator_router(host, operators)
    router = APIRouter(prefix=f"{inner.prefix}/tasks", tags=["operator"], dependencies=inner.dependencies)

    @router.get("")
    async def tasks() -> list[TaskStandingView]:
        """Return all tasks that this server knows."""
        return [_view(one) for one in await host.standings()]

    @router.post("/start", responses=_REFUSED, openapi_extra=_body(StartRequest))
    async def start_new(request: Request, order: Reasoned) -> TaskStandingView:
        """Store the files of a task and start it. It opens rounds once the other server runs it as well."""
        require_media_type(request, JSON)
        given = parse_message(StartRequest, await read_small(request, _PATIENCE, most=_MOST_BYTES))
        catalogue = given.catalogue.encode() if given.catalogue is not None else None
        return _view(await host.add(given.task.encode(), catalogue, order))

    @router.post("/{task}/start", responses=_REFUSED)
    async def start(task: Which, order: Reasoned) -> TaskStandingView:
        """Start a task whose files are here."""
        return _view(await host.start(await host.identify(task), order))

    @router.post("/{task}/stop", responses=_REFUSED)
    async def stop(task: Which, order: Reasoned) -> TaskStandingView:
        """Stop a task. An unfinished round goes on when the task is started again."""
        return _view(await host.stop(await host.identify(task), order))

    @router.post("/{task}/archive", responses=_REFUSED)
    async def archive(task: Which, order: Reasoned) -> TaskStandingView:
        """Remove the model and the bodies of a stopped task for good. Its rows in the ledger are kept."""
        return _view(await host.archive(await host.identify(task), order))

    return router


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **describe_json(kind)}}


def _view(one: TaskStanding) -> TaskStandingView:
    return TaskStandingView(
        task=one.task_id.hex(), name=one.name, state=one.state, in_settings=one.in_settings, fault=one.fault
    )
