"""Old sessions leave the ledger with their bodies, and rounds stay."""

import pytest
from tests.integration.databases import NOW, TASK, complete_session, end_round, name, open_round

from secemb_party.ledger import Ledger, RoundState

pytestmark = pytest.mark.asyncio


async def test_sessions_of_rounds_that_ended_long_ago_are_removed_with_their_bodies(ledger: Ledger) -> None:
    rounds = [await open_round(ledger, number) for number in (1, 2, 3)]
    for number, round_id in enumerate(rounds):
        await complete_session(ledger, round_id, name(f"session {number}", 16))
        await ledger.remember(f"prepared:{round_id.hex()}", b"list", NOW)
    await end_round(ledger, rounds[0], NOW)
    await end_round(ledger, rounds[1], NOW + 100)
    assert await ledger.forget_sessions(ended_before=NOW) == 0
    assert await ledger.forget_sessions(ended_before=NOW + 50) == 1
    assert [(await ledger.counts(one)).updates for one in rounds] == [0, 1, 1]
    assert [await ledger.recall(f"prepared:{one.hex()}") for one in rounds] == [None, b"list", b"list"]
    assert set(await ledger.bodies.rounds()) == set(rounds[1:])
    assert [one.state for one in await ledger.rounds(TASK)] == [
        RoundState.OPEN,
        RoundState.ABORTED,
        RoundState.ABORTED,
    ]


async def test_sessions_of_other_tasks_go_even_if_their_round_never_ended(ledger: Ledger) -> None:
    other = name("another task")
    kept, dropped = await open_round(ledger), await open_round(ledger, task_id=other)
    for round_id in (kept, dropped):
        await complete_session(ledger, round_id, name(f"session of {round_id.hex()}", 16))
    assert await ledger.forget_sessions(ended_before=0.0, tasks=[other]) == 1
    assert [(await ledger.counts(one)).updates for one in (kept, dropped)] == [1, 0]
