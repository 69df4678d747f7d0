"""A round on all cores: devices are divided among processes, and the results are summed.

Devices of a round are independent of each other, and sums in the ring are exact, so the number of processes does not
change the result.
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

# Of mallopt in glibc: freed memory is kept up to the first, and reused for arrays up to the second.
_MALLOPT = {-1: 1 << 28, -3: 1 << 25}
_WORTH = 1000  # sessions of a run that justify one more process, which takes a second to start


def count_for(sessions: int) -> int:
    """Return how many processes a run of this many sessions should use: all cores, unless it is short."""
    with suppress(AttributeError):
        return max(1, min(len(os.sched_getaffinity(0)), sessions // _WORTH))
    return max(1, min(os.cpu_count() or 1, sessions // _WORTH))


def keep_memory() -> None:
    """Let this process keep the memory that it frees, if the C library is glibc.

    A device's arrays are freed after each step. Returning them to the system and allocating them again, page by page,
    would cost as much time as the arithmetic on them.
    """
    with suppress(OSError, AttributeError, TypeError):  # other libraries, other systems
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in _MALLOPT.items():
            mallopt(setting, value)


class Processes:
    """Worker processes for devices in rounds. With a count of one, everything happens in this process.

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
            self.close()  # the others' pending replies belong to this round, and not to the next
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
    """One worker, from the point of view of the main process."""

    def __init__(self) -> None:
        # Not forked: a copy of a process with threads may wait forever for a lock that one of them held.
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()  # so that each side notices when the other ends
        self._world: World | None = None

    def begin(self, world: World, part: Part) -> None:
        """Send work to the process, with the world if it has changed."""
        try:
            self._connection.send((world if world is not self._world else None, part))
        except OSError:
            raise WorkerError("a simulation process ended unexpectedly; run the same command again") from None
        self._world = world

    def end(self) -> Outcome:
        """Wait for the result."""
        try:
            found = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerError("a simulation process ended unexpectedly; run the same command again") from None
        if isinstance(found, Outcome):
            return found
        raise WorkerError(found)

    def close(self) -> None:
        """End the process after its current work."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection) -> None:
    """Serve requests until the other side closes the connection or ends."""
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the main one handles it
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
            except SecEmbError as error:  # an expected error: its message says what to do
                connection.send(str(error))
            except Exception:
                connection.send(traceback.format_exc())
