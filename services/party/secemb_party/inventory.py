"""Whether the data directory matches the ledger: missing, altered or outdated files."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from secemb_party.errors import DamagedShareError, ModelError, ModelMissingError
from secemb_party.ledger import Ledger, ModelVersion, RoundRecord, RoundState
from secemb_party.logs import get_logger
from secemb_party.parts import Parts
from secemb_party.storage import ModelStore, ShareStore
from secemb_shared.messages import TaskSpec

MODEL, OPTIMISER, SHARE, AGE = "model", "optimiser", "share", "ledger age"
_FETCH = "run `secemb model fetch` to copy it from the other server, or restore a backup"
_RESET = "restore a backup, or reset the optimiser with `secemb model reset-optimiser`"
_PUT_BACK = "restore data/shares; the round cannot finish without it (see Backups in docs/operating.md)"
_OLDER = "restore the newer ledger, or create a new task from the newest model (see Backups in docs/operating.md)"
_LOOK_SECONDS = 10.0  # files are not read for every readiness check
_SHARED = (RoundState.SHARED, RoundState.RECONSTRUCTED)
_UNSEALED = (None, RoundState.OPEN, RoundState.SEALING, RoundState.ABORTED)


class Fault(NamedTuple):
    """A mismatch and its fix. It is public: it names versions and rounds, but no paths or digests."""

    check: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The content of the data directory that the ledger expects."""

    published: ModelVersion | None
    newest: ModelVersion | None  # the last one recorded, published or not
    running: RoundRecord | None
    rolling_back: bool
    too_early: int  # stored shares of rounds that the ledger has not sealed or does not contain

    @property
    def is_moving(self) -> bool:
        """Return whether the next version may be stored but not recorded yet."""
        return self.rolling_back or (self.running is not None and self.running.state in _SHARED)


async def find_faults(task: TaskSpec, role: int, ledger: Ledger, models: ModelStore, shares: ShareStore) -> list[Fault]:
    """Return the mismatches; check again if a round has advanced in the meantime. This reads whole files."""
    while True:
        named = await read_named(ledger, task.task_id, shares)
        faults = await asyncio.to_thread(_compare, task, role, named, models, shares)
        if not faults or named == await read_named(ledger, task.task_id, shares):
            return faults


class Inventory:
    """The mismatches found by the last check: at startup, and repeatedly while there are any."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._found: list[Fault] = []
        self._look_again = 0.0

    async def faults(self) -> list[Fault]:
        """Return the mismatches; cheap if there are none."""
        parts = self._parts
        published = await parts.ledger.published_version(parts.task.task_id)
        gone = published is not None and published.version not in parts.models.versions()
        if (gone or self._found) and parts.clock() >= self._look_again:
            await self.take()
        return self._found

    async def take(self) -> None:
        """Check everything, and log each mismatch once."""
        parts, before = self._parts, self._found
        self._found = await find_faults(parts.task, parts.role, parts.ledger, parts.models, parts.shares)
        self._look_again = parts.clock() + _LOOK_SECONDS
        for fault in self._found:
            if fault not in before:
                get_logger().error(
                    "data_dir does not match the ledger", check=fault.check, reason=fault.text, fix=fault.fix
                )


def _compare(task: TaskSpec, role: int, named: Named, models: ModelStore, shares: ShareStore) -> list[Fault]:
    found = [*_check_models(named, models), *_check_age(named, models), *_check_share(named, shares)]
    return [*found, *_check_optimiser(task, named, models)] if role == 0 else found


async def read_named(ledger: Ledger, task_id: bytes, shares: ShareStore) -> Named:
    """Query the ledger. None of these facts reverts to an earlier value, so if two reads agree, nothing has changed."""
    known = [await ledger.round(one) for one in shares.rounds()]
    return Named(
        published=await ledger.published_version(task_id),
        newest=next(iter(await ledger.versions(task_id)), None),
        running=await ledger.current_round(task_id),
        rolling_back=await ledger.open_rollback(task_id) is not None,
        too_early=sum((record.state if record is not None else None) in _UNSEALED for record in known),
    )


def _check_models(named: Named, models: ModelStore) -> Iterator[Fault]:
    wanted = {one.version: one.digest for one in (named.published, named.newest) if one is not None}
    for version, digest in wanted.items():
        try:
            fits = models.load(version).digest == digest
        except ModelMissingError:
            yield Fault(MODEL, f"model version {version} is missing from data_dir", _FETCH)
        except ModelError:
            yield Fault(MODEL, f"the file of model version {version} is corrupted", _FETCH)
        else:
            if not fits:
                yield Fault(MODEL, f"the file of model version {version} does not match the ledger", _FETCH)


def _check_age(named: Named, models: ModelStore) -> Iterator[Fault]:
    newest = named.newest.version if named.newest is not None else 0
    held = max(models.versions(), default=0)
    if held > newest + named.is_moving:
        text = (
            f"data_dir has model version {held}, but the ledger ends at version {newest}, so the ledger is older"
            " than the data"
        )
        yield Fault(AGE, text, _OLDER)
    if named.too_early:
        yield Fault(
            AGE,
            "data_dir has the share of a round that the ledger has not sealed, so the ledger is older than the data",
            _OLDER,
        )


def _check_share(named: Named, shares: ShareStore) -> Iterator[Fault]:
    running = named.running
    if running is None or running.share_digest is None:
        return
    try:
        shares.load(running.round_id, running.share_digest)
    except DamagedShareError:
        yield Fault(SHARE, f"the share of round {running.number} in data_dir is missing or corrupted", _PUT_BACK)


def _check_optimiser(task: TaskSpec, named: Named, models: ModelStore) -> Iterator[Fault]:
    newest = named.newest.version if named.newest is not None else 0
    try:
        state = models.load_state()
    except ModelError:
        yield Fault(OPTIMISER, "the optimiser state is corrupted", _RESET)
        return
    if state is None:
        if newest > 0:
            yield Fault(OPTIMISER, f"the optimiser state is missing, but model version {newest} needs one", _RESET)
    elif state.kind != task.optimiser or not newest <= state.version <= newest + named.is_moving:
        text = f"the optimiser state is for version {state.version}, but the model is at version {newest}"
        yield Fault(OPTIMISER, text, _RESET)
