"""The engine inside the server's own process: a few worker threads around the kernel, which releases the GIL.

Nothing long runs on the event loop.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

from secemb_party.compute.interface import Accepted
from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share, blur
from secemb_shared.dpf import Backend
from secemb_shared.errors import SessionError
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import RandomBytes, secure_bytes
from secemb_shared.row_words import Rows

Result = TypeVar("Result")
Measure = Callable[[str], AbstractContextManager[None]]
_SMALL = 1 << 18  # this many bytes are checked and hashed faster than they are passed to a thread


def no_measure(_operation: str) -> AbstractContextManager[None]:
    """Measure nothing."""
    return nullcontext()


class Workers:
    """A small pool of threads."""

    def __init__(self, *, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kernel")

    async def run(self, work: Callable[[], Result], *, size: int | None = None) -> Result:
        """Run `work` in a worker thread, or in the calling thread if its input of this `size` is small."""
        if size is not None and size <= _SMALL:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for running work and end the threads."""
        self._pool.shutdown(wait=True)


class ThreadCompute:
    """The engine that computes in this process's worker threads."""

    batch = BATCH

    def __init__(
        self,
        party: int,
        workers: Workers,
        *,
        backend: Backend | None = None,
        measure: Measure | None = None,
        random_bytes: RandomBytes = secure_bytes,
    ) -> None:
        self._party, self.workers, self._backend = party, workers, backend
        self._measure, self.random_bytes = measure or no_measure, random_bytes

    def fault(self) -> str | None:
        """Return None: there are always threads."""
        return None

    def close(self) -> None:
        """Do nothing: the threads belong to the server, which closes them."""

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> "ThreadRound":
        """Tag the model's rows and assign the items to bins: a fraction of a second, once per round."""
        work = partial(Evaluation.prepare, spec, self._party, rows, self._backend, check_key=check_key)
        return ThreadRound(self, await self.run("prepare", work))

    async def run(self, operation: str, work: Callable[[], Result]) -> Result:
        """Run the kernel in a worker thread and measure its time."""

        def measured() -> Result:
            with self._measure(operation):
                return work()

        return await self.workers.run(measured)


class ThreadRound:
    """One prepared round."""

    def __init__(self, compute: ThreadCompute, evaluation: Evaluation) -> None:
        self._compute, self.evaluation = compute, evaluation

    @property
    def spec(self) -> RoundSpec:
        """Return the round's specification."""
        return self.evaluation.round

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Answer a batch of keys, in order."""
        return await self._compute.run("answer", partial(self.evaluation.answer, batch))

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        """Answer a batch of keys, in order, and return their digests too."""
        return await self._compute.run("answer", partial(self._accept, batch))

    def _accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        found = self.evaluation.accept(batch)
        return [
            Accepted(answer, hashlib.sha256(keys.body).digest(), alike)
            for keys, (answer, alike) in zip(batch, found, strict=True)
        ]

    def sum(self) -> "ThreadSum":
        """Start a sum over no sessions."""
        return ThreadSum(self._compute, self.evaluation)


class ThreadSum:
    """The sum of one round in the memory of this process."""

    def __init__(self, compute: ThreadCompute, evaluation: Evaluation) -> None:
        self._compute, self._evaluation = compute, evaluation
        self._share: Share | None = Share.empty(evaluation.round)

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        """Add a batch of complete sessions; return the message to the other party about each."""
        return await self._compute.run("accumulate", partial(self._evaluation.add, sessions, self._open()))

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        """Subtract sessions that were added but do not count."""
        await self._compute.run("accumulate", partial(self._evaluation.remove, sessions, self._open()))

    async def share(self) -> memoryview:
        """Add the noise, close the sum and return its bytes."""
        share, self._share = self._open(), None
        await self._compute.run("noise", partial(blur, self._evaluation.round, share, self._compute.random_bytes))
        return await self._compute.workers.run(share.memory)

    def _open(self) -> Share:
        if self._share is None:
            raise SessionError("the share of this sum has already been returned; read it from the store")
        return self._share
