"""What a device counts of servers that do not keep to the protocol; a relay's misconduct is in the tests of relays."""

from dataclasses import replace

import pytest
from tests.devices.phone import Phone, a_phone, contributed, noticed
from tests.simulation.pair import RELAYED, a_pair

from secemb_sdk.errors import CopyError, HomeError, UnavailableError
from secemb_sdk.home.detections import Detection, Misconduct
from secemb_sdk.home.receipts import date_of
from secemb_sdk.home.vault import Vault
from secemb_sdk.recommend import Recommendation, TableFormat, rank_candidates, recommend_items
from secemb_sdk.round.contribute import Contributed
from secemb_sdk.steps import Answer, Request
from secemb_shared.errors import RowTagError

pytestmark = pytest.mark.asyncio


async def recommended(phone: Phone) -> list[Recommendation]:
    context = phone.open()
    try:
        return await phone.drive(recommend_items(context, k=3, table=TableFormat.INT8, include_rated=True))
    finally:
        context.vault.close()


async def ranked(phone: Phone) -> list[Recommendation]:
    context = phone.open()
    try:
        return await phone.drive(rank_candidates(context, [2, 3], include_rated=True))
    finally:
        context.vault.close()


@pytest.mark.parametrize("relayed", [False, True])
async def test_servers_that_keep_to_the_protocol_are_not_in_the_count(relayed: bool) -> None:
    async with a_pair(**(RELAYED if relayed else {})) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            await contributed(phone)
            await ranked(phone)
        await pair.finish()
        await recommended(phones[0])
        assert [noticed(phone) for phone in phones] == [set(), set()]


async def test_every_wrong_answer_counts_and_the_last_one_is_dated() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        wrong: list[float] = []

        def alter(request: Request, answer: Answer) -> Answer:
            if not request.path.endswith("relayed-keys") or answer.status != 200:
                return answer
            wrong.append(pair.clock.now)
            return replace(answer, body=answer.body[:-1])

        phone = a_phone(pair, 0, alter=alter)
        for _ in range(2):
            await phone.contribute()
        assert len(wrong) > 2
        found = phone.open().vault.detections()
        assert found == {"receipt": Detection(kind="receipt", count=len(wrong), last=date_of(wrong[-1]))}


async def test_servers_that_announce_different_models_are_noticed() -> None:
    async with a_pair() as pair:
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: (
            replace(answer, body=answer.body.replace(b'"model_version":0', b'"model_version":1'))
            if request.server
            else answer
        )
        with pytest.raises(UnavailableError, match="different models"):
            await recommended(phone)
        assert noticed(phone) == {"model"}


async def test_a_table_that_server_1_does_not_have_is_noticed() -> None:
    async with a_pair() as pair:
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: (
            Answer(status=206, body=b"x") if request.server and "/table/" in request.path else answer
        )
        with pytest.raises(CopyError, match="different tables"):
            await recommended(phone)
        assert noticed(phone) == {"table"}


async def test_wrong_rows_of_candidates_are_noticed() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: (
            replace(answer, body=answer.body[:24] + bytes(one ^ 1 for one in answer.body[24:]))
            if request.server and request.path.endswith("rows")
            else answer
        )
        with pytest.raises(RowTagError):
            await ranked(phone)
        assert noticed(phone) == {"rows"}


async def test_a_count_that_cannot_be_kept_changes_nothing_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_vault: Vault, _misconduct: Misconduct, _date: str) -> None:
        raise HomeError("there is no room on the disk")

    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.alter = lambda request, answer: (
            replace(answer, body=answer.body[:-1]) if request.path.endswith("/keys") else answer
        )
        monkeypatch.setattr(Vault, "note", fails)
        outcome = await phone.contribute()
        assert isinstance(outcome, Contributed)
        assert outcome.trouble == "LengthError"
