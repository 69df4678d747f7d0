"""A round on all cores: devices are divided among processes, and what comes of them is added up.

What a device does depends on no other device of the round, and sums in the ring are exact: the number of processes does
not change the result.
"""

import ctypes
import os
import signal
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from secemb_shared.errors import SecEmbError
from secemb_tools.errors import WorkerError
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.rounds import Outcome, Part, take_part
from secemb_tools.simulation.world import World

# Of mallopt in glibc: freed memory is kept up to the first, and arrays up to the second are taken from it.
_MALLOPT = {-1: 1 << 28, -3: 1 << 25}
_WORTH = 1000  # sessions of a run that pay for one more process, which takes a second to start


def count_for(sessions: int) -> int:
    """Return how many processes a run of this many sessions should use: all cores, unless it is short."""
    with suppress(AttributeError):
        return max(1, min(len(os.sched_getaffinity(0)), sessions // _WORTH))
    return max(1, min(os.cpu_count() or 1, sessions // _WORTH))


def keep_memory() -> None:
    """Let this process keep the memory that it frees, where the C library is glibc.

    A device's arrays are freed after each step. Given back to the system and taken again, page by page, they cost as
    much time as the arithmetic on them.
    """
    with suppress(OSError, AttributeError, TypeError):  # other libraries, other systems
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in _MALLOPT.items():
            mallopt(setting, value)


class Processes:
    """Processes that let devices take part in rounds. With a count of one everything happens in this one.

    A script that asks for more must guard its start with `if __name__ == "__main__":`, because each process imports it.
    """

    def __init__(self, count: int = 1) -> None:
        keep_memory()
        self.count = count
        self._workers: list[_Worker] = []  # started when there is work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take_part(self, devices: Devices, part: Part) -> Outcome:
        """Let devices take part in a round, each process with its share of them."""
        if self.count == 1:
            return take_part(devices, part)
        if not self._workers:
            self._workers = [_Worker() for _ in range(self.count)]
        try:
            return self._divide(devices, part)
        except BaseException:
            self.close()  # what the others have still to say is about this round, and not about the next
            raise

    def _divide(self, devices: Devices, part: Part) -> Outcome:
        for number, worker in enumerate(self._workers):
            people = dict(list(part.people.items())[number :: self.count])
            worker.begin(devices.world, replace(part, people=people))
        first, *rest = [worker.end() for worker in self._workers]
        for outcome in rest:
            first.join(outcome)
        return first

    def close(self) -> None:
        """End the processes."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()


class _Worker:
    """One process, as seen from this one."""

    def __init__(self) -> None:
        # Not forked: a copy of a process with threads may wait for ever for a lock that one of them held.
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()  # so that each side notices the other's end
        self._world: World | None = None

    def begin(self, world: World, part: Part) -> None:
        """Hand over work; the world goes with it if it is another than before."""
        try:
            self._connection.send((world if world is not self._world else None, part))
        except OSError:
            raise WorkerError("a simulation process ended unexpectedly; run the same command again") from None
        self._world = world

    def end(self) -> Outcome:
        """Wait for what comes of it."""
        try:
            found = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerError("a simulation process ended unexpectedly; run the same command again") from None
        if isinstance(found, Outcome):
            return found
        raise WorkerError(found)

    def close(self) -> None:
        """End the process after what it is doing."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection) -> None:
    """Do what the other side asks for, until it closes the line or ends."""
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to every process; the first one decides
    devices: Devices | None = None
    with suppress(EOFError, OSError):
        while True:
            world, part = connection.recv()
            if world is not None:
                devices = Devices(world)
            try:
                if devices is None:
                    raise WorkerError("work came before a world")
                connection.send(take_part(devices, part))
            except SecEmbError as error:  # raised on purpose: its message says what to do
                connection.send(str(error))
            except Exception:
                connection.send(traceback.format_exc())
