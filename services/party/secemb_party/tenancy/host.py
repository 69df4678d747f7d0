"""The tasks that one server runs, started and stopped while it serves.

Each task has a party and apps of its own. They share the ledger, the workers and the listeners, and nothing that one
task waits for: a task that is paused, stuck or finished does not delay another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from secemb_party.errors import LedgerUnavailableError, SettingsError, StorageUnavailableError
from secemb_party.ledger import Ledger, TaskRecord, TaskState
from secemb_party.logs import Outage, get_logger, task_lines
from secemb_party.metric_labels import short_id
from secemb_party.metrics import Metrics
from secemb_party.operators import Order
from secemb_party.parts import Clock, Parts
from secemb_party.service import Check, Party
from secemb_party.succession.links import read_link
from secemb_party.tenancy.errors import TaskChoiceError, TaskControlError, TaskStoppedError, UnknownTaskError
from secemb_party.tenancy.places import TaskPlace, TaskPlaces
from secemb_party.tenancy.removal import remove_data
from secemb_party.tenancy.standings import TaskStanding, merge, should_run
from secemb_shared.errors import SecEmbError
from secemb_shared.messages import TaskSpec

App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI
Work = Callable[[], Coroutine[Any, Any, None]]
_PASSING = (LedgerUnavailableError, StorageUnavailableError)
_RETRY_SECONDS = 10.0
_SHORTEST = 4  # digits by which a task can be named
_BY_BOTH = Order("both operators", "the servers switched to this successor")
_STOPPED = "the operator of this server has stopped the task; `secemb task start` starts it again"
_ARCHIVED = "the operators have ended this task; ask them for the next one"
_NONE = "no task is running on this server; start one with `secemb task start`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """A task that runs here."""

    party: Party
    devices: App
    ready: Callable[[], Awaitable[Sequence[Check]]]
    operator: App | None = None  # None: there is no operator's interface
    peer: App | None = None  # on server 1
    work: Sequence[Work] = ()  # loops that run until the task has a successor, or is stopped
    upkeep: Sequence[Work] = ()  # loops that run until the task is stopped

    @property
    def short(self) -> str:
        """Return the short id of the task."""
        return short_id(self.party.task.task_id)

    @property
    def succeeded(self) -> bool:
        """Return whether the task has a successor: it is here only for devices that have not followed yet."""
        return self.party.successions.link is not None


class Host:
    """The tasks of one server."""

    def __init__(
        self,
        ledger: Ledger,
        files: TaskPlaces,
        *,
        make_parts: Callable[[TaskPlace], Parts],
        assemble: Callable[[Party], Hosted],
        metrics: Metrics,
        clock: Clock,
        close: Work,
    ) -> None:
        self.ledger, self.files, self.metrics, self.clock = ledger, files, metrics, clock
        self._make_parts, self._assemble = make_parts, assemble
        self.running: dict[bytes, Hosted] = {}
        self._refusals: dict[bytes, str] = {}  # of tasks that are known here and do not run: what devices are told
        self._faults: dict[bytes, str] = {}  # of tasks that should run and cannot
        self._loops: dict[bytes, list[asyncio.Task[None]]] = {}
        self._retired: set[bytes] = set()  # tasks with a successor, whose loops have ended
        self._serving = False
        self._changing = asyncio.Lock()
        self._switched = asyncio.Event()  # a task has got a successor, which should run
        self.close = close  # what the tasks share

    async def open(self) -> None:
        """Open all tasks that should run. If none can be opened, raise what is wrong with the first."""
        first: Exception | None = None
        for place in self.files.all().values():
            record = await self.ledger.task(place.task.task_id)
            if should_run(record, place):
                first = await self._try(place) or first
            elif record is not None and record.state is not None:
                await self._note_rest(record)
        for record in await self.ledger.tasks():
            known = record.task_id in self.running or record.task_id in self._refusals
            if record.state is TaskState.RUNNING and not known and record.task_id not in self._faults:
                self._fail(record.task_id, SettingsError("its files are missing; start it again with its task.json"))
            elif record.state is not None and not known:
                await self._note_rest(record)
        await self._follow()
        if first is not None and not self.running:
            raise first

    async def _follow(self) -> None:
        """Start the successors of tasks that both servers have ended, unless an operator has decided otherwise."""
        ended = [one for one in self.running.values() if one.succeeded]
        for hosted in ended:  # grows with each successor that has one itself
            link = hosted.party.successions.link
            if link is None or link.task.task_id in self.running:
                continue
            task_id, spec = link.task.task_id, link.task.encode()
            record = await self.ledger.task(task_id)
            if record is not None and record.state is not None:
                continue
            try:
                catalogue = await asyncio.to_thread(hosted.party.successions.catalogue)
                await asyncio.to_thread(self.files.add, spec, catalogue)
            except (OSError, TaskControlError) as error:  # a full disk, or a ledger restored without these files
                self._fail(task_id, error)
                continue
            await self.ledger.start_task(task_id, spec, _BY_BOTH, self.clock())
            if await self._try(self.files.all()[task_id]) is None:
                get_logger().info("the successor runs", task=short_id(task_id))
                ended += [self.running[task_id]] if self.running[task_id].succeeded else []

    async def _retire(self) -> None:
        """End the rounds of tasks that have a successor; they only serve the link from now on."""
        for task_id, hosted in self.running.items():
            if hosted.succeeded and task_id in self._loops and task_id not in self._retired:
                await self._end(task_id)
                self._begin(hosted)

    async def _note_rest(self, record: TaskRecord) -> None:
        """Note why a task does not run; complete an archiving that a crash has interrupted."""
        archived = record.state is TaskState.ARCHIVED
        self._refusals[record.task_id] = _ARCHIVED if archived else _STOPPED
        if archived:
            await self._remove(record.task_id)

    async def _try(self, place: TaskPlace) -> Exception | None:
        """Open a task; return what is wrong, unless a retry of the whole startup may help."""
        task_id = place.task.task_id
        try:
            await self._admit(place)
        except _PASSING:
            raise
        except Exception as error:
            self._fail(task_id, error)
            return error
        return None

    def _fail(self, task_id: bytes, error: Exception) -> None:
        told = str(error) if isinstance(error, SecEmbError) else f"{type(error).__name__}; see the log"
        if self._faults.get(task_id) != told:
            with task_lines(short_id(task_id)):
                get_logger().error("the task cannot start", reason=told[:200], exc_info=error)
        self._faults[task_id], self._refusals[task_id] = told, _STOPPED
        self.metrics.of_task(task_id).task_phase("starting", number=None, since=self.clock())

    async def _admit(self, place: TaskPlace) -> Hosted:
        with task_lines(short_id(place.task.task_id)):
            party = Party(self._make_parts(place))
            await party.start()
            hosted = self._assemble(party)
            party.successions.found = lambda _link: self._switched.set()
            self._faults.pop(place.task.task_id, None)
            self._refusals.pop(place.task.task_id, None)
            self.running[place.task.task_id] = hosted
            if self._serving:
                self._begin(hosted)
        return hosted

    def _begin(self, hosted: Hosted) -> None:
        task_id, loops = hosted.party.task.task_id, [*hosted.upkeep, *([] if hosted.succeeded else hosted.work)]
        if hosted.succeeded:
            self._retired.add(task_id)
            hosted.party.metrics.forget_task()
        with task_lines(hosted.short):  # the loops keep the context in which they are created
            self._loops[task_id] = [asyncio.ensure_future(one()) for one in loops]

    async def run(self) -> None:
        """Do the work of all tasks, and retry those that cannot start, until cancelled."""
        self._serving = True
        failing = Outage("tasks could not be retried", "tasks can be retried again")
        try:
            for hosted in self.running.values():
                self._begin(hosted)
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._switched.wait(), _RETRY_SECONDS)
                switched = self._switched.is_set()
                self._switched.clear()
                try:
                    await self.check(retire=not switched)
                    failing.worked()
                except Exception as error:
                    failing.failed(type(error).__name__, error)
        finally:
            self._serving = False
            for task_id in list(self._loops):
                await self._end(task_id)

    async def check(self, *, retire: bool = True) -> None:
        """Try tasks that could not start, start successors, and do what an operator has told another replica."""
        async with self._changing:
            await self._follow()
            if retire:  # not at once: the task first shows that it has ended
                await self._retire()
            for task_id, place in (await asyncio.to_thread(self.files.all)).items():
                record, runs = await self.ledger.task(task_id), task_id in self.running
                if not runs and should_run(record, place):
                    await self._try(place)
                elif runs and not should_run(record, place):
                    await self._release(task_id, _STOPPED)

    async def _end(self, task_id: bytes) -> None:
        loops = self._loops.pop(task_id, [])
        self._retired.discard(task_id)
        for one in loops:
            one.cancel()
        for one in loops:
            with suppress(asyncio.CancelledError):
                await one

    # Operators' changes.

    async def start(self, task_id: bytes, order: Order) -> TaskStanding:
        """Start a task whose files are here; it is opened first, so that a task that cannot run is refused."""
        async with self._changing:
            place = self.files.all().get(task_id)
            record = await self.ledger.task(task_id)
            if record is not None and record.state is TaskState.ARCHIVED:
                place = None
            if place is None:
                raise TaskControlError(
                    "this server has no files of the task; give its task.json to `secemb task start`, unless it was"
                    " archived"
                )
            if task_id not in self.running:
                await self._admit(place)
            await self.ledger.start_task(task_id, place.task.encode(), order, self.clock())
            get_logger().info("operator: task start", by=order.by, reason=order.reason, task=short_id(task_id))
        return await self.standing(task_id)

    async def add(self, spec: bytes, catalogue: bytes | None, order: Order) -> TaskStanding:
        """Store the files of a task and start it."""
        async with self._changing:
            task = await asyncio.to_thread(self.files.add, spec, catalogue)
        return await self.start(task.task_id, order)

    async def stop(self, task_id: bytes, order: Order) -> TaskStanding:
        """Stop a task. Its unfinished round stays as it is, and goes on when the task is started again."""
        async with self._changing:
            await self._known(task_id)
            await self.ledger.stop_task(task_id, order, self.clock())
            await self._release(task_id, _STOPPED)
            get_logger().info("operator: task stop", by=order.by, reason=order.reason, task=short_id(task_id))
        return await self.standing(task_id)

    async def archive(self, task_id: bytes, order: Order) -> TaskStanding:
        """Remove a stopped task's model and bodies for good; its rows in the ledger are kept."""
        async with self._changing:
            await self._known(task_id)
            await self._check_unneeded(task_id)
            await self.ledger.archive_task(task_id, order, self.clock())
            self._refusals[task_id] = _ARCHIVED
            await self._remove(task_id)
            get_logger().info("operator: task archive", by=order.by, reason=order.reason, task=short_id(task_id))
        return await self.standing(task_id)

    async def _check_unneeded(self, task_id: bytes) -> None:
        link = await read_link(self.ledger, task_id)
        after = await self.ledger.task(link.task.task_id) if link is not None else None
        if link is not None and (after is None or after.state is not TaskState.ARCHIVED):
            raise TaskControlError(
                "devices that were away follow this task to its successor; keep it, or archive its successor first"
            )

    async def _known(self, task_id: bytes) -> TaskRecord:
        record = await self.ledger.task(task_id)
        if record is None:
            raise UnknownTaskError("this server does not know the task; `secemb task list` shows those that it knows")
        return record

    async def _release(self, task_id: bytes, why: str) -> None:
        self._refusals[task_id] = why
        self._faults.pop(task_id, None)
        hosted = self.running.pop(task_id, None)
        await self._end(task_id)
        if hosted is not None:
            hosted.party.metrics.forget_task()

    async def _remove(self, task_id: bytes) -> None:
        """Remove the data and then the files of an archived task; at the next start this is repeated if interrupted."""
        place = self.files.all().get(task_id)
        if place is not None:
            await remove_data(self._make_parts(place))
            self.files.remove(task_id)

    # What runs here.

    def find(self, task_id: bytes) -> Hosted:
        """Return a task that runs here, or raise with what the caller can do."""
        hosted = self.running.get(task_id)
        if hosted is not None:
            return hosted
        if task_id in self._refusals:
            raise TaskStoppedError(self._refusals[task_id])
        raise UnknownTaskError("this server does not serve that task")

    async def of_round(self, round_id: bytes) -> Hosted:
        """Return the task of a round; a round that nobody knows is refused by the only task, if there is one."""
        record = None if self.only is not None else await self.ledger.round(round_id)
        if record is not None:
            return self.find(record.task_id)
        if self.running:
            return next(iter(self.running.values()))  # it refuses the round
        raise TaskStoppedError(_NONE)

    @property
    def only(self) -> Hosted | None:
        """Return the task if there is only one, and no other that could be meant."""
        if len(self.running) != 1 or self._refusals:
            return None
        return next(iter(self.running.values()))

    def choose(self, named: str | None) -> Hosted:
        """Return the task of this id or short id; without one, the only task that runs here."""
        if named is not None:
            found = [one for one in {**self._refusals, **self.running} if one.hex().startswith(named)]
            if len(named) < _SHORTEST or len(found) != 1:
                raise UnknownTaskError("this server does not know that task; `secemb task list` shows those it knows")
            return self.find(found[0])
        current = [one for one in self.running.values() if not one.succeeded]
        if len(current) == 1 or len(self.running) == 1:
            return next(iter(current or self.running.values()))
        if not self.running:
            raise TaskStoppedError(_NONE)
        tasks = ", ".join(f"{one.short} ({one.party.task.name})" for one in self.running.values())
        raise TaskChoiceError(f"several tasks run on this server; name one of them with --task: {tasks}"[:240])

    def known(self) -> set[bytes]:
        """Return the tasks that run here or may be started again."""
        return {*self.running, *self._refusals}

    async def identify(self, named: str) -> bytes:
        """Return the task whose id begins with these digits."""
        found = [one.task_id for one in await self.standings() if one.task_id.hex().startswith(named)]
        if len(found) != 1:
            raise UnknownTaskError(f"{len(found) or 'no'} tasks here have an id that begins like this")
        return found[0]

    async def standing(self, task_id: bytes) -> TaskStanding:
        """Return what is known about one task."""
        return next(one for one in await self.standings() if one.task_id == task_id)

    async def standings(self) -> list[TaskStanding]:
        """Return all tasks that this server knows: those with files, and those in its ledger."""
        places, records = self.files.all(), {one.task_id: one for one in await self.ledger.tasks()}
        specs = {task_id: TaskSpec.decode(record.spec) for task_id, record in records.items()}
        specs |= {task_id: place.task for task_id, place in places.items()}
        return [
            TaskStanding(
                task_id=task_id,
                name=spec.name,
                state=self._state(task_id, records.get(task_id)),
                in_settings=task_id in places and places[task_id].in_settings,
                fault=self._faults.get(task_id),
            )
            for task_id, spec in specs.items()
        ]

    def _state(self, task_id: bytes, record: TaskRecord | None) -> str:
        if task_id in self.running:
            return "succeeded" if self.running[task_id].succeeded else TaskState.RUNNING.value
        if task_id in self._faults:
            return "failed"
        if record is not None and record.state is not None:
            return record.state.value
        return "new" if record is None else "earlier"

    async def readiness(self) -> list[Check]:
        """Return the conditions of all tasks: the server is ready if one of them is."""
        current = [one for one in self.running.values() if not one.succeeded] or list(self.running.values())
        found = {one.short: list(await one.ready()) for one in current}
        faults = [Check(f"task {short_id(one)}", False, text, blocks=False) for one, text in self._faults.items()]
        if not found:
            return [*faults, Check("tasks", False, _NONE)]
        checks = next(iter(found.values())) if len(found) == 1 else merge(found)
        return [*checks, *faults]
