"""The workers at Ray as a server sees them: a connection that is kept, and rounds that every worker has.

A lost worker is replaced, and given its round again from the model; then the call is repeated. A lost connection is
opened again in the background. Until then there is an error that says so, and the request can be repeated later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from secrets import token_hex
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from secemb_party.compute.errors import ComputeUnavailableError, LostError, MissingError, UnreachableError
from secemb_party.compute.ray.link import RayProcess, places
from secemb_party.compute.ray.messages import Options
from secemb_party.compute.slots import SlotRange, slot_ranges
from secemb_party.logs import get_logger
from secemb_shared.messages import RoundSpec
from secemb_shared.row_words import Rows

_ATTEMPTS = 3  # of a call whose workers are lost
_PAUSE, _LONGEST_PAUSE = 1.0, 15.0  # seconds between attempts to connect
_LOOK_SECONDS, _LOOK_LIMIT = 5.0, 10.0  # how often the cluster is asked whether it is there, and for how long
STARTING = "the workers at Ray are being started; wait a minute"
_START = 'start it with `ray start`, check [compute] address, or set [compute] engine = "threads"'

Open = Callable[[Options], RayProcess]
Forgotten = tuple["PlacedRound", str, tuple[str, ...]]


@dataclass(slots=True)
class PlacedRound:
    """A round, the ranges of its slots by worker, and which workers have it."""

    spec: RoundSpec
    rows: Rows
    ranges: list[SlotRange]
    name: str = field(default_factory=lambda: token_hex(8))
    known_to: dict[int, int] = field(default_factory=dict)  # worker's place: the worker's number
    link: RayProcess | None = None
    preparing: Lock = field(default_factory=Lock)


class RayWorkers:
    """All workers of one server."""

    def __init__(
        self, options: Options, *, open_link: Open = RayProcess, replaced: Callable[[int], None] | None = None
    ) -> None:
        self._options, self._open = options, open_link
        self._replaced = replaced or (lambda _count: None)
        self._link: RayProcess | None = None
        self._closed, self._connected = Event(), Event()
        self._changing = Lock()
        self.fault: str | None = STARTING
        self._unused: SimpleQueue[Forgotten | None] = SimpleQueue()
        self._threads = [
            Thread(target=work, name="ray-link", daemon=True) for work in (self._keep, self._forget_unused)
        ]
        for thread in self._threads:
            thread.start()

    def _keep(self) -> None:
        """Keep a connection open until this object is closed."""
        pause = _PAUSE
        while not self._closed.is_set():
            try:
                self._link = link = self._open(self._options)
            except UnreachableError as error:
                self._tell(error)
                self._closed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            self.fault, pause = None, _PAUSE
            self._connected.set()
            get_logger().info("connected to Ray", workers=self._options.workers)
            self._watch(link)
            self._connected.clear()
            self._link = None
            if not self._closed.is_set():
                self.fault = "the connection to Ray was lost and is being opened again; " + _START
                get_logger().warning("lost the connection to Ray", address=self._options.address)

    def _tell(self, error: UnreachableError) -> None:
        text = str(error)
        room = "no room" in text or "install the same" in text
        fault = text if room else "Ray cannot be reached: " + _START
        if fault != self.fault:
            where = f"Ray cannot be reached at {self._options.address} ({text}): {_START}"
            get_logger().warning(text if room else where)
        self.fault = fault

    def _watch(self, link: RayProcess) -> None:
        """Wait until the connection is lost; ask now and then, because a cluster can vanish without a sign."""
        while not link.lost.wait(_LOOK_SECONDS):
            try:
                link.call("nodes", seconds=_LOOK_LIMIT)
            except (LostError, Exception):
                link.close()

    def connected(self, seconds: float) -> bool:
        """Wait until there are workers, at most for so long; return whether there are."""
        return self._connected.wait(seconds) and self.fault is None

    def close(self) -> None:
        """End the workers."""
        self._closed.set()
        link = self._link
        if link is not None:
            link.close()
        self._unused.put(None)
        for thread in self._threads:
            thread.join(5.0)

    def place(self, spec: RoundSpec, rows: Rows) -> PlacedRound:
        """Let all workers prepare a round."""
        round_ = PlacedRound(spec, rows, slot_ranges(spec.task.geometry, self._options.workers))
        self.call(round_, lambda link: None)
        return round_

    def each(self, round_: PlacedRound, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method for each range of a round; repeat it with new workers if some are lost."""
        found: list[Any] = self.call(round_, lambda link: self.once(link, round_, method, arguments))
        return found

    def once(
        self, link: RayProcess, round_: PlacedRound, method: str, arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Call a method for each range, once."""
        return link.each(method, places(len(round_.ranges), [(round_.name, *own) for own in arguments]))

    def call(self, round_: PlacedRound, work: Callable[[RayProcess], Any]) -> Any:
        """Return the result of work that may be repeated, once all workers have the round."""
        for _ in range(_ATTEMPTS):
            link = self.link()
            try:
                self.prepare(link, round_)
                return work(link)
            except LostError:
                self._replace(link)
            except MissingError:
                round_.link = None  # all workers prepare it again
            except UnreachableError as error:
                self._tell(error)
                link.close()
        raise ComputeUnavailableError("workers at Ray were lost repeatedly")

    def link(self) -> RayProcess:
        """Return the connection."""
        link = self._link
        if link is None or link.lost.is_set():
            raise ComputeUnavailableError(self.fault or STARTING)
        return link

    def _replace(self, link: RayProcess) -> None:
        """Replace lost workers, and give up a connection through which that is not possible."""
        if link.lost.is_set():
            return
        with self._changing:
            start, before = monotonic(), list(link.incarnations)
            try:
                link.call("nodes", seconds=_LOOK_LIMIT)  # if the cluster is gone, this shows it sooner
                after = link.restart_lost()
            except (LostError, UnreachableError) as error:
                get_logger().warning("cannot replace lost workers at Ray", reason=str(error))
                if isinstance(error, UnreachableError):
                    self._tell(error)
                link.close()
                return
            count = sum(one != other for one, other in zip(before, after, strict=True))
            if count:
                self._replaced(count)
                get_logger().warning("replaced lost workers", workers=count, seconds=round(monotonic() - start, 1))

    def prepare(self, link: RayProcess, round_: PlacedRound) -> None:
        """Let those workers prepare a round that do not have it."""
        with round_.preparing:
            if round_.link is not link:
                round_.link, round_.known_to = link, {}
            now = list(link.incarnations)
            missing = [place for place in range(len(round_.ranges)) if round_.known_to.get(place) != now[place]]
            if not missing:
                return
            rows = link.share(round_.rows)
            task, spec = round_.spec.task.encode(), round_.spec.encode()
            try:
                link.each(
                    "prepare", {place: (round_.name, task, spec, round_.ranges[place], rows) for place in missing}
                )
            finally:
                if not link.lost.is_set():
                    link.call("drop", rows)
            round_.known_to |= {place: now[place] for place in missing}

    def forget_later(self, round_: PlacedRound, method: str, *names: str) -> None:
        """Do what `forget` does, soon. The garbage collector may call this anywhere, so it takes no lock."""
        self._unused.put((round_, method, names))

    def _forget_unused(self) -> None:
        while (found := self._unused.get()) is not None:
            round_, method, names = found
            self.forget(round_, method, *names)

    def forget(self, round_: PlacedRound, method: str, *names: str) -> None:
        """Tell the workers that something is no longer needed; if they are lost, so is that."""
        link = round_.link
        if link is None or link.lost.is_set():
            return
        try:
            self.once(link, round_, method, [names for _ in round_.ranges])
        except Exception:  # a worker that was lost has forgotten it
            return
