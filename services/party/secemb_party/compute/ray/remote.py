"""The engine on Ray: a server's computations on workers that each have a range of slots.

Messages are decoded and checked here, and the dense part, secure sums, norm proofs and the noise are computed here, by
the same code as in the engine of threads. Only what is a function of slots is done by workers.
"""

import hashlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from secrets import token_hex
from typing import Any

import numpy as np

from secemb_party.compute.errors import ComputeUnavailableError, LostError, MissingError, UnreachableError
from secemb_party.compute.gather import Gather
from secemb_party.compute.interface import Accepted
from secemb_party.compute.ray.link import RayProcess
from secemb_party.compute.ray.messages import Options
from secemb_party.compute.ray.workers import Open, PlacedRound, RayWorkers
from secemb_party.compute.slots import add_piece
from secemb_party.compute.threads import Measure, Workers, no_measure
from secemb_party.evaluation import Evaluation, KeysMessage, ReadKeys, SessionBodies, Share, blur
from secemb_shared.dpf import Blocks, HeldKeys, RingArray, SlotChecks
from secemb_shared.dpf.backend import Words32
from secemb_shared.errors import SessionError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.randomness import RandomBytes, secure_bytes
from secemb_shared.row_words import Rows

BATCH = 64  # sessions in a call: fewer would spend more time on the call than on the kernel
_READS = 2  # calls for keys at a time: one is computed while the other is on its way
_THREADS = _READS + 3  # they wait for workers: also for answers without keys, a sum and a round

Spent = Callable[[str, float], None]  # told an operation and the seconds of processor time that workers spent on it


class RayCompute:
    """The engine that computes on workers at Ray."""

    batch = BATCH

    def __init__(
        self,
        party: int,
        workers: Workers,
        options: Options,
        *,
        measure: Measure | None = None,
        spent: Spent | None = None,
        replaced: Callable[[int], None] | None = None,
        random_bytes: RandomBytes = secure_bytes,
        open_link: Open = RayProcess,
    ) -> None:
        self.party, self.workers, self.random_bytes = party, workers, random_bytes
        self.measure, self.spent = measure or no_measure, spent or (lambda _operation, _seconds: None)
        self.at_ray = RayWorkers(options, open_link=open_link, replaced=replaced)
        self._calls = Workers(threads=_THREADS)

    def fault(self) -> str | None:
        """Return why there are no workers, and what to do."""
        return self.at_ray.fault

    def close(self) -> None:
        """End the workers."""
        self.at_ray.close()
        self._calls.close()

    async def prepare(self, spec: RoundSpec, rows: Rows, check_key: bytes) -> "RayRound":
        """Let all workers gather their rows of the model."""
        return RayRound(self, await self.run(partial(self.at_ray.place, spec, rows)), check_key)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run work that waits for workers, in a thread of its own kind: others go on meanwhile."""
        return await self._calls.run(work)

    def tidy(self, owner: object, round_: PlacedRound, method: str, *names: str) -> None:
        """Let the workers drop what an object stands for when the object is gone."""
        weakref.finalize(owner, self.at_ray.forget_later, round_, method, *names).atexit = False


class RemoteSlots:
    """The slots of one round, evaluated by workers."""

    def __init__(self, engine: RayCompute, round_: PlacedRound) -> None:
        self._engine, self.round = engine, round_

    def answer(self, held: HeldKeys) -> Words32:
        """Return the shares of the requested rows."""
        found = self._each("answer", [(one.keys(held),) for one in self.round.ranges])
        return np.concatenate([words for _, words in found], axis=1)

    def answer_checked(self, held: HeldKeys, checks: SlotChecks, keys: Blocks) -> tuple[Words32, Blocks]:
        """Return the same, and a fingerprint of each session's leaves."""
        arguments = [(one.keys(held), one.checks(checks), keys) for one in self.round.ranges]
        found = self._each("answer_checked", arguments)
        prints = np.bitwise_xor.reduce([some for _, _, some in found], axis=0)
        return np.concatenate([words for _, words, _ in found], axis=1), prints

    def _each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        found: list[Any] = self._engine.at_ray.each(self.round, method, arguments)
        self._engine.spent("answer", sum(one[0] for one in found))
        return found


class RayRound:
    """One prepared round."""

    def __init__(self, engine: RayCompute, round_: PlacedRound, check_key: bytes) -> None:
        self._engine, self.round = engine, round_
        slots = RemoteSlots(engine, round_)
        self.evaluation = Evaluation(round_.spec, engine.party, slots, check_key=check_key, batch=BATCH)
        # They do not refer to this object, so that it is gone as soon as nobody uses it.
        accept, answer = partial(_accept, self.evaluation), self.evaluation.answer_read
        self._accepting: Gather[ReadKeys, Accepted] = Gather(
            lambda batch: engine.run(partial(accept, batch)), most=BATCH, calls=_READS
        )
        self._answering: Gather[ReadKeys, bytes] = Gather(
            lambda batch: engine.run(partial(answer, batch)), most=BATCH, calls=1
        )
        engine.tidy(slots, round_, "forget")  # sums have them too

    @property
    def spec(self) -> RoundSpec:
        """Return the round's specification."""
        return self.evaluation.round

    async def answer(self, batch: Sequence[KeysMessage]) -> list[bytes]:
        """Answer a batch of keys, in order, together with others that arrive at the same time."""
        return await self._answering.get(await self._read(batch))

    async def accept(self, batch: Sequence[KeysMessage]) -> list[Accepted]:
        """Answer a batch of keys, in order, and return their digests too."""
        return await self._accepting.get(await self._read(batch))

    async def _read(self, batch: Sequence[KeysMessage]) -> list[ReadKeys]:
        # A message that does not fit is refused before it meets those of other devices.
        return await self._engine.workers.run(partial(self.evaluation.read, batch))

    def sum(self) -> "RaySum":
        """Start a sum over no sessions."""
        return RaySum(self._engine, self.evaluation, self.round)


def _accept(evaluation: Evaluation, batch: Sequence[ReadKeys]) -> list[Accepted]:
    found = evaluation.accept_read(batch)
    return [
        Accepted(answer, hashlib.sha256(keys.message.body).digest(), alike)
        for keys, (answer, alike) in zip(batch, found, strict=True)
    ]


class RaySum:
    """The sum of one round: the rows at the workers, the rest here.

    A worker that is lost takes its part with it. Then this sum is of no more use: whoever adds starts another.
    """

    def __init__(self, engine: RayCompute, evaluation: Evaluation, round_: PlacedRound) -> None:
        self._engine, self._evaluation, self._round = engine, evaluation, round_
        self._share: Share | None = Share.empty(evaluation.round, with_rows=False)
        self._name, self._link = token_hex(8), None  # type: tuple[str, RayProcess | None]
        engine.tidy(self, round_, "end_sum", self._name)

    async def add(self, sessions: Sequence[SessionBodies]) -> list[bytes]:
        """Add a batch of complete sessions; return the message to the other party about each."""
        add = partial(self._evaluation.add, sessions, self._open(), self._add_rows)
        found: list[bytes] = await self._engine.run(partial(self._unless_lost, add))
        return found

    async def remove(self, sessions: Sequence[SessionBodies]) -> None:
        """Subtract sessions that were added but do not count."""
        remove = partial(self._evaluation.remove, sessions, self._open(), self._remove_rows)
        await self._engine.run(partial(self._unless_lost, remove))

    async def share(self) -> memoryview:
        """Add up the workers' parts and the noise, close the sum and return its bytes."""
        share, self._share = self._open(), None
        found: memoryview = await self._engine.run(partial(self._unless_lost, partial(self._finish, share)))
        return found

    def _open(self) -> Share:
        if self._share is None:
            raise SessionError("the share of this sum has already been returned; read it from the store")
        return self._share

    def _unless_lost(self, work: Callable[[], Any]) -> Any:
        """Do work that cannot be repeated in part; afterwards the sum is complete, or it is given up."""
        try:
            return work()
        except (LostError, MissingError, UnreachableError):
            self._share = None
            raise ComputeUnavailableError(
                "a worker at Ray was lost, and its part of the sum is computed again"
            ) from None
        except BaseException:
            self._share = None
            raise

    def _started(self) -> RayProcess:
        """Return the connection to the workers that have this sum."""
        link = self._link
        if link is None:
            link = self._engine.at_ray.call(self._round, self._start)
        if link is None or link.lost.is_set():
            raise LostError("the workers have ended")
        self._link = link
        return link

    def _start(self, link: RayProcess) -> RayProcess:
        self._engine.at_ray.once(link, self._round, "start_sum", [(self._name,)] * len(self._round.ranges))
        return link

    def _add_rows(self, held: HeldKeys, words: RingArray, slot_sums: RingArray | None) -> None:
        ranges = self._round.ranges
        arguments = [(self._name, one.keys(held), one.words(words), slot_sums is not None) for one in ranges]
        found = self._engine.at_ray.once(self._started(), self._round, "add", arguments)
        self._engine.spent("accumulate", sum(seconds for seconds, _ in found))
        if slot_sums is not None:
            np.concatenate([some for _, some in found], axis=1, out=slot_sums)

    def _remove_rows(self, held: HeldKeys, words: RingArray, slot_sums: RingArray | None) -> None:
        ranges = self._round.ranges
        # Removing is adding to an empty sum that is then subtracted, and the share's other parts do that already.
        arguments = [(self._name, one.keys(held), one.words(words)) for one in ranges]
        found = self._engine.at_ray.once(self._started(), self._round, "remove", arguments)
        self._engine.spent("accumulate", sum(seconds for seconds, _ in found))
        if slot_sums is not None:
            slot_sums[...] = 0

    def _finish(self, share: Share) -> memoryview:
        whole = Share.empty(self.spec)
        for part, own in ((whole.dense, share.dense), (whole.sums, share.sums)):
            np.copyto(part, own)
        if self.spec.kind == TRAIN:
            self._collect(whole.rows)
        with self._engine.measure("noise"):
            blur(self.spec, whole, self._engine.random_bytes)
        return whole.memory()

    def _collect(self, rows: RingArray) -> None:
        """Add the workers' parts, piece by piece: one piece of each worker is on its way at a time."""
        link, name = self._started(), self._round.name
        cuts = self._engine.at_ray.once(link, self._round, "cuts", [()] * len(self._round.ranges))
        for turn in range(max(map(len, cuts))):
            calls = {place: (name, self._name, *own[turn]) for place, own in enumerate(cuts) if turn < len(own)}
            for items, sums in link.each("piece", calls):
                add_piece(rows, items, sums)
        self._engine.at_ray.forget(self._round, "end_sum", self._name)

    @property
    def spec(self) -> RoundSpec:
        """Return the round's specification."""
        return self._evaluation.round
