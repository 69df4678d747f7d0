"""Devices that talk to server 0 alone: the same sums as with direct ones, and not a byte to server 1."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.pair import IDENTITY, RELAYED, Pair, a_pair
from tests.simulation.phone import Marking, Phone, a_phone, contributed, puts, until_contributed

from secemb_sdk.errors import PolicyError
from secemb_sdk.policy import Policy, round_bytes
from secemb_server1.relay_keys import RelayKeys
from secemb_shared.messages import Sizes
from secemb_shared.messages.spec import EVALUATE, SURVEY


def keys_of(pair: Pair) -> RelayKeys:
    """Return server 1's keys as the command line sees them."""
    return RelayKeys(pair.folder / "server1" / "relay-keys.json", IDENTITY, pair.task.task_id)


@pytest.mark.asyncio
async def test_a_round_goes_through_server_0_alone() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        receipts = [await contributed(phone) for phone in phones]
        await pair.finish()
        sizes = Sizes.of(pair.task)
        for phone, receipt in zip(phones, receipts, strict=True):
            assert puts(phone) == [(0, "relayed-keys"), (0, "relayed-update")]
            assert {server for server, _, _ in phone.seen.requests} == {0}
            assert receipt.transport == "relayed"
            assert receipt.sent[1] == receipt.received[1] == 0
            assert sizes.relayed_upload <= receipt.sent[0] <= sizes.relayed_upload + 100
        model = pair.parties[0].models.load(1)
        assert model.rows[0, 0] == -1.5  # both write to the first row, marks 1 and 2, and the step takes their mean
        assert np.array_equal(model.rows, pair.parties[1].models.load(1).rows)


@pytest.mark.asyncio
async def test_a_device_asks_for_nothing_but_a_place_and_its_two_messages() -> None:
    async with a_pair(**RELAYED, dense_size=0) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            phone.model = Marking(phone.model.mark, dense_size=0)
            await contributed(phone)
        await pair.finish()
        await pair.step()
        for phone in phones:
            phone.seen.requests.clear()
            await contributed(phone)
            asked = [(server, what) for server, _, what in phone.seen.requests]
            assert asked == [(0, "join"), (0, "relayed-keys"), (0, "relayed-update")]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
async def test_surveys_and_evaluations_are_relayed_too(kind: str) -> None:
    async with a_pair(**RELAYED, choose_kind=lambda _: kind) as pair:
        await pair.step()
        phones = [a_phone(pair, number, options={"hold_out": 0.999999}) for number in range(2)]
        for phone in phones:
            await contributed(phone)
            assert puts(phone) == [(0, "relayed-keys"), (0, "relayed-update")]
        await pair.finish()
        events = await pair.parties[0].ledger.events(limit=100)
        (result,) = [event.data for event in events if event.kind == "result"]
        expected = {SURVEY: {"mean_items": 2.0}, EVALUATE: {"mae": 3.0}}[kind]
        assert expected.items() <= result.items(), result


@pytest.mark.asyncio
async def test_a_task_without_a_relay_key_is_served_directly_and_refuses_to_relay() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        assert (await contributed(phone)).transport == "direct"
        with pytest.raises(PolicyError, match="not relayed"):
            await a_phone(pair, 1, options={"transport": "relayed"}).contribute()


@pytest.mark.asyncio
async def test_a_budget_is_checked_for_the_transport_that_is_used() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        needed = round_bytes(pair.task, relayed=True)
        assert needed < round_bytes(pair.task)
        policy = Policy(pace_seconds=0, seconds=20, bytes=needed)
        await contributed(a_phone(pair, 0, options={"policy": policy}))
        with pytest.raises(PolicyError, match="bytes"):
            await a_phone(pair, 1, options={"policy": policy, "transport": "direct"}).contribute()


# Keys of server 1 change.


@pytest.mark.asyncio
@pytest.mark.parametrize("when", ["before the keys", "before the update", "before both"])
async def test_a_key_that_ends_in_the_middle_of_a_round_is_replaced(when: str) -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        turned: list[str] = []

        def fault() -> str:
            last = phones[0].sent_at[-1][0]
            wanted = {"before the keys": ["relayed-keys"], "before the update": ["relayed-update"]}
            if last in wanted.get(when, ["relayed-keys", "relayed-update"]) and last not in turned:
                turned.append(last)
                pair.clock.now += 1
                keys_of(pair).rotate(pair.clock.now, overlap=0)
            return "fine"

        phones[0].fault = fault
        for phone in phones:
            await contributed(phone)
        phones[0].seen.check()
        await pair.finish()
        assert turned
        assert pair.parties[1].metrics.refusals()["relay-key-outdated"] == len(turned)
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


@pytest.mark.asyncio
async def test_a_key_before_the_newest_is_opened_as_long_as_it_overlaps() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        await contributed(a_phone(pair, 0))
        keys_of(pair).rotate(pair.clock.now, overlap=60)
        await contributed(a_phone(pair, 1))  # server 0 still shows the old one
        assert "relay-key-outdated" not in pair.parties[1].metrics.refusals()
        states = [key.state(pair.clock.now) for key in keys_of(pair).held()]
        assert states == ["active", "active"]
        assert keys_of(pair).held()[0].state(pair.clock.now + 60) == "expired"


# The two transports add up to the same.

DEVICES = st.lists(st.tuples(st.sampled_from(["direct", "relayed"]), st.integers(1, 20)), min_size=2, max_size=4)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(DEVICES)
def test_direct_relayed_and_mixed_rounds_give_the_same_bits(devices: list[tuple[str, int]]) -> None:
    ways = [["direct"] * len(devices), ["relayed"] * len(devices), [way for way, _ in devices]]
    models = [asyncio.run(one_round(list(zip(way, devices, strict=True)))) for way in ways]
    assert models[0] == models[1] == models[2]


async def one_round(devices: list[tuple[str, tuple[str, int]]]) -> bytes:
    """Return the digest of the model after a round with these devices."""
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        phones: list[Phone] = []
        for number, (way, (_, item)) in enumerate(devices):
            options: dict[str, Any] = {"transport": way}
            phone = Phone(pair, pair.folder / f"phone{number}", Marking(2**number), options=options)
            phone.log({0: 1.0, item: 2.0})
            phones.append(phone)
        await until_contributed(phones)
        await pair.finish()
        for phone in phones:
            phone.seen.check()
        return pair.parties[0].models.load(1).digest
