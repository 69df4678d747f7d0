"""What a device recommends and ranks: without a network by the copy it has, and without showing how much it asks."""

import numpy as np
import pytest
from tests.simulation.carrier import train
from tests.simulation.pair import a_pair
from tests.simulation.phone import Phone, a_phone

from secemb_sdk.advising import rank_candidates, recommend_items
from secemb_sdk.effects import Answer
from secemb_sdk.errors import UnavailableError
from secemb_sdk.ranking import Scored, TableFormat

pytestmark = pytest.mark.asyncio


async def recommended(phone: Phone, table: TableFormat) -> Scored:
    parts = phone.open()
    try:
        return await phone.drive(recommend_items(parts, k=40, table=table, include_rated=True))
    finally:
        parts.vault.close()


@pytest.mark.parametrize("table", list(TableFormat))
@pytest.mark.parametrize("cut", ["/table/", "/dense/", "/tasks/"])
async def test_a_sync_that_was_cut_leaves_the_copy_before_it_to_recommend_from(table: TableFormat, cut: str) -> None:
    async with a_pair(items=40, initial_scale="1") as pair:
        phone = a_phone(pair, 0)
        best = await recommended(phone, table)
        await train(pair)
        phone.alter = lambda request, answer: Answer(status=503) if cut in request.path else answer
        assert await recommended(phone, table) == best
        phone.alter = lambda _, answer: Answer(status=503)
        assert await recommended(phone, table) == best  # and still, where there is no network at all
        phone.alter = lambda _, answer: answer
        assert await recommended(phone, table) != best


async def test_without_any_copy_there_is_nothing_to_recommend() -> None:
    async with a_pair(items=40, initial_scale="1") as pair:
        phone = a_phone(pair, 0, alter=lambda _request, _answer: Answer(status=503))
        with pytest.raises(UnavailableError):
            await recommended(phone, TableFormat.INT8)


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_the_time_between_ticket_and_keys_does_not_depend_on_the_candidates(count: int) -> None:
    async with a_pair(items=40, capacity=4, initial_scale="1") as pair:
        await pair.step()
        phone = a_phone(pair, 0, pace=3.0)
        phone.work_seconds = 0.01 * count  # more to place takes longer
        parts = phone.open()
        try:
            found = await phone.drive(rank_candidates(parts, np.arange(20, 20 + count).tolist(), include_rated=True))
        finally:
            parts.vault.close()
        times = dict(phone.sent_at)
        assert len(found) == count
        assert times["rows"] - times["read"] == pytest.approx(0.3)
