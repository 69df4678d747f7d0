"""Workers in this process in the place of workers at Ray, which are lost when a test says so."""

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

import numpy.typing as npt

from secemb_party.compute.errors import LostError, UnreachableError
from secemb_party.compute.ray.link import RayProcess
from secemb_party.compute.ray.messages import Options, Shared
from secemb_party.compute.ray.remote import RayCompute
from secemb_party.compute.ray.worker import Worker
from secemb_party.compute.threads import Workers
from secemb_shared.randomness import RandomBytes, secure_bytes

OPTIONS = Options(address="here", workers=3, memory_bytes=None)


class LocalLink(RayProcess):
    """A connection to workers in this process."""

    def __init__(self, options: Options) -> None:
        self.lost, self._options = Event(), options
        self.workers: list[Worker | None] = [Worker() for _ in range(options.workers)]
        self.incarnations = [1] * options.workers
        self.arrays: dict[int, npt.NDArray[Any]] = {}
        self.calls: list[str] = []
        self.meddle: Callable[[str, int], None] = lambda _method, _place: None  # called before each worker's call

    def restart_lost(self) -> list[int]:
        self._check()
        for place, worker in enumerate(self.workers):
            if worker is None:
                self.workers[place] = Worker()
                self.incarnations = [one + (at == place) for at, one in enumerate(self.incarnations)]
        return self.incarnations

    def each(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        self._check()
        self.calls.append(method)
        found, lost = [], False
        for place, arguments in calls.items():
            self.meddle(method, place)
            worker = self.workers[place]
            if worker is None or self.lost.is_set():
                lost = True  # the others go on, as they do at Ray
                continue
            given = [self.arrays[one.number] if isinstance(one, Shared) else one for one in arguments]
            found.append(getattr(worker, method)(*pickle.loads(pickle.dumps(given, 5))))
        if lost:
            raise LostError("a worker was lost")
        return found

    def share(self, array: npt.NDArray[Any]) -> Shared:
        self._check()
        self.arrays[len(self.arrays)] = array.copy()
        return Shared(len(self.arrays) - 1)

    def call(self, method: str, *arguments: Any, seconds: float = 60.0) -> Any:
        self._check()
        return self.arrays.pop(arguments[0].number) if method == "drop" else 1

    def close(self) -> None:
        self.lost.set()

    def _check(self) -> None:
        if self.lost.is_set():
            raise LostError("the process has ended")


class LocalRay:
    """A place where workers can be started, or not."""

    def __init__(self) -> None:
        self.links: list[LocalLink] = []
        self.away = ""  # why it cannot be reached
        self.replaced = 0
        self.spent: dict[str, float] = {}

    def open(self, options: Options) -> RayProcess:
        if self.away:
            raise UnreachableError(self.away)
        self.links.append(LocalLink(options))
        return self.links[-1]

    def note(self, count: int) -> None:
        self.replaced += count


@contextmanager
def local_engine(
    ray: LocalRay, *, party: int = 1, random_bytes: RandomBytes = secure_bytes, options: Options = OPTIONS
) -> Iterator[RayCompute]:
    """Run the engine with workers in this process."""
    threads = Workers(threads=2)
    engine = RayCompute(
        party,
        threads,
        options,
        spent=lambda operation, seconds: ray.spent.update({operation: seconds}),
        replaced=ray.note,
        random_bytes=random_bytes,
        open_link=ray.open,
    )
    try:
        assert ray.away or engine.at_ray.connected(10.0)
        yield engine
    finally:
        engine.close()
        threads.close()
