"""The trusted panel: devices whose evaluations an operator trusts, and what follows from them.

Any device can lie about its errors within the limits for honest devices. Therefore some evaluations are open only to
the devices of a panel, such as those of the operator's own staff. Their figures are from fewer devices, but no one else
can influence them. If the two newest are both worse than the best one by a margin, the model has become worse, and the
version that the best one measured can be published again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secemb_party.errors import RollbackRefusedError, SettingsError
from secemb_party.file_watch import FileWatch
from secemb_party.ledger import Ledger, Rollback
from secemb_party.logs import get_logger
from secemb_party.operators import Order
from secemb_party.service import Party
from secemb_server0.rollback import Rollbacks

EVENT = "panel"
BY = "the trusted panel"  # recorded as the requester of a rollback
_REMEMBERED = 200  # evaluations of the panel, the newest
_MOST_ROLLBACKS = 1000
_LONGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One evaluation of the panel."""

    round: int
    version: int  # of the model that it measured
    figure: str  # rmse (lower is better) or ndcg (higher is better)
    value: float

    def is_worse(self, other: "Measured", margin: float = 0.0) -> bool:
        """Return whether this is worse than another by more than a margin, as a fraction of the other."""
        if self.figure == "rmse":
            return self.value > other.value * (1 + margin)
        return self.value < other.value * (1 - margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of the panel's evaluations."""

    worse: int  # number of consecutive newest ones that are worse than the best by the margin
    best: Measured | None  # before those; None if it is not known, or no longer kept


def judge(history: Sequence[Measured], *, margin: float, kept: Collection[int]) -> Verdict:
    """Return the verdict from evaluations of versions that were not undone, newest first."""
    for worse in range(len(history), 0, -1):
        earlier = [one for one in history[worse:] if one.version in kept and one.figure == history[0].figure]
        best = _best(earlier)
        if best is not None and all(one.is_worse(best, margin) for one in history[:worse]):
            return Verdict(worse=worse, best=best)
    return Verdict(worse=0, best=_best([one for one in history if one.version in kept]))


def _best(some: Sequence[Measured]) -> Measured | None:
    """Return the best evaluation; if several are equal, the newest."""
    best = None
    for one in some:
        if best is None or (one.figure == best.figure and best.is_worse(one)):
            best = one
    return best


def undone(version: int, rollbacks: Sequence[Rollback]) -> bool:
    """Return whether a version was undone by a rollback."""
    return any(one.made is not None and one.source < version < one.made for one in rollbacks)


def read_names(path: Path) -> frozenset[str]:
    """Return the device names in a file, one per line; lines that start with # are comments."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path.name}: {error}") from None
    if len(text) > _LONGEST_FILE:
        raise ValueError(f"{path.name} is too large for a panel file")
    lines = (line.strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def watch_names(path: Path) -> Callable[[], Collection[str]]:
    """Return a reader of the panel's names, which reads the file again when it has changed."""
    try:
        return FileWatch([path], lambda: read_names(path)).get
    except ValueError as error:
        raise SettingsError(f"panel.file: {error}") from None


class Panel:
    """The trusted panel: its schedule, its members, and the consequences of its evaluations."""

    def __init__(
        self, names: Callable[[], Collection[str]], *, every: int, margin: float, roll_back: bool = False
    ) -> None:
        self.names, self._every, self._margin, self._roll_back = names, every, margin, roll_back

    def is_due(self, number: int) -> bool:
        """Return whether a round with this number is an evaluation by the panel."""
        return (number + 1) % self._every == 0

    async def choose(self, ledger: Ledger, round_id: bytes, now: float) -> None:
        """Record that only the panel may join a round, even if the settings change later."""
        await ledger.remember(_key(round_id), b"panel", now)

    async def history(self, party: Party) -> list[Measured]:
        """Return the panel's evaluations of versions that were not undone, newest first."""
        events = await party.ledger.recent_events(EVENT, limit=_REMEMBERED, task=party.task.task_id)
        rollbacks = await party.ledger.rollbacks(party.task.task_id, limit=_MOST_ROLLBACKS)
        found: dict[int, Measured] = {}
        for event in events:  # a step that was repeated after a crash counts once
            one = _measured(event.data)
            if one is not None and not undone(one.version, rollbacks):
                found.setdefault(one.round, one)
        return [found[number] for number in sorted(found, reverse=True)]

    async def protected(self, party: Party) -> list[int]:
        """Return the panel's best version, which is kept however old it is."""
        verdict = await self.verdict(party)
        return [] if verdict.best is None else [verdict.best.version]

    async def verdict(self, party: Party) -> Verdict:
        """Return the verdict of the evaluations so far."""
        return judge(await self.history(party), margin=self._margin, kept=party.models.versions())

    async def conclude(self, party: Party, rollbacks: Rollbacks, seen: int) -> None:
        """Show the panel's verdict in the metrics; request a rollback if worse twice and allowed."""
        verdict = await self.verdict(party)
        party.metrics.safeguards.panel_worse(verdict.worse)
        best = verdict.best
        if verdict.worse < 2 or best is None or best.version >= seen or not self._roll_back:
            return
        reason = (
            f"{best.figure} was worse than the {best.value:.4g} of version {best.version} in {verdict.worse}"
            " evaluations"
        )
        try:
            await rollbacks.request(best.version, seen=seen, order=Order(BY, reason))
        except RollbackRefusedError as error:
            get_logger().warning("cannot roll back to the panel's best version", reason=str(error))


async def is_for_panel(ledger: Ledger, round_id: bytes) -> bool:
    """Return whether only the panel may join a round."""
    return await ledger.recall(_key(round_id)) is not None


def _measured(data: Mapping[str, Any]) -> Measured | None:
    figure = next((name for name in ("rmse", "ndcg") if name in data), None)
    if figure is None:
        return None
    return Measured(round=int(data["round"]), version=int(data["version"]), figure=figure, value=float(data[figure]))


def _key(round_id: bytes) -> str:
    return f"panel:{round_id.hex()}"
