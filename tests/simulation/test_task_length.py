"""How long a task lasts: `rounds` counts the training rounds whose sum was opened, on both servers."""

import secrets
from collections.abc import Callable

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.service import Party
from secemb_server0.conductor import Finished, Open
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio

SURVEYED = [SURVEY, TRAIN, EVALUATE, TRAIN, TRAIN, EVALUATE, TRAIN, TRAIN]
Found = list[tuple[str, RoundState]]


def kind_of(number: int) -> str:
    """Return the kind of a round as the settings survey_first = true and evaluate_every = 3 give it."""
    return SURVEYED[number]


async def run_round(pair: Pair, devices: int) -> bool:
    """Run one round with this many new devices; return False if none opened."""
    decision = await pair.step()
    if decision == Finished():
        return False
    assert isinstance(decision, Open)
    for number in range(devices):
        device = a_device(pair, number, name=secrets.token_bytes(16))
        await device.join()
        if device.spec.sum_size:
            device.write_sum([1.0] * device.spec.sum_size)
        await device.take_part()
    pair.clock.now += pair.task.upload_seconds + 1
    await pair.finish()
    return True


async def ended(pair: Pair) -> Found:
    """Return the kind and the end of every round, the oldest first, on which both servers agree."""
    found = [await pair.parties[role].ledger.rounds(pair.task.task_id) for role in (0, 1)]
    first, second = ([(one.kind, one.state) for one in reversed(records)] for records in found)
    assert first == second
    return first


async def run_task(pair: Pair, *, empty: int = 0, at_most: int = 12) -> Found:
    """Run rounds until the task has ended, the first few of them without devices."""
    for number in range(at_most):
        if not await run_round(pair, 0 if number < empty else 2):
            return await ended(pair)
    raise AssertionError("the task goes on")


PUBLISHED, ABORTED = RoundState.PUBLISHED, RoundState.ABORTED
CASES = [
    pytest.param(3, lambda _: TRAIN, 0, [(TRAIN, PUBLISHED)] * 3, id="training alone"),
    pytest.param(2, lambda _: TRAIN, 5, [(TRAIN, ABORTED)] * 5 + [(TRAIN, PUBLISHED)] * 2, id="devices come late"),
    pytest.param(3, kind_of, 0, [(kind, PUBLISHED) for kind in SURVEYED[:6]], id="a closing evaluation"),
    pytest.param(2, kind_of, 0, [(kind, PUBLISHED) for kind in SURVEYED[:4]], id="the next round would train"),
]


@pytest.mark.parametrize(("rounds", "kinds", "empty", "expected"), CASES)
async def test_a_task_lasts_until_as_many_rounds_have_trained(
    rounds: int, kinds: Callable[[int], str], empty: int, expected: Found
) -> None:
    async with a_pair(rounds=rounds, choose_kind=kinds, min_cohort=2, cohort=2) as pair:
        assert await run_task(pair, empty=empty) == expected
        for role in (0, 1):
            assert await pair.parties[role].trained() == rounds
            published = await pair.parties[role].ledger.published_version(pair.task.task_id)
            assert published is not None
            assert published.version == rounds
            await pair.crash(role)
        assert await pair.step() == Finished()
        assert pair.line.broken == []


async def count_numbers(party: Party) -> int:
    """Count every round that has ended, as a server with this fault would."""
    return len(await party.ledger.rounds(party.task.task_id))


@pytest.mark.parametrize("role", [0, 1])
async def test_a_server_that_counts_every_round_is_found_out(role: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(rounds=2, cohort=2) as pair:
        monkeypatch.setattr(pair.parties[role], "trained", lambda: count_numbers(pair.parties[role]))
        if role == 0:
            assert await run_task(pair, empty=1) == [(TRAIN, ABORTED), (TRAIN, PUBLISHED)]  # one of its two rounds
        else:
            with pytest.raises(PeerRefusedError, match="has had its 2 training rounds"):
                await run_task(pair, empty=1)


async def test_an_aborted_survey_is_repeated_and_an_aborted_evaluation_is_not() -> None:
    kinds = [SURVEY, TRAIN, TRAIN, TRAIN, EVALUATE, TRAIN, TRAIN]
    async with a_pair(rounds=3, choose_kind=kinds.__getitem__, cohort=2) as pair:
        for devices in (0, 0, 2, 2, 0, 2, 2):
            assert await run_round(pair, devices)
        assert await ended(pair) == [
            (SURVEY, ABORTED),
            (SURVEY, ABORTED),
            (SURVEY, PUBLISHED),
            (TRAIN, PUBLISHED),
            (EVALUATE, ABORTED),
            (TRAIN, PUBLISHED),
            (TRAIN, PUBLISHED),
        ]


async def test_a_closing_evaluation_without_devices_ends_the_task_all_the_same() -> None:
    async with a_pair(rounds=1, choose_kind=[TRAIN, EVALUATE, EVALUATE].__getitem__, cohort=2) as pair:
        for devices in (2, 0):
            assert await run_round(pair, devices)
        assert not await run_round(pair, 2)
        assert await ended(pair) == [(TRAIN, PUBLISHED), (EVALUATE, ABORTED)]


async def test_a_pair_without_devices_opens_a_round_no_more_often_than_the_task_says() -> None:
    async with a_pair(rounds=1) as pair:
        start = pair.clock.now
        for _ in range(20):
            assert isinstance(await pair.step(), Open)
            await pair.finish()
        assert pair.clock.now - start >= 20 * pair.task.join_seconds
        assert await pair.parties[0].trained() == 0
