"""What grows is removed after its time, in batches, and never what is counted or still needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.ledger import sessions as session_rows
from secemb_party.peer_clock import TIME_HEADER, written
from secemb_party.service import Party

pytestmark = pytest.mark.asyncio
KEEP = 1000.0


@asynccontextmanager
async def after_two_rounds() -> AsyncIterator[Pair]:
    """Run a pair that has published two rounds of two devices, one long ago and one just now."""
    async with a_pair() as pair:
        for number in range(2):
            await pair.step()
            for device in range(2):
                await a_device(pair, 2 * number + device).take_part()
            await pair.finish()
            if number == 0:
                pair.clock.now += 2 * KEEP
        for party in pair.parties.values():
            party._keep_seconds = KEEP
            agree(party)
        yield pair


def agree(party: Party) -> None:
    party.peer_clock.compare({TIME_HEADER: written(party.clock())})


async def sessions(party: Party) -> list[int]:
    """Return how many sessions of each round are in the ledger, the newest round first."""
    rounds = await party.ledger.rounds(party.task.task_id)
    return [(await party.ledger.counts(one.round_id)).admitted for one in rounds]


async def test_old_sessions_go_and_what_is_counted_stays() -> None:
    async with after_two_rounds() as pair:
        for party in pair.parties.values():
            shares = await party.ledger.shares_by_kind(party.task.task_id)
            rounds = await party.ledger.rounds(party.task.task_id)
            assert await party.forget_old() == 2
            assert await party.forget_old() == 0
            assert await sessions(party) == [2, 0]
            assert await party.ledger.shares_by_kind(party.task.task_id) == shares == {"train": 2}
            assert await party.ledger.rounds(party.task.task_id) == rounds
            assert await party.trained() == 2
        await pair.step()
        for device in range(2):
            await a_device(pair, 4 + device).take_part()
        await pair.finish()
        assert (await pair.parties[0].trained(), await pair.parties[1].trained()) == (3, 3)


async def test_a_batch_is_limited_and_the_open_round_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_rows, "_OLD", session_rows._OLD.limit(1))
    async with after_two_rounds() as pair:
        party = pair.parties[0]
        await pair.step()
        await a_device(pair, 7).join()
        party._keep_seconds = -1.0  # everything that has ended is old
        assert [await party.forget_old() for _ in range(5)] == [1, 1, 1, 1, 0]
        assert await sessions(party) == [1, 0, 0]


async def test_nothing_is_removed_by_a_clock_that_may_be_wrong() -> None:
    async with after_two_rounds() as pair:
        party = pair.parties[0]
        party.peer_clock.compare({TIME_HEADER: written(party.clock() - 500.0)})
        assert await party.forget_old() == 0
        party.peer_clock._compared = float("-inf")
        assert await party.forget_old() == 0
        agree(party)
        assert await party.forget_old() == 2


async def test_files_and_sessions_of_earlier_tasks_go_if_the_operator_says_so() -> None:
    async with after_two_rounds() as pair:
        party = pair.parties[0]
        party._keep_seconds = float("inf")
        store = pair.folder / "server0" / "models"
        earlier = [bytes([number]) * 32 for number in range(1, 4)]
        for number, task_id in enumerate(earlier):
            await party.ledger.add_task(task_id, b"specification", 10.0 + number)
            (store / task_id.hex()).mkdir()
            (store / task_id.hex() / "v000000.safetensors").write_bytes(b"numbers")
        assert await party.forget_old() == 0
        assert all((store / task_id.hex()).exists() for task_id in earlier)
        party._keep_tasks = 1
        await party.forget_old()
        assert [(store / task_id.hex()).exists() for task_id in earlier] == [False, False, True]
        assert party.models.versions() == [0, 1, 2]
        assert await sessions(party) == [2, 2]
