"""What a device recommends and ranks: without a network by the copy it has, and without showing how much it asks."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.devices.carrier import train
from tests.devices.phone import Phone, a_phone
from tests.simulation.pair import a_pair

from secemb_sdk.errors import UnavailableError
from secemb_sdk.home.vault import Vault
from secemb_sdk.recommend import Recommendation, TableFormat, rank_candidates, recommend_items
from secemb_sdk.steps import Answer, Pause, Request, Send, Work

pytestmark = pytest.mark.asyncio


async def recommended(phone: Phone, table: TableFormat) -> list[Recommendation]:
    context = phone.open()
    try:
        return await phone.drive(recommend_items(context, k=40, table=table, include_rated=True))
    finally:
        context.vault.close()


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
        context = phone.open()
        try:
            found = await phone.drive(rank_candidates(context, np.arange(20, 20 + count).tolist(), include_rated=True))
        finally:
            context.vault.close()
        times = dict(phone.sent_at)
        assert len(found) == count
        assert times["rows"] - times["read"] == pytest.approx(0.3)


async def ranked(phone: Phone) -> list[Recommendation]:
    context = phone.open()
    try:
        return await phone.drive(rank_candidates(context, [20, 21], include_rated=False))
    finally:
        context.vault.close()


@pytest.mark.parametrize("ticket", ["two\r\nlines", "é", "x" * 129, 7, None])
async def test_a_ticket_that_cannot_travel_in_a_header_is_not_sent(ticket: object) -> None:
    async with a_pair(items=40, initial_scale="1") as pair:
        await pair.step()
        phone = a_phone(pair, 0)

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("/read"):
                return answer
            return replace(answer, body=json.dumps({**json.loads(answer.body), "ticket": ticket}).encode())

        phone.alter = alter
        with pytest.raises(UnavailableError, match="update the app"):
            await ranked(phone)
        assert "rows" not in {what for _, _, what in phone.seen.requests}


async def test_ratings_are_read_where_an_event_loop_does_not_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(items=40, initial_scale="1") as pair:
        await pair.step()
        phone, working = a_phone(pair, 0), [False]
        honest_work, honest_ratings = Phone.carry_out, Vault.ratings

        async def carry_out(self: Phone, effect: Send | Pause | Work) -> Any:
            working[0] = isinstance(effect, Work)
            try:
                return await honest_work(self, effect)
            finally:
                working[0] = False

        def ratings(self: Vault) -> Mapping[int, float]:
            assert working[0]
            return honest_ratings(self)

        monkeypatch.setattr(Phone, "carry_out", carry_out)
        monkeypatch.setattr(Vault, "ratings", ratings)
        assert len(await ranked(phone)) == 2
