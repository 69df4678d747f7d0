"""A device with events: what it recommends follows the last one, and how much it reads tells nothing about them."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.devices.last_event import Last
from tests.devices.phone import Phone, a_phone, noticed, until_contributed
from tests.simulation.pair import RELAYED, Pair, a_pair

from secemb_sdk.context import Policy, round_bytes
from secemb_sdk.models import Floats
from secemb_sdk.recommend import Recommendation, TableFormat, rank_candidates, recommend_items
from secemb_sdk.steps import Answer, Request
from secemb_shared.messages.spec import EVALUATE, NEXT
from secemb_shared.randomness import Indices

pytestmark = pytest.mark.asyncio

TASK: dict[str, Any] = {"items": 40, "capacity": 6, "row_width": 2, "dense_size": 0, "initial_scale": "1", "loss": NEXT}


def phone_with(pair: Pair, events: list[int], number: int = 0, **options: Any) -> Phone:
    phone = a_phone(pair, number, options={"model": Last(), "hold_out": 0.1, **options})
    context = phone.open()
    context.vault.log_events([(item, float(place)) for place, item in enumerate(events)], now=0.0)
    context.vault.close()
    return phone


async def recommended(phone: Phone, *, include_rated: bool = False) -> list[Recommendation]:
    context = phone.open()
    try:
        steps = recommend_items(context, k=40, table=TableFormat.FLOAT32, include_rated=include_rated)
        return await phone.drive(steps)
    finally:
        context.vault.close()


async def ranked(phone: Phone, candidates: Indices, *, include_rated: bool = False) -> list[Recommendation]:
    context = phone.open()
    try:
        return await phone.drive(rank_candidates(context, candidates.tolist(), include_rated=include_rated))
    finally:
        context.vault.close()


async def test_recommendations_follow_the_last_event_and_leave_out_what_was_chosen() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [3, 8, 21])
        found = await recommended(phone)
        assert len(found) == 37
        assert not {3, 8, 21} & {one.item for one in found}
        again = await recommended(phone, include_rated=True)
        assert (again[0].item, again[0].score) == (21, 0.0)  # nothing is more like it than itself


async def test_a_private_ranking_has_the_scores_of_the_copy() -> None:
    async with a_pair(**TASK) as pair:
        await pair.step()
        phone = phone_with(pair, [3, 8, 21])
        by_copy = {one.item: one.score for one in await recommended(phone, include_rated=True)}
        for candidates in (np.arange(10), np.array([21]), np.arange(40)):
            found = await ranked(phone, candidates, include_rated=True)
            assert {one.item: one.score for one in found} == {item: by_copy[item] for item in candidates.tolist()}
            assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert {one.item for one in await ranked(phone, np.arange(10))} == set(range(10)) - {3, 8}


@pytest.mark.parametrize("events", [[], [1], [2, 5, 8], [30, 31, 32, 33, 34]])
@pytest.mark.parametrize(("candidates", "reads"), [(9, 3), (20, 4), (38, 7)])  # with four events, in chunks of six
async def test_how_much_a_ranking_reads_does_not_depend_on_the_events(
    events: list[int], candidates: int, reads: int
) -> None:
    async with a_pair(**TASK) as pair:
        await pair.step()
        phone = phone_with(pair, events)
        await ranked(phone, np.arange(candidates))
        assert [what for what, _ in phone.sent_at].count("rows") == 2 * reads  # of each server


# Evaluations.


def other_table(request: Request, answer: Answer) -> Answer:
    """Return a table of the right size and with a digest of its own, as a lying server 0 would send it."""
    if "/table/" not in request.path or answer.status >= 300:
        return answer
    body = bytes(len(answer.body))
    return replace(answer, body=body, headers={**answer.headers, "etag": f'"{hashlib.sha256(body).hexdigest()}"'})


MEASURED: dict[str, Any] = {**TASK, "capacity": 9, "cohort": 3, "choose_kind": lambda _: EVALUATE}
HISTORIES = [3, 8, 21], [5, 6, 7, 8], [30, 12]


def places_of(table: Floats) -> list[int]:
    """Return where each newest event ranks among all that its device has not chosen."""
    places = []
    for *before, newest in HISTORIES:
        away = np.abs(table[:, 0] - table[before[-1], 0])
        others = np.setdiff1d(np.arange(len(table)), [*before, newest])
        places.append(1 + int(np.count_nonzero(away[others] <= away[newest])))
    return places


@pytest.mark.parametrize("relayed", [False, True])
async def test_an_evaluation_ranks_newest_events_in_the_whole_catalogue(relayed: bool) -> None:
    async with a_pair(**MEASURED, **(RELAYED if relayed else {})) as pair:
        await pair.step()
        phones = [phone_with(pair, events, number) for number, events in enumerate(HISTORIES)]
        await until_contributed(phones)
        await pair.finish()
        found, places = await result(pair), places_of(pair.parties[0].models.load(0).rows)
        assert (found["rankings"], found["strangers"]) == (3.0, 100)
        assert found["whole_mrr"] == pytest.approx(np.mean([1 / place for place in places]), abs=1e-4)
        assert found["whole_hit_rate"] == pytest.approx(np.mean([place <= 10 for place in places]), abs=1e-4)
        assert found["mrr"] == pytest.approx(found["whole_mrr"], abs=1e-3), "there are fewer than a hundred strangers"
        assert found["perplexity"] > 1


async def test_a_device_that_may_not_fetch_the_table_takes_part_and_ranks_nothing() -> None:
    async with a_pair(**{**MEASURED, "items": 5000}) as pair:
        await pair.step()
        needed = round_bytes(pair.task)
        frugal = phone_with(pair, HISTORIES[0], 0, policy=Policy(bytes=needed))
        receipts = [one.receipt for one in await until_contributed([frugal, phone_with(pair, HISTORIES[1], 1)])]
        await pair.finish()
        assert (await result(pair))["rankings"] == 1.0
        assert len({one.sent for one in receipts}) == 1


async def test_a_table_that_is_not_the_one_of_the_round_is_ranked_nowhere() -> None:
    async with a_pair(**MEASURED) as pair:
        await pair.step()
        phones = [phone_with(pair, events, number) for number, events in enumerate(HISTORIES[:2])]
        phones[0].alter = other_table
        await until_contributed(phones)
        await pair.finish()
        assert (await result(pair))["rankings"] == 1.0
        assert noticed(phones[0]) == {"table"}


async def result(pair: Pair) -> dict[str, Any]:
    events = await pair.parties[0].ledger.events(limit=100)
    (found,) = [event.data for event in events if event.kind == "result"]
    return dict(found)
