"""What a server has spent of a task's privacy, and what is left: a function of how many shares it has given away.

A share's digest is recorded in the same transaction that ends its computation, once for a round, and the noise is in
the stored bytes. So the number of recorded digests is the number of times that noise was drawn and could have left this
server: a crash before the record has shown nothing to anybody, and sending the same bytes again spends nothing.
"""

from dataclasses import dataclass

from secemb_party.privacy.accountant import MOST_ROUNDS, Terms, epsilon, rounds_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The budget of one kind of round."""

    kind: str
    terms: Terms
    budget: float  # ε

    def rounds(self) -> int:
        """Return how many rounds of this kind there may ever be."""
        return rounds_within(self.terms, self.budget, MOST_ROUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Where a line stands on this server."""

    kind: str
    shares: int
    epsilon: float
    budget: float
    remaining: int  # rounds

    @property
    def exhausted(self) -> bool:
        """Tell whether one more round would go beyond the budget."""
        return self.remaining == 0


def spent(line: Line, shares: dict[str, int]) -> Spent:
    """Return where a line stands after so many shares of each kind."""
    given = shares.get(line.kind, 0)
    return Spent(
        kind=line.kind,
        shares=given,
        epsilon=epsilon(line.terms, given),
        budget=line.budget,
        remaining=max(0, line.rounds() - given),
    )
