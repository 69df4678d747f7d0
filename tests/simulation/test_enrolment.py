"""Enrolment in rounds: which tokens let a device in, and that a device with two tokens is still one device."""

import hashlib
from itertools import count

import pytest
from tests.devices.phone import a_phone, contributed
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_refusals import assert_problem

from secemb_party.ledger import NewToken
from secemb_party.operators import Order
from secemb_sdk import Contributed, TokenExpiredError, TokenRevokedError

ORDER = Order("tests")

pytestmark = pytest.mark.asyncio


async def replace(pair: Pair, old: str, new: str, *, overlap: float) -> None:
    made = NewToken(f"name of {old}", hashlib.sha256(new.encode()).digest())
    await pair.parties[0].ledger.replace_token(made, ORDER, pair.clock.now, overlap=overlap)


async def test_an_expired_or_revoked_token_is_told_from_an_unknown_one() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        await pair.enrol("short", expires_at=pair.clock.now)
        await pair.enrol("revoked")
        await pair.parties[0].ledger.revoke_tokens(["name of revoked"], ORDER, pair.clock.now)
        for token, slug in (("short", "token-expired"), ("revoked", "token-revoked"), ("unknown", "unauthorized")):
            assert_problem(await a_device(pair, 1, token=token).join(), 401, slug)


async def test_the_sdk_names_the_fix_and_not_the_token() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        await pair.enrol("short", expires_at=pair.clock.now)
        await pair.enrol("banned")
        await pair.parties[0].ledger.revoke_tokens(["name of banned"], ORDER, pair.clock.now)
        with pytest.raises(TokenExpiredError, match="open the same home with it") as expired:
            await a_phone(pair, 0, token="short").contribute()
        with pytest.raises(TokenRevokedError, match="ask its operator why") as revoked:
            await a_phone(pair, 1, token="banned").contribute()
        assert "short" not in str(expired.value)
        assert "banned" not in str(revoked.value)


async def test_a_device_with_two_valid_tokens_has_one_session_in_a_round() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.enrol("old")
        await replace(pair, "old", "new", overlap=1000)
        await pair.step()
        first = await a_device(pair, 1, token="old").join()
        second = await a_device(pair, 2, token="new").join()
        same = await a_device(pair, 1, token="new").join()
        assert first is not None
        assert second is not None
        assert same is not None
        assert (first.status_code, second.status_code) == (200, 202)
        assert (same.status_code, same.content) == (200, first.content)  # the session goes on with either token


async def test_the_old_token_ends_with_the_overlap() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        await pair.enrol("old")
        await replace(pair, "old", "new", overlap=5)
        pair.clock.now += 5
        assert_problem(await a_device(pair, 1, token="old").join(), 401, "token-expired")
        joined = await a_device(pair, 1, token="new").join()
        assert joined is not None
        assert joined.status_code == 200


@pytest.mark.parametrize("step", range(0, 20, 2))
async def test_a_device_killed_at_any_moment_goes_on_with_its_next_token_in_the_same_session(step: int) -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.enrol("old")
        await pair.enrol("neighbour's")
        await pair.step()
        steps = count()
        phone = a_phone(pair, 0, token="old")
        phone.dies = lambda: next(steps) == step
        killed = await phone.contribute()
        await replace(pair, "old", "new", overlap=0)
        phone.token = "new"
        if killed is None:
            assert isinstance(await phone.contribute(), Contributed)
        await contributed(a_phone(pair, 1, token="neighbour's"))
        record = await pair.parties[0].ledger.last_round(pair.task.task_id)
        assert record is not None
        counts = await pair.parties[0].ledger.counts(record.round_id)
        assert (counts.admitted, counts.updates) == (2, 2)
        phone.seen.check()
