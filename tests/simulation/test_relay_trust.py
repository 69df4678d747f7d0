"""Which keys of server 1 a device seals to, whatever server 0 shows it, and what happens when they change."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.devices.phone import Phone, a_phone, contributed, noticed
from tests.simulation.pair import IDENTITY, RELAYED, Pair, a_pair
from tests.simulation.tampering import LONG, check_sum, newest_key, refusals, relay_keys

from secemb_sdk.errors import PinError
from secemb_sdk.round.contribute import NotNow
from secemb_sdk.steps import Answer, Request
from secemb_server0.join import FRESH_SECONDS
from secemb_shared.messages.relay_key import RelayKey

pytestmark = pytest.mark.asyncio
DAY = 86_400


def showing(text: str) -> Callable[[Request, Answer], Answer]:
    """Return what a server 0 does that shows another announcement with the ticket."""

    def alter(request: Request, answer: Answer) -> Answer:
        if not request.path.endswith("/join"):
            return answer
        return replace(answer, body=json.dumps({**json.loads(answer.body), "relay": text}).encode())

    return alter


def announced(pair: Pair, key: RelayKey) -> str:
    return urlsafe_b64encode(key.announce(IDENTITY, pair.task.task_id)).decode()


@pytest.mark.parametrize("fault", ["another identity", "another task", "one bit", "too short", "not base64"])
async def test_a_relay_key_that_server_1_has_not_signed_is_not_used(fault: str) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        key = RelayKey(
            public=X25519PrivateKey.generate().public_key().public_bytes_raw(), not_before=0, not_after=2**40
        )
        good = key.announce(IDENTITY, pair.task.task_id)
        shown = {
            "another identity": key.announce(Ed25519PrivateKey.generate(), pair.task.task_id),
            "another task": key.announce(IDENTITY, bytes(32)),
            "one bit": good[:-1] + bytes([good[-1] ^ 1]),
            "too short": good[:-1],
            "not base64": b"",
        }[fault]
        text = urlsafe_b64encode(shown).decode() if shown else "é"

        phone.alter = showing(text)
        with pytest.raises(PinError, match="did not sign"):
            await phone.contribute()
        assert not phone.seen.bodies
        assert noticed(phone) == {"relay-key"}


async def after_a_round(pair: Pair) -> list[Phone]:
    """Return phones that have taken part in one round; the next is open."""
    await pair.step()
    phones = [a_phone(pair, number) for number in range(2)]
    for phone in phones:
        await contributed(phone)
    await pair.finish()
    await pair.step()
    return phones


async def test_an_older_relay_key_than_before_is_not_used() -> None:
    async with a_pair(**LONG) as pair:
        phones = await after_a_round(pair)
        key = RelayKey(public=newest_key(pair).public, not_before=newest_key(pair).not_before - 1, not_after=2**40)

        phones[0].alter = showing(announced(pair, key))
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert "older relay key" in outcome.reason
        assert noticed(phones[0]) == {"relay-key"}


@pytest.mark.parametrize("wrong", [-DAY - 1, 90 * DAY + DAY])
async def test_a_key_whose_time_it_is_not_is_not_sealed_to(wrong: int) -> None:
    """Server 1 would refuse the box, but whoever has got hold of an old private key could read it."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        phone.wall_clock = lambda: newest_key(pair).not_before + wrong
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow)
        assert "check this device's clock" in outcome.reason
        assert noticed(phone) == set()  # it may well be the clock
        assert not phone.seen.bodies
        assert "join" not in {what for _, _, what in phone.seen.requests}  # a place would be one without an upload


async def test_a_clock_that_goes_wrong_between_two_rounds_takes_no_place() -> None:
    async with a_pair(**LONG) as pair:
        phones = await after_a_round(pair)
        phones[0].seen.requests.clear()
        phones[0].wall_clock = lambda: newest_key(pair).not_before + 400 * DAY
        assert isinstance(await phones[0].contribute(), NotNow)
        assert [what for _, _, what in phones[0].seen.requests] == ["relay"]


@pytest.mark.parametrize("wrong", [-DAY, 0, 90 * DAY + DAY - 1])
async def test_a_clock_may_be_wrong_by_a_day(wrong: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            phone.wall_clock = lambda: newest_key(pair).not_before + wrong
            await contributed(phone)
        await check_sum(pair, phones)


async def test_a_key_of_the_future_does_not_lock_a_device_out_for_ever() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        await contributed(a_phone(pair, 1))  # so that there is a key
        now = newest_key(pair).not_before
        far = RelayKey(public=newest_key(pair).public, not_before=now + 400 * DAY, not_after=now + 500 * DAY)
        phone.alter = showing(announced(pair, far))
        assert isinstance(await phone.contribute(), NotNow)
        phone.alter = lambda _request, answer: answer
        await contributed(phone)


async def test_a_session_that_is_resumed_after_its_key_has_ended_is_sealed_to_the_one_in_use() -> None:
    """The update is still unsent when the key that came with the ticket is over by the device's own clock."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].fault = lambda: "lost" if phones[0].sent_at[-1][0] == "relayed-update" else "fine"
        assert isinstance(await phones[0].contribute(), NotNow)
        pair.clock.now += FRESH_SECONDS  # then server 0 asks for the key again
        made = relay_keys(pair).rotate(pair.clock.now, overlap=0, life=300 * DAY).announced
        phones[0].fault = lambda: "fine"
        phones[0].wall_clock = lambda: made.not_before + 95 * DAY
        for phone in phones:
            await contributed(phone)
        assert "relay-key-outdated" not in refusals(pair, 1)
        assert "relay" in {what for _, _, what in phones[0].seen.requests}
        await check_sum(pair, phones)


# Keys of server 1 change.


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
                relay_keys(pair).rotate(pair.clock.now, overlap=0)
            return "fine"

        phones[0].fault = fault
        for phone in phones:
            await contributed(phone)
        phones[0].seen.check()
        await pair.finish()
        assert turned
        assert refusals(pair, 1)["relay-key-outdated"] == len(turned)
        assert noticed(phones[0]) == set()  # keys do change
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


async def test_a_key_before_the_newest_is_opened_as_long_as_it_overlaps() -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        await contributed(a_phone(pair, 0))
        relay_keys(pair).rotate(pair.clock.now, overlap=60)
        await contributed(a_phone(pair, 1))  # server 0 still shows the old one
        assert "relay-key-outdated" not in refusals(pair, 1)
        states = [key.state(pair.clock.now) for key in relay_keys(pair).held()]
        assert states == ["active", "active"]
        assert relay_keys(pair).held()[0].state(pair.clock.now + 60) == "expired"
