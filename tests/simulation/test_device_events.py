"""A device with events: what it recommends follows the last one, and how much it reads tells nothing about them."""

from typing import Any

import numpy as np
import pytest
from tests.devices.last_event import Last
from tests.devices.phone import Phone, a_phone
from tests.simulation.pair import Pair, a_pair

from secemb_sdk.recommend import Recommendation, TableFormat, rank_candidates, recommend_items
from secemb_shared.messages.spec import NEXT
from secemb_shared.randomness import Indices

pytestmark = pytest.mark.asyncio

TASK: dict[str, Any] = {"items": 40, "capacity": 6, "row_width": 2, "dense_size": 0, "initial_scale": "1", "loss": NEXT}


def phone_with(pair: Pair, events: list[int]) -> Phone:
    phone = a_phone(pair, 0, options={"model": Last()})
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
