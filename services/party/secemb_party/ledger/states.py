"""The states of a round and the only ways between them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class RoundState(StrEnum):
    """Where a round is."""

    OPEN = "open"  # sessions come in
    SEALING = "sealing"  # nothing new comes in; the two servers compare what they hold
    SEALED = "sealed"  # the list of sessions is fixed
    SHARED = "shared"  # this server's share of the sum is stored
    RECONSTRUCTED = "reconstructed"  # the sum is known and the next model is made
    PUBLISHED = "published"  # devices may see the result; the round is over
    ABORTED = "aborted"  # no sum is ever opened; the round is over


TRANSITIONS: Mapping[RoundState, frozenset[RoundState]] = MappingProxyType(
    {
        RoundState.OPEN: frozenset({RoundState.SEALING, RoundState.ABORTED}),
        RoundState.SEALING: frozenset({RoundState.SEALED, RoundState.ABORTED}),
        # Once the list is fixed the other server may already have shared: there is no way back, only on.
        RoundState.SEALED: frozenset({RoundState.SHARED}),
        RoundState.SHARED: frozenset({RoundState.RECONSTRUCTED}),
        RoundState.RECONSTRUCTED: frozenset({RoundState.PUBLISHED}),
        RoundState.PUBLISHED: frozenset(),
        RoundState.ABORTED: frozenset(),
    }
)

ENDED = frozenset(state for state, onward in TRANSITIONS.items() if not onward)

# What must be known, now or from before, when a round enters a state.
REQUIRED_FACTS: Mapping[RoundState, tuple[str, ...]] = MappingProxyType(
    {
        RoundState.SEALED: ("sealed_sessions", "list_digest"),
        RoundState.SHARED: ("share_digest",),
        RoundState.ABORTED: ("reason",),
    }
)


def allowed(from_: RoundState, to: RoundState) -> bool:
    """Return whether a round may go from one state straight to another."""
    return to in TRANSITIONS[from_]
