"""What privacy has cost follows from the shares in a ledger: each counts once, whatever crashed or came again."""

from itertools import pairwise
from typing import Any

import pytest
from tests.integration.databases import NOW, TASK, complete_session, name, new_round

from secemb_party.accountant import Terms, epsilon
from secemb_party.budget import Line, spent
from secemb_party.errors import StateConflictError
from secemb_party.ledger import Ledger, RoundState

OPEN, SEALING, SEALED, SHARED = RoundState.OPEN, RoundState.SEALING, RoundState.SEALED, RoundState.SHARED
RECONSTRUCTED, PUBLISHED = RoundState.RECONSTRUCTED, RoundState.PUBLISHED
SESSIONS = [name(text, 16) for text in ("a", "b")]
FACTS: dict[RoundState, dict[str, Any]] = {
    SEALED: {"sealed_sessions": SESSIONS, "list_digest": name("list")},
    SHARED: {"share_digest": name("share")},
    RECONSTRUCTED: {"next_version": 1},
}
LINE = Line(kind="train", terms=Terms(multiplier=4.0, delta=1e-5), budget=2.0)

pytestmark = pytest.mark.asyncio


async def run_round(ledger: Ledger, number: int, *, kind: str = "train", until: RoundState = PUBLISHED) -> bytes:
    """Take a round as far as `until`."""
    new = new_round(number, kind=kind)
    await ledger.create_round(new)
    for session_id in SESSIONS:
        await complete_session(ledger, new.round_id, name(f"{number}{session_id!r}", 16))
    sealed = {"sealed_sessions": [name(f"{number}{one!r}", 16) for one in SESSIONS], "list_digest": name("list")}
    way = [OPEN, SEALING, SEALED, SHARED, RECONSTRUCTED, PUBLISHED]
    for expect, to in pairwise(way[: way.index(until) + 1]):
        await ledger.advance(new.round_id, expect, to, NOW, **(sealed if to is SEALED else FACTS.get(to, {})))
    return new.round_id


async def test_nothing_is_spent_before_a_share_is_recorded(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    await run_round(ledger, 1, until=SEALED)
    assert await ledger.shares_by_kind(TASK) == {}
    assert spent(LINE, 0).epsilon == 0.0


async def test_an_aborted_round_costs_nothing(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    round_id = await run_round(ledger, 1, until=SEALING)
    await ledger.advance(round_id, SEALING, RoundState.ABORTED, NOW, reason="too few sessions")
    assert await ledger.shares_by_kind(TASK) == {}


async def test_a_share_is_spent_once_however_often_it_is_recorded(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    round_id = await run_round(ledger, 1, until=SHARED)
    for _ in range(3):
        await ledger.advance(round_id, SEALED, SHARED, NOW, share_digest=name("share"))
    assert await ledger.shares_by_kind(TASK) == {"train": 1}
    with pytest.raises(StateConflictError):  # noise that was drawn anew is not taken
        await ledger.advance(round_id, SEALED, SHARED, NOW, share_digest=name("another share"))
    assert await ledger.shares_by_kind(TASK) == {"train": 1}


async def test_every_kind_has_its_own_line(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    for number, kind in enumerate(["train", "evaluate", "train", "survey", "train"], 1):
        await run_round(ledger, number, kind=kind)
    assert await ledger.shares_by_kind(TASK) == {"train": 3, "evaluate": 1, "survey": 1}
    assert await ledger.shares_by_kind(name("another task")) == {}


async def test_what_is_spent_only_grows_and_ends_at_the_budget(ledger: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    standings = []
    for number in range(1, LINE.rounds() + 1):
        await run_round(ledger, number)
        standings.append(spent(LINE, (await ledger.shares_by_kind(TASK))["train"]))
    costs = [one.epsilon for one in standings]
    assert costs == sorted(set(costs))
    assert costs[-1] <= LINE.budget < epsilon(LINE.terms, LINE.rounds() + 1)
    assert [one.exhausted for one in standings] == [*[False] * (len(standings) - 1), True]


async def test_a_ledger_that_went_further_than_its_budget_has_nothing_left(ledger: Ledger) -> None:
    assert spent(LINE, LINE.rounds() + 5).remaining == 0
