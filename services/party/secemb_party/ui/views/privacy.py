"""The privacy cost of a task's rounds on this server, and that of the rest of its budget.

For a task without a budget: the number of devices that hide one, and budgets that a similar task could have.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from secemb_party.accountant import epsilon, epsilon_known, solve_multiplier
from secemb_party.budget import Line, Spent, lines_of
from secemb_party.errors import AccountantMissingError
from secemb_party.ledger import RoundState
from secemb_party.service import Party

_POINTS = 24  # of a curve
_BUDGETS = (1.0, 2.0, 4.0, 8.0)  # ε of hypothetical tasks
_DELTA = 1e-5
_PROJECTED = 1000  # rounds at most: more of them would need so much noise that nothing could be learned
_RECENT = 25  # rounds whose cohorts are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A budget line, and ε by number of rounds: as accounted, and against an attacker who knows who took part."""

    line: Line
    spent: Spent
    points: list[tuple[int, float, float]]

    @property
    def part(self) -> float:
        """Return the spent fraction of the budget."""
        return self.spent.epsilon / self.spent.budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """A budget that a task with this many rounds could have, and the noise it needs."""

    epsilon: float
    multiplier: float  # of each server's noise, as a multiple of what one person can change
    noise: float  # of both servers, in the mean over the smallest cohort, as a fraction of what one person can change


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohorts:
    """The number of devices among which one is hidden."""

    least: int  # smallest number of sessions in a sum
    most: int
    smallest: int | None  # of the recent rounds; None: no sum was computed yet
    recent: int  # number of rounds that this is from


async def privacy_facts(party: Party) -> dict[str, object]:
    """Return the number of devices among which one is hidden, and the budget lines; a task without noise has none."""
    task, lines = party.task, lines_of(party.task)
    standing = await party.spending.standing()
    courses = await party.workers.run(lambda: [_course(lines[one.kind], one) for one in standing])
    rounds = min(task.rounds, _PROJECTED)
    possible = [] if courses else await party.workers.run(lambda: _possible(rounds, task.min_cohort))
    return {
        "courses": courses,
        "privacy": task.privacy,
        "step": 2.0**-task.fraction_bits,
        "cohorts": await _cohorts(party),
        "possible": possible,
        "rounds": rounds,
        "all_rounds": task.rounds,
        "delta": _DELTA,
        "relays": task.relays,
    }


async def _cohorts(party: Party) -> Cohorts:
    found = await party.ledger.rounds(party.task.task_id, limit=_RECENT, state=RoundState.PUBLISHED)
    sizes = [len(one.sealed_sessions) for one in found if one.sealed_sessions is not None]
    return Cohorts(
        least=party.task.min_cohort, most=party.task.cohort, smallest=min(sizes, default=None), recent=len(sizes)
    )


@lru_cache(maxsize=8)
def _possible(rounds: int, cohort: int) -> tuple[Possible, ...]:
    """Return the noise that budgets would need, or nothing if the accountant is not installed."""
    try:
        found = [(one, float(solve_multiplier(budget=one, delta=_DELTA, rounds=rounds))) for one in _BUDGETS]
    except AccountantMissingError:
        return ()
    return tuple(Possible(epsilon=one, multiplier=z, noise=math.sqrt(2) * z / cohort) for one, z in found)


def _course(line: Line, spent: Spent) -> Course:
    total = spent.shares + spent.remaining
    rounds = sorted({spent.shares, *(round(at * total / _POINTS) for at in range(_POINTS + 1))})
    points = [(count, epsilon(line.terms, count), epsilon_known(line.terms, count)) for count in rounds]
    return Course(line=line, spent=spent, points=points)
