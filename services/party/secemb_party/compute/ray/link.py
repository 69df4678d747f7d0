"""The server's end of its process at Ray: calls with their replies, and what happens when either is gone."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from itertools import count
from multiprocessing import Pipe
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_party.compute.errors import LostError, UnreachableError
from secemb_party.compute.ray.messages import Options, Shared, receive, send

_PART_BYTES = 1 << 26  # of an array, sent at a time
_MARGIN = 30.0  # seconds beyond the limit that the process itself sets on a call
_FRESH = {"RAY_USAGE_STATS_ENABLED": "0"}  # nothing is reported to anyone


class RayProcess:
    """A process at Ray with its workers. Once lost it stays lost, and another one is opened."""

    def __init__(self, options: Options) -> None:
        """Start the process and wait for its workers; raise `UnreachableError` if there is no Ray or no room."""
        self.lost, self._options = Event(), options
        self._connection, theirs = Pipe()
        descriptor = theirs.fileno()
        command = [sys.executable, "-m", "secemb_party.compute.ray.driver", str(descriptor)]
        self._process = subprocess.Popen(
            command,
            pass_fds=[descriptor],
            env=os.environ | _FRESH,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # Ray writes there, and what went wrong also comes as a reply
            start_new_session=True,  # Ctrl-C in the server's terminal is not meant for it
        )
        theirs.close()
        self._sending, self._numbers = Lock(), count(1)
        self._waiting: dict[int, Future[Any]] = {}
        try:
            self.incarnations = self._greet()
        except BaseException:
            self.close()
            raise
        Thread(target=self._listen, name="ray-replies", daemon=True).start()

    def _greet(self) -> list[int]:
        send(self._connection, self._options)
        self._hear(self._options.connect_seconds)
        return self._hear(2 * self._options.start_seconds)

    def _hear(self, seconds: float) -> list[int]:
        if not self._connection.poll(seconds):
            raise UnreachableError("it does not answer")
        try:
            _, found, error = receive(self._connection)
        except (EOFError, OSError):
            raise UnreachableError("the process that connects to it has ended") from None
        if error is not None:
            raise error
        numbers: list[int] = found
        return numbers

    def restart_lost(self) -> list[int]:
        """Replace lost workers; return a number for each worker, which is new if the worker is."""
        self.incarnations = self.call("start", seconds=2 * self._options.start_seconds)
        return self.incarnations

    def each(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of several workers at a time; return the results in order."""
        found: list[Any] = self.call("each", method, dict(calls), seconds=self._options.call_seconds + _MARGIN)
        return found

    def share(self, array: npt.NDArray[Any]) -> Shared:
        """Put an array into the object store once, from where all workers read it."""
        number, rows = None, max(1, _PART_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), rows):
            part = np.ascontiguousarray(array[start : start + rows])
            number = self.call("receive_part", number, array.shape, start, part)
        shared: Shared = self.call("put", number)
        return shared

    def call(self, method: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """Return the reply to a call; raise `LostError` if there is none in time, and give up the process."""
        number, reply = next(self._numbers), Future[Any]()
        self._waiting[number] = reply
        try:
            with self._sending:
                send(self._connection, (number, method, arguments))
            return reply.result(seconds)
        except (Late, OSError):
            self.close()
            raise LostError("the process at Ray does not answer") from None
        finally:
            self._waiting.pop(number, None)
            if self.lost.is_set() and not reply.done():
                reply.cancel()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, found, error = receive(self._connection)
                self._settle(self._waiting.get(number), found, error)
        self.close()

    def _settle(self, reply: "Future[Any] | None", found: object, error: Exception | None) -> None:
        if reply is None or reply.done():
            return
        if error is None:
            reply.set_result(found)
        else:
            reply.set_exception(error)

    def close(self) -> None:
        """End the process and with it its workers; calls under way raise `LostError`."""
        self.lost.set()
        self._process.kill()
        self._process.wait()
        for reply in list(self._waiting.values()):
            self._settle(reply, None, LostError("the process at Ray has ended"))
        with suppress(OSError):
            self._connection.close()


def places(count_: int, arguments: Sequence[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Return the calls by worker."""
    return dict(zip(range(count_), arguments, strict=True))
