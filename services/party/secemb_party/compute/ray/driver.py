"""The process that reaches Ray for a server. It passes calls on to the workers, and keeps nothing of its own.

Ray ends a process whose cluster has been gone for a minute. This is a process of its own for that reason: the server
survives, starts another one, and never imports Ray. `link.py` is its other end.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import RayError, RayTaskError

from secemb_party.compute.errors import CallError, LostError, MissingError, UnreachableError
from secemb_party.compute.ray.messages import Options, Shared, receive, send
from secemb_party.compute.ray.worker import Worker

_CALLS = 32  # at a time; the server makes fewer


class Cluster:
    """The workers at Ray. A lost one is dropped, and replaced when the server asks for that."""

    def __init__(self, options: Options) -> None:
        self._options, self._changing = options, Lock()
        self._workers: list[Any] = [None] * options.workers
        self._incarnations = [0] * options.workers
        self._arrays: dict[int, Any] = {}
        self._parts: dict[int, npt.NDArray[Any]] = {}
        self._numbered = 0
        try:
            ray.init(address=options.address, configure_logging=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RayError, RuntimeError, ValueError, OSError) as error:
            raise UnreachableError(_first_line(error)) from None
        self._actor = ray.remote(Worker).options(
            num_cpus=1,
            memory=options.memory_bytes,
            max_restarts=0,  # a new worker has none of the old one's rounds: the server prepares them
            max_task_retries=0,  # an update must not be added twice
            scheduling_strategy="SPREAD",
        )

    def start(self) -> list[int]:
        """Start the workers that are missing; return a number for each, which is new if the worker is."""
        with self._changing:
            missing = [place for place, worker in enumerate(self._workers) if worker is None]
            started: dict[int, Any] = {place: self._actor.remote() for place in missing}
            found = {place: worker.versions.remote() for place, worker in started.items()}
            self._await(started.values(), list(found.values()))
            for place, versions in found.items():
                _check_versions(_result(versions, self._options.call_seconds), Worker().versions())
                self._workers[place] = started[place]
                self._incarnations[place] += 1
            return list(self._incarnations)

    def _await(self, started: Iterable[Any], found: list[Any]) -> None:
        """Wait until Ray has found room for all workers, or end them."""
        if not found:
            return
        _, waiting = ray.wait(found, num_returns=len(found), timeout=self._options.start_seconds)
        if waiting:
            for worker in started:
                ray.kill(worker)
            raise UnreachableError(_no_room(self._options, len(waiting)))

    def nodes(self) -> int:
        """Return the number of machines; it also shows that the cluster still answers."""
        return sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]

    def receive_part(self, number: int | None, shape: tuple[int, ...], start: int, part: npt.NDArray[Any]) -> int:
        """Take a part of an array; return the number of the array."""
        if number is None:
            self._numbered += 1
            number = self._numbered
            self._parts[number] = np.empty(shape, dtype=part.dtype)
        self._parts[number][start : start + len(part)] = part
        return number

    def put(self, number: int) -> Shared:
        """Put an array that has been received into the object store, once for all workers."""
        self._arrays[number] = ray.put(self._parts.pop(number))
        return Shared(number)

    def drop(self, shared: Shared) -> None:
        """Drop an array from the object store."""
        self._arrays.pop(shared.number, None)

    def each(self, method: str, calls: dict[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of several workers at a time; return the results in order."""
        workers = {place: self._workers[place] for place in calls}
        if None in workers.values():
            raise LostError("a worker was lost")
        running = {place: self._begin(worker, method, calls[place]) for place, worker in workers.items()}
        end, found, lost = monotonic() + self._options.call_seconds, [], ""
        for place, reference in running.items():
            try:
                found.append(_result(reference, max(0.0, end - monotonic())))
            except LostError as error:
                lost = str(error)
                self._lose(place, workers[place])
        if lost:
            raise LostError(lost)
        return found

    def _begin(self, worker: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        given = (self._arrays[one.number] if isinstance(one, Shared) else one for one in arguments)
        return getattr(worker, method).remote(*given)

    def _lose(self, place: int, worker: Any) -> None:
        with self._changing:
            if self._workers[place] is worker:
                self._workers[place] = None
        ray.kill(worker)  # it may only be slow, and must not go on with what was given up


def _result(reference: Any, seconds: float) -> Any:
    """Return the result of a call; an error of a worker's own code is raised as it was there."""
    try:
        return ray.get(reference, timeout=seconds)
    except RayTaskError as error:
        if isinstance(error.cause, MissingError):
            raise MissingError(str(error.cause)) from None
        raise CallError(f"{type(error.cause).__name__} in a worker") from None
    except (RayError, TimeoutError) as error:  # the cause may quote a message: only its kind is told
        raise LostError(type(error).__name__) from None


def _check_versions(there: tuple[str, str], here: tuple[str, str]) -> None:
    if there != here:
        raise UnreachableError(
            f"a Ray node has secemb {there[0]} with Python {there[1]}, and this server secemb {here[0]} with Python"
            f" {here[1]}: install the same on all machines"
        )


def _no_room(options: Options, missing: int) -> str:
    reserved = f" and {options.memory_bytes:,} bytes of memory" if options.memory_bytes else ""
    return (
        f"Ray has no room for {missing} of {options.workers} workers, each with one CPU{reserved}: add a machine with"
        " `ray start --address=…`, or lower [compute] workers"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class CallServer:
    """Answers the server's calls, several at a time."""

    def __init__(self, connection: Connection, cluster: Cluster) -> None:
        self._connection, self._sending = connection, Lock()
        self._methods: dict[str, Callable[..., Any]] = {
            name: getattr(cluster, name) for name in ("start", "nodes", "receive_part", "put", "drop", "each")
        }

    def run(self) -> None:
        """Serve until the server is gone."""
        with ThreadPoolExecutor(_CALLS) as pool:
            for number, method, arguments in self._calls():
                pool.submit(self._answer, number, method, arguments)

    def _calls(self) -> Iterator[tuple[int, str, Sequence[Any]]]:
        while True:
            try:
                yield receive(self._connection)
            except (EOFError, OSError):
                os._exit(0)  # the workers end with this process; waiting for their calls would only delay that

    def _answer(self, number: int, method: str, arguments: Sequence[Any]) -> None:
        error: Exception | None = None
        found = None
        try:
            found = self._methods[method](*arguments)
        except (LostError, MissingError, UnreachableError, CallError) as known:
            error = known
        except RayError as unknown:
            error = LostError(type(unknown).__name__)
        except Exception as unknown:
            error = CallError(type(unknown).__name__)
        with self._sending:
            send(self._connection, (number, found, error))


def main(descriptor: int) -> None:
    """Connect to Ray as the server says, and serve its calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends this process by closing the connection
    connection = Connection(descriptor)
    options: Options = receive(connection)
    try:
        cluster = Cluster(options)
        send(connection, (0, [], None))
        send(connection, (0, cluster.start(), None))
    except (UnreachableError, LostError, CallError) as error:
        send(connection, (0, None, UnreachableError(str(error))))
        os._exit(1)
    CallServer(connection, cluster).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
