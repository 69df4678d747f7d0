"""What the rounds of a task have cost in privacy here, and what the rest of its budget will."""

from dataclasses import dataclass

from secemb_party.accountant import epsilon, epsilon_known
from secemb_party.budget import Line, Spent, lines_of
from secemb_party.service import Party

_POINTS = 24  # of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A budget line, and ε by number of rounds: as accounted, and against an attacker who knows who took part."""

    line: Line
    spent: Spent
    points: list[tuple[int, float, float]]

    @property
    def part(self) -> float:
        """Return which part of the budget is spent."""
        return self.spent.epsilon / self.spent.budget


async def privacy_facts(party: Party) -> dict[str, object]:
    """Return where every budget line stands; a task without noise has none."""
    lines = lines_of(party.task)
    standing = await party.spending.standing()
    courses = await party.workers.run(lambda: [_course(lines[one.kind], one) for one in standing])
    return {"courses": courses, "privacy": party.task.privacy, "step": 2.0**-party.task.fraction_bits}


def _course(line: Line, spent: Spent) -> Course:
    total = spent.shares + spent.remaining
    rounds = sorted({spent.shares, *(round(at * total / _POINTS) for at in range(_POINTS + 1))})
    points = [(count, epsilon(line.terms, count), epsilon_known(line.terms, count)) for count in rounds]
    return Course(line=line, spent=spent, points=points)
