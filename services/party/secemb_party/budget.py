"""What remains of a task: training rounds up to their limit, and rounds within its privacy budget."""

from dataclasses import dataclass, replace

from secemb_party.accountant import MOST_ROUNDS, Spell, Terms, epsilon_of_all, most_within
from secemb_party.compute.threads import Workers
from secemb_party.errors import BudgetSpentError
from secemb_party.ledger import Ledger, RoundRecord
from secemb_party.metrics import Metrics
from secemb_party.succession.links import read_link
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import EVALUATE, SUM_SIZES, TRAIN
from secemb_shared.messages.succession import FRESH


def may_open(kind: str, *, rounds: int, trained: int, after: str | None) -> bool:
    """Return whether a round of a kind may follow one of kind `after`, once `trained` of `rounds` have been trained.

    Only training rounds whose sum was opened and used count, not surveys, evaluations, or rounds that were aborted or
    discarded. One evaluation may follow the last training round.
    """
    return trained < rounds or (kind == EVALUATE and after == TRAIN)


def count_trained(task: TaskSpec, *, shares: int, discarded: int) -> int:
    """Return how many training rounds count as done, given how many sums were opened and then discarded.

    A discarded round may be repeated, but there are at most as many repetitions as the task has rounds: only server 0
    sees sums, and it must not be able to open any number of them by calling them impossible.
    """
    return shares - min(discarded, task.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The budget of one kind of round."""

    kind: str
    terms: Terms
    budget: float  # ε
    most: int = MOST_ROUNDS  # maximum number of rounds of this kind
    earlier: tuple[Spell, ...] = ()  # rounds of the task's predecessors, whose budget continues

    def rounds(self) -> int:
        """Return the maximum number of rounds of this kind."""
        return most_within(self.epsilon, self.budget, self.most)

    def epsilon(self, rounds: int) -> float:
        """Return ε after this many rounds, with those of the predecessors."""
        return epsilon_of_all((*self.earlier, (self.terms, rounds)))

    def epsilon_known(self, rounds: int) -> float:
        """Return the same against an attacker who knows who took part."""
        spells = (*self.earlier, (self.terms, rounds))
        return epsilon_of_all(tuple((replace(terms, sampling_rate=None), count) for terms, count in spells))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The state of a budget line on this server."""

    kind: str
    shares: int
    epsilon: float  # if there is a sampling rate: against an attacker who does not know who took part
    epsilon_known: float  # against one who knows, such as server 0 if devices show it enrolment tokens
    delta: float
    budget: float  # of `epsilon`
    projected: float  # ε after all rounds that are still possible
    projected_known: float
    remaining: int  # rounds that are still possible
    exhausted: bool  # one more round would exceed the budget


def spent(line: Line, given: int, *, ahead: int = MOST_ROUNDS) -> Spent:
    """Return the state of a line after `given` shares, with `ahead` rounds of the task left."""
    room = max(0, line.rounds() - given)
    remaining = min(room, ahead)
    return Spent(
        kind=line.kind,
        shares=given,
        epsilon=line.epsilon(given),
        epsilon_known=line.epsilon_known(given),
        delta=line.terms.delta,
        budget=line.budget,
        projected=line.epsilon(given + remaining),
        projected_known=line.epsilon_known(given + remaining),
        remaining=remaining,
        exhausted=given >= MOST_ROUNDS or line.epsilon(given + 1) > line.budget,
    )


def lines_of(task: TaskSpec) -> dict[str, Line]:
    """Return the budget lines of a task by kind of round; a task without noise has none."""
    if task.privacy is None:
        return {}
    delta, sampling_rate = decimal(task.privacy.delta), task.privacy.sampling_rate
    return {
        kind: Line(
            kind=kind,
            terms=Terms(
                multiplier=decimal(line.multiplier),
                delta=delta,
                sampling_rate=decimal(sampling_rate) if sampling_rate else None,
            ),
            budget=decimal(line.epsilon),
            most=min(task.rounds, MOST_ROUNDS) if kind == TRAIN else MOST_ROUNDS,
        )
        for kind in SUM_SIZES
        if (line := task.privacy.line(kind)) is not None
    }


def _rounds_ahead(task: TaskSpec, trained: int, last: RoundRecord | None, kind: str) -> int:
    """Return how many rounds of a kind are still possible, whatever they cost."""
    if trained < task.rounds or last is None:
        return task.rounds - trained if kind == TRAIN else MOST_ROUNDS
    running = last.kind == kind and not last.ended and last.share_digest is None
    return int(running or may_open(kind, rounds=task.rounds, trained=trained, after=last.kind))


class Spending:
    """The privacy budget as counted by one server from its own ledger."""

    def __init__(self, task: TaskSpec, ledger: Ledger, workers: Workers, metrics: Metrics) -> None:
        self._task, self._ledger, self._workers, self._metrics = task, ledger, workers, metrics
        self._lines = lines_of(task)

    async def inherit(self) -> None:
        """Add the rounds of the task's predecessors, as far back as the operators have continued the budget."""
        task, earlier = self._task, dict[str, tuple[Spell, ...]]()
        while task.predecessor:
            link = await read_link(self._ledger, bytes.fromhex(task.predecessor))
            record = await self._ledger.task(bytes.fromhex(task.predecessor))
            if link is None or record is None or link.succession.budget == FRESH:
                break
            task = TaskSpec.decode(record.spec)
            shares = await self._ledger.shares_by_kind(task.task_id)
            for kind, line in lines_of(task).items():
                earlier[kind] = ((line.terms, shares.get(kind, 0)), *earlier.get(kind, ()))
        self._lines = {
            kind: replace(line, earlier=earlier.get(kind, ())) for kind, line in lines_of(self._task).items()
        }

    async def standing(self) -> list[Spent]:
        """Return the state of every line, and set the metrics."""
        if not self._lines:
            return []
        shares = await self._ledger.shares_by_kind(self._task.task_id)
        discarded = await self._ledger.discarded_by_kind(self._task.task_id)
        last = await self._ledger.last_round(self._task.task_id)
        trained = count_trained(self._task, shares=shares.get(TRAIN, 0), discarded=discarded.get(TRAIN, 0))
        ahead = {kind: _rounds_ahead(self._task, trained, last, kind) for kind in self._lines}
        # Opening a sum has its cost, however the sum is used, so discarded rounds count too.
        lines = {
            kind: replace(line, most=min(MOST_ROUNDS, line.most + discarded.get(kind, 0)))
            for kind, line in self._lines.items()
        }
        found = await self._workers.run(
            lambda: [spent(line, shares.get(kind, 0), ahead=ahead[kind]) for kind, line in lines.items()]
        )
        for one in found:
            self._metrics.privacy(
                one.kind,
                epsilon=one.epsilon,
                epsilon_known=one.epsilon_known,
                remaining=one.remaining,
                ahead=ahead[one.kind],
            )
        return found

    async def affords(self, kind: str) -> bool:
        """Return whether one more round of a kind is allowed."""
        if self._task.privacy is None:
            return True
        return any(one.kind == kind and not one.exhausted for one in await self.standing())

    async def require(self, kind: str) -> None:
        """Raise unless one more round of a kind is allowed."""
        if not await self.affords(kind):
            raise BudgetSpentError(
                "the remaining privacy budget does not cover another round of this kind; create a new task"
            )
