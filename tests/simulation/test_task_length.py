"""How long a task lasts: `rounds` counts the training rounds whose sum was opened, on both servers."""

import secrets
from collections.abc import Callable

import httpx
import pytest
from tests.devices.phone import a_phone
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.service import Party
from secemb_sdk import Ended
from secemb_server0.conductor import Finished, Idle, Open, Wait
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio

SURVEYED = [SURVEY, TRAIN, EVALUATE, TRAIN, TRAIN, EVALUATE, TRAIN, TRAIN]
Found = list[tuple[str, RoundState]]


def kind_of(number: int) -> str:
    """Return the kind of a round as the settings survey_first = true and evaluate_every = 3 give it."""
    return SURVEYED[number]


async def run_round(pair: Pair, devices: int) -> bool:
    """Run one round with this many new devices, or one that loses its device; return False if none opened."""
    decision = await pair.step()
    if decision == Finished():
        return False
    assert isinstance(decision, Open)
    if not devices:
        await a_device(pair, 0, name=secrets.token_bytes(16)).fall_silent()  # and is never heard of again
    for number in range(devices):
        device = a_device(pair, number, name=secrets.token_bytes(16))
        await device.join()
        if device.spec.sum_size:
            device.write_sum([0.0] * device.spec.sum_size)
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
    """Run rounds until the task has ended, the first few of them with nothing but a lost device."""
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
            with pytest.raises(PeerRefusedError, match="its 2 training rounds"):
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


async def test_a_closing_evaluation_that_is_aborted_ends_the_task_all_the_same() -> None:
    async with a_pair(rounds=1, choose_kind=[TRAIN, EVALUATE, EVALUATE].__getitem__, cohort=2) as pair:
        for devices in (2, 0):
            assert await run_round(pair, devices)
        assert not await run_round(pair, 2)
        assert await ended(pair) == [(TRAIN, PUBLISHED), (EVALUATE, ABORTED)]


async def test_a_pair_without_devices_opens_one_round_and_waits() -> None:
    async with a_pair(rounds=1) as pair:
        assert isinstance(await pair.step(), Open)
        for _ in range(20):
            assert await pair.step() == Idle()
            pair.clock.now += 600
        await pair.crash(0)
        assert await pair.step() == Idle()
        for role in (0, 1):
            (found,) = await pair.parties[role].ledger.rounds(pair.task.task_id)
            assert (found.state, found.started) == (RoundState.OPEN, False)


async def test_too_few_sessions_wait_for_others_who_begin_new_deadlines_on_both_servers() -> None:
    async with a_pair(rounds=1, min_cohort=2) as pair:
        await pair.step()
        await a_device(pair, 0).take_part()
        assert isinstance(await pair.step(), Wait)
        pair.clock.now += 7200
        assert await pair.step() == Idle()
        await a_device(pair, 1).take_part()
        assert isinstance(await pair.step(), Wait)
        for role in (0, 1):
            (found,) = await pair.parties[role].ledger.rounds(pair.task.task_id)
            assert found.join_until == pair.clock.now + pair.task.join_seconds
            assert found.upload_until == pair.clock.now + pair.task.upload_seconds
        await pair.finish()
        assert await ended(pair) == [(TRAIN, PUBLISHED)]


async def test_a_task_that_has_ended_says_so_to_devices_before_their_token_is_looked_at() -> None:
    async with a_pair(rounds=1, open_enrolment=False, min_cohort=2) as pair:
        await pair.step()
        stranger = a_device(pair, 5)
        refused = await stranger.join()
        assert refused is not None
        assert refused.status_code == 401
        for number in range(2):
            await pair.enrol(f"{number}")
            await a_device(pair, number, token=f"{number}").take_part()
        await pair.finish()
        turned_away = await stranger.join()
        assert turned_away is not None
        assert (turned_away.status_code, turned_away.json()["round"]) == (202, None)
        await pair.step()
        over = await stranger.join()
        assert over is not None
        assert (over.status_code, over.json()["type"]) == (410, "urn:secemb:problem:task-ended")
        view = await pair.send(0, httpx.Request("GET", f"https://server0/v1/tasks/{pair.task.task_id.hex()}"))
        assert view is not None
        assert (view.json()["ended"], view.json()["model_version"]) == (True, 1)
        assert isinstance(await a_phone(pair, 0, token="0").contribute(), Ended)
