"""What became of its rounds: a device learns it at its next call, from an answer that every device gets."""

import json
import secrets
from typing import Any

import pytest
from tests.devices.phone import Phone, a_phone, contributed
from tests.devices.scripted import a_device
from tests.simulation.pair import RELAYED, Pair, a_pair

from secemb_party.ended_rounds import EndedRounds
from secemb_sdk import Contributed, Ended, NotNow
from secemb_sdk.home.receipts import Receipt
from secemb_sdk.steps import Answer, Request
from secemb_shared.messages.spec import SURVEY, TRAIN

pytestmark = pytest.mark.asyncio
DIRECT: dict[str, Any] = {}


async def publish(pair: Pair, *phones: Phone) -> None:
    """Run one round with these devices."""
    await pair.step()
    for phone in phones:
        await contributed(phone)
    pair.clock.now += pair.task.join_seconds + 1
    await pair.finish()
    await pair.step()  # the next round


async def abort(pair: Pair, phone: Phone) -> None:
    """Run one round in which this device finishes its session, and the only other one does not."""
    await pair.step()
    await contributed(phone)
    await a_device(pair, 1, name=secrets.token_bytes(16)).fall_silent()
    pair.clock.now += pair.task.upload_seconds + 1
    await pair.finish()
    await pair.step()


def stored(phone: Phone) -> list[Receipt]:
    vault = phone.open().vault
    try:
        return vault.receipts()
    finally:
        vault.close()


@pytest.mark.parametrize("task", [DIRECT, RELAYED])
async def test_a_device_learns_at_its_next_call_that_its_round_was_published(task: dict[str, Any]) -> None:
    async with a_pair(**task) as pair:
        first, second = a_phone(pair, 0), a_phone(pair, 1)
        await publish(pair, first, second)
        assert [one.fate for one in stored(first)] == ["not known yet"]
        outcome = await first.contribute()
        assert isinstance(outcome, Contributed)
        assert [(one.round, one.fate) for one in outcome.settled] == [(0, "published (version 1)")]
        assert [one.fate for one in stored(first)] == ["published (version 1)", "not known yet"]


@pytest.mark.parametrize("task", [DIRECT, RELAYED])
async def test_a_device_learns_at_its_next_call_that_its_round_was_aborted(task: dict[str, Any]) -> None:
    async with a_pair(**task) as pair:
        phone = a_phone(pair, 0)
        await abort(pair, phone)
        outcome = await phone.contribute()
        assert isinstance(outcome, Contributed)
        assert [one.fate for one in outcome.settled] == ["aborted (too few sessions on both servers)"]
        again = await phone.contribute()
        assert again is not None
        assert again.settled == ()  # it is told once


@pytest.mark.parametrize("task", [DIRECT, RELAYED])
async def test_a_device_that_cannot_join_learns_it_too(task: dict[str, Any]) -> None:
    async with a_pair(cohort=2, **task) as pair:
        phones = [a_phone(pair, number) for number in range(4)]
        await publish(pair, *phones[:2])
        for phone in phones[2:]:
            await contributed(phone)
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert [one.fate for one in outcome.settled] == ["published (version 1)"]


@pytest.mark.parametrize("task", [DIRECT, RELAYED])
async def test_a_device_learns_of_the_last_round_that_the_task_has(task: dict[str, Any]) -> None:
    async with a_pair(rounds=1, **task) as pair:
        first, second = a_phone(pair, 0), a_phone(pair, 1)
        await publish(pair, first, second)
        outcome = await first.contribute()
        assert isinstance(outcome, Ended)
        assert [one.fate for one in outcome.settled] == ["published (version 1)"]


async def test_a_survey_makes_no_version() -> None:
    async with a_pair(choose_kind=lambda number: SURVEY if number == 0 else TRAIN) as pair:
        first, second = a_phone(pair, 0), a_phone(pair, 1)
        await publish(pair, first, second)
        outcome = await first.contribute()
        assert outcome is not None
        assert [one.fate for one in outcome.settled] == ["published"]


@pytest.mark.parametrize("task", [DIRECT, RELAYED])
async def test_a_server_cannot_tell_by_the_requests_who_was_in_a_round(task: dict[str, Any]) -> None:
    """Who was in it asks what a newcomer asks: the answer tells everyone of all rounds."""
    async with a_pair(**task) as pair:
        first, second, newcomer = (a_phone(pair, number) for number in range(3))
        answers: list[bytes] = []

        def watch(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("/join"):
                answers.append(answer.body)
            return answer

        assert isinstance(await newcomer.contribute(), NotNow)  # it has learned the task, and was in no round
        await publish(pair, first, second)
        first.seen.requests.clear()
        newcomer.seen.requests.clear()
        first.alter = newcomer.alter = watch
        await contributed(first)
        await contributed(newcomer)
        assert first.seen.requests == newcomer.seen.requests
        told = [json.loads(body)["rounds"] for body in answers]
        assert told == [{"since": 0, "until": 0, "aborted": {}}] * 2


@pytest.mark.parametrize(
    "rounds",
    [None, 3, {}, {"since": 0}, {"since": 0, "until": "x", "aborted": {}}, {"since": 0, "until": 9, "aborted": [1]}],
)
async def test_what_cannot_be_read_of_rounds_changes_nothing(rounds: object) -> None:
    async with a_pair() as pair:
        first, second = a_phone(pair, 0), a_phone(pair, 1)
        await publish(pair, first, second)

        def spoil(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("/join"):
                return answer
            body = json.dumps(json.loads(answer.body) | {"rounds": rounds}).encode()
            return Answer(status=answer.status, headers=answer.headers, body=body)

        first.alter = spoil
        outcome = await first.contribute()
        assert isinstance(outcome, Contributed)
        assert outcome.settled == ()
        assert stored(first)[0].fate == "not known yet"


async def test_a_reason_that_a_server_makes_up_cannot_move_the_cursor() -> None:
    async with a_pair() as pair:
        phone = a_phone(pair, 0)
        await abort(pair, phone)

        def spoil(request: Request, answer: Answer) -> Answer:
            found = json.loads(answer.body) if request.path.endswith("/join") else {}
            if "rounds" not in found:
                return answer
            found["rounds"]["aborted"] = {"0": "\x1b[2J"}
            return Answer(status=answer.status, headers=answer.headers, body=json.dumps(found).encode())

        phone.alter = spoil
        outcome = await phone.contribute()
        assert outcome is not None
        assert [one.fate for one in outcome.settled] == ["aborted (the reason cannot be displayed)"]


async def test_devices_are_told_of_the_newest_aborted_rounds_and_not_what_operators_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secemb_party.ended_rounds._TOLD", 2)
    async with a_pair() as pair:
        for _ in range(3):
            await abort(pair, a_phone(pair, 0))
        party = pair.parties[0]
        assert await party.ended_rounds() == EndedRounds(
            1, 2, dict.fromkeys((2, 1), "too few sessions on both servers")
        )
        monkeypatch.setattr("secemb_party.ended_rounds._PUBLIC_REASONS", ("something else",))
        assert set((await party.ended_rounds()).aborted.values()) == {"the operators ended it"}
