"""Devices that talk to server 0 alone: the same sums as with direct ones, and not a byte to server 1."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.devices.phone import Marking, Phone, a_phone, contributed, puts, until_contributed
from tests.simulation.pair import RELAYED, a_pair

from secemb_sdk.context import Policy, round_bytes
from secemb_sdk.errors import PolicyError
from secemb_shared.messages import Sizes
from secemb_shared.messages.spec import EVALUATE, SURVEY


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
        if kind == SURVEY:
            assert result["mean_items"] == 2.0
        else:  # of its ratings, 2 and 4, a device holds out one; the model says 0
            assert result["predictions"] == 2.0
            assert result["mae"] in (2.0, 3.0, 4.0)


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


# The two transports add up to the same.

DEVICES = st.lists(st.tuples(st.sampled_from(["direct", "relayed"]), st.integers(1, 20)), min_size=2, max_size=4)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
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
