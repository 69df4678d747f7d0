"""What must hold after every step, whatever was lost and whoever has crashed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from tests.devices.scripted import Device
from tests.simulation.pair import Pair

from secemb_party.ledger import ModelVersion, RoundRecord, RoundState
from secemb_party.storage import Model

Rounds = dict[bytes, RoundRecord]
_CLOSE = 0.02  # float32 keeps sums of this size, times the cohort, far better


class BrokenError(AssertionError):
    """Something happened that may never happen."""


@dataclass
class Invariants:
    """Compares what the two servers hold with what the devices did."""

    pair: Pair
    devices: list[Device] = field(default_factory=list)
    lists: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)  # by round, for ever
    digests: dict[int, bytes] = field(default_factory=dict)  # by version, for ever
    models: dict[int, Model] = field(default_factory=dict)
    files: set[tuple[int, int]] = field(default_factory=set)  # server and version, found whole
    shares: dict[tuple[int, bytes], bytes] = field(default_factory=dict)
    states: dict[tuple[int, bytes], RoundState] = field(default_factory=dict)  # of rounds that are over
    stepped: set[bytes] = field(default_factory=set)  # rounds whose published step was found exact
    paused: dict[int, int] = field(default_factory=dict)  # server and its latest round, while its operator pauses
    given_up: set[bytes] = field(default_factory=set)  # rounds that an operator wanted aborted
    acknowledged_aborts: set[bytes] = field(default_factory=set)  # and was told that they will be

    async def check(self) -> None:
        """Raise `BrokenError` unless everything holds."""
        _require(not self.pair.line.broken, f"a server failed: {self.pair.line.broken}")
        rounds = [await self._rounds(role) for role in (0, 1)]
        for role in (0, 1):
            await self._check_versions(role)
            for record in rounds[role].values():
                self._check_round(role, record)
            latest = max((one.number for one in rounds[role].values()), default=-1)
            _require(latest <= self.paused.get(role, latest), f"a round began at server {role} while it was paused")
        await self._check_order()
        for record in (*rounds[0].values(), *rounds[1].values()):
            if record.state is RoundState.PUBLISHED and record.round_id not in self.stepped:
                self._check_step(record, rounds[0][record.round_id])
                self.stepped.add(record.round_id)

    async def check_end(self) -> None:
        """Raise `BrokenError` unless every round has ended, in the same way on both sides, or waits for devices."""
        await self.check()
        first, second = await self._rounds(0), await self._rounds(1)
        _require(first.keys() == second.keys(), "a round is known to one server only")
        for name, record in first.items():
            counts = await self.pair.parties[0].ledger.counts(record.round_id)
            since = self.pair.clock.now - self.pair.seat_rules.seconds
            seats = await self.pair.parties[0].ledger.seats(record.round_id, since)
            waits = record.state is RoundState.OPEN and seats.taken == counts.updates < self.pair.task.min_cohort
            _require(record.ended or waits, f"round {record.number} has not ended")
            aborted = record.state is RoundState.ABORTED or name not in self.acknowledged_aborts
            _require(aborted, f"round {record.number} is open although an operator has aborted it")
            _require(second[name].state is record.state, f"round {record.number} ended in two ways")
            _require(second[name].reason == record.reason, f"round {record.number} ended for two reasons")
        newest = [(await self._published(role))[0] for role in (0, 1)]
        same = (newest[0].version, newest[0].digest) == (newest[1].version, newest[1].digest)
        _require(same, "the servers have published different versions")

    async def _rounds(self, role: int) -> Rounds:
        found = await self.pair.parties[role].ledger.rounds(self.pair.task.task_id, limit=1000)
        return {record.round_id: record for record in found}

    async def _published(self, role: int) -> list[ModelVersion]:
        versions = await self.pair.parties[role].ledger.versions(self.pair.task.task_id)
        return [one for one in versions if one.published_at is not None]

    async def _check_versions(self, role: int) -> None:
        """A version has one digest on both servers, and the file behind it has that digest."""
        party = self.pair.parties[role]
        for one in await self._published(role):
            held = self.digests.setdefault(one.version, one.digest)
            _require(held == one.digest, f"version {one.version} has two digests")
        for version in party.models.versions():
            if version in self.digests and (role, version) not in self.files:
                model = party.models.load(version)
                _require(model.digest == self.digests[version], f"version {version} was stored otherwise")
                self.models[version] = model
                self.files.add((role, version))

    async def _check_order(self) -> None:
        """Server 1 confirms first, so that it is at most one version ahead."""
        newest = [(await self._published(role))[0].version for role in (0, 1)]
        _require(0 <= newest[1] - newest[0] <= 1, f"server 0 shows version {newest[0]}, server 1 {newest[1]}")

    def _check_round(self, role: int, record: RoundRecord) -> None:
        if record.ended:
            state = self.states.setdefault((role, record.round_id), record.state)
            _require(state is record.state, "a round that was over went on")
            other = self.states.get((1 - role, record.round_id), state)
            _require(state is other, f"round {record.number} ended in two ways")
        if record.share_digest is not None:
            share = self.shares.setdefault((role, record.round_id), record.share_digest)
            _require(share == record.share_digest, "a server has two shares of one round")
        wild = {device.name for device in self._of(record) if device.wild} & set(record.sealed_sessions or ())
        if record.state is RoundState.DISCARDED:
            _require(bool(wild), f"round {record.number} was discarded although its sum is possible")
            _require(record.next_version is None, f"round {record.number} was discarded and made a version")
        elif record.state in (RoundState.RECONSTRUCTED, RoundState.PUBLISHED):
            _require(not wild, f"round {record.number} counts although its sum is impossible")
        if record.round_id in self.acknowledged_aborts:
            _require(record.sealed_sessions is None, "a round was sealed after an operator had aborted it")
        if record.state is RoundState.ABORTED:
            _require(record.sealed_sessions is None, "a sealed round was aborted")
            lost = self._acknowledged(record)
            known = record.round_id in self.given_up
            few = len(lost) < self.pair.task.min_cohort
            _require(few or known, "a round was aborted with enough acknowledged sessions")
        elif record.sealed_sessions is not None:
            self._check_list(record, record.sealed_sessions)

    def _check_list(self, record: RoundRecord, sessions: tuple[bytes, ...]) -> None:
        task = self.pair.task
        held = self.lists.setdefault(record.round_id, sessions)
        _require(held == sessions, f"round {record.number} is sealed for two lists")
        _require(task.min_cohort <= len(sessions) <= task.cohort, f"a sum over {len(sessions)} sessions was opened")
        for other, names in self.lists.items():
            _require(other == record.round_id or not set(names) & set(sessions), "a session counts in two rounds")
        allowed = {device.name for device in self._of(record) if device.honest and device.offered}
        _require(set(sessions) <= allowed, "the list names a session that is not complete on both sides")
        _require(self._acknowledged(record) <= set(sessions), "an acknowledged session was left out")

    def _check_step(self, record: RoundRecord, leading: RoundRecord) -> None:
        """The published step is the mean over the sealed list, to the last unit of the sum."""
        sessions, version = self.lists[record.round_id], leading.next_version
        _require(version == record.model_version + 1, "a round did not make the next version")
        before, after = self.models[record.model_version], self.models[record.model_version + 1]
        by_name = {device.name: device for device in self.devices}
        updates = [by_name[name].update() for name in sessions]
        for part, want in (("rows", _total(one[0] for one in updates)), ("dense", _total(one[1] for one in updates))):
            moved = (getattr(before, part).astype(np.float64) - getattr(after, part)) * len(sessions)
            _require(
                bool((np.abs(moved - want) < _CLOSE).all()),
                f"round {record.number} moved the {part} by something else than the sum over its list",
            )

    def _of(self, record: RoundRecord) -> list[Device]:
        return [one for one in self.devices if one.session is not None and one.spec.digest == record.round_id]

    def _acknowledged(self, record: RoundRecord) -> set[bytes]:
        return {device.name for device in self._of(record) if device.honest and device.acknowledged}


def _total(arrays: Iterable[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    total: npt.NDArray[np.float64] = np.stack(list(arrays)).sum(axis=0)
    return total


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenError(message)
