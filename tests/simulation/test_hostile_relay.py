"""A server 0 that does not pass on what it was sent: server 1 notices, and nothing is counted wrongly."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest
from tests.devices.phone import a_phone, contributed, noticed, puts, until_contributed
from tests.simulation.pair import Pair, a_pair
from tests.simulation.tampering import (
    LONG,
    Change,
    check_sum,
    comes_back,
    each,
    flip,
    newest_key,
    noting,
    only,
    read_replies,
    refusals,
    round_of,
)

from secemb_party.relay_frames import Frame, Refusal
from secemb_sdk.round.contribute import Contributed, Dropped, NotNow
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relay_key import KEY_ID_BYTES
from secemb_shared.messages.relayed import box_bytes, box_content, encode_relayed, split_relayed

pytestmark = pytest.mark.asyncio


def claiming(frame: Frame, **changes: object) -> Frame:
    """Return a frame that claims to be of another session."""
    return replace(frame, claim=replace(frame.claim, **changes))  # type: ignore[arg-type]


CHANGES: dict[str, tuple[Change, str]] = {
    "a correction word of the keys": (only(Kind.KEYS, lambda frame: flip(frame, -1)), "relay-altered"),
    "a correction word of the update": (only(Kind.UPDATE, lambda frame: flip(frame, -1)), "relay-altered"),
    "the ephemeral key of a box": (lambda frame: flip(frame, KEY_ID_BYTES), "relay-box"),
    "the content of a box": (lambda frame: flip(frame, KEY_ID_BYTES + 40), "relay-box"),
    "the tag of a box": (lambda frame: flip(frame, box_bytes(Kind.KEYS) - 1), "relay-box"),
    "the name of the key": (lambda frame: flip(frame, 0), "relay-key-outdated"),
    "a byte cut off": (lambda frame: replace(frame, rest=frame.rest[:-1]), "message-length"),
    "a byte too many": (lambda frame: replace(frame, rest=frame.rest + b"\0"), "message-length"),
    "another session": (lambda frame: claiming(frame, session_id=bytes(16)), "ticket-refused"),
    "another round": (lambda frame: claiming(frame, round_id=bytes(32)), "ticket-refused"),
    "another step": (only(Kind.KEYS, lambda frame: replace(frame, step=Kind.SUM_SHARE)), "message-length"),
    "no ticket": (lambda frame: claiming(frame, ticket=urlsafe_b64encode(bytes(72)).decode()), "ticket-refused"),
}
# What the device counts. A ticket that is refused may have expired.
TOLD = {
    "relay-altered": {"not-passed-on"},
    "relay-box": {"not-passed-on"},
    "message-length": {"not-passed-on"},
    "relay-key-outdated": {"relay-key"},
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_is_altered_on_the_way_is_refused_and_counted(name: str) -> None:
    change, slug = CHANGES[name]
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper = each(change)
        outcome = await phones[0].contribute()
        assert not isinstance(outcome, Contributed)
        assert refusals(pair, 1)[slug] >= 1
        assert refusals(pair, 0)[slug] >= 1
        assert noticed(phones[0]) == TOLD.get(slug, set())
        [round_] = await pair.parties[0].ledger.rounds(pair.task.task_id, limit=1)
        held = [await pair.parties[role].ledger.counts(round_.round_id) for role in (0, 1)]
        assert (held[0].keys, held[0].updates) == (held[1].keys, held[1].updates)  # a refusal leaves nothing behind
        await comes_back(pair, phones)
        assert noticed(phones[1]) == set()


async def test_boxes_that_are_swapped_between_sessions_do_not_open() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(3)]
        boxes: dict[Kind, bytes] = {}

        def swap(frame: Frame) -> Frame:
            size = box_bytes(frame.step)
            other = boxes.setdefault(frame.step, frame.rest[:size])
            return replace(frame, rest=other + frame.rest[size:])

        pair.line.tamper = each(swap)
        await contributed(phones[0])  # keeps its own boxes
        assert isinstance(await phones[1].contribute(), NotNow)
        assert refusals(pair, 1)["relay-box"] >= 1
        assert noticed(phones[1]) == {"not-passed-on"}
        pair.line.tamper = None
        await until_contributed(phones[1:])
        await check_sum(pair, phones)


async def test_a_box_of_an_earlier_round_does_not_open() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        old: list[Frame] = []
        pair.line.tamper = each(noting(old))
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        await pair.step()
        pair.line.tamper = each(
            only(Kind.KEYS, lambda frame: replace(frame, rest=old[0].rest[: box_bytes(Kind.KEYS)] + frame.rest[136:]))
        )
        assert isinstance(await phones[0].contribute(), NotNow)
        assert refusals(pair, 1)["relay-box"] >= 1
        assert noticed(phones[0]) == {"not-passed-on"}


async def test_an_upload_that_server_0_makes_up_is_refused_by_its_mac() -> None:
    """It knows the round, the session and server 1's public key; it does not know the keys of the session."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper = each(only(Kind.UPDATE, lambda frame: forged(pair, frame)))
        assert isinstance(await phones[0].contribute(), NotNow)
        assert refusals(pair, 1)["proof-refused"] >= 1
        assert refusals(pair, 0)["proof-refused"] >= 1
        assert noticed(phones[0]) == {"proof"}
        await comes_back(pair, phones)


def forged(pair: Pair, frame: Frame) -> Frame:
    record_round = round_of(pair)
    key = newest_key(pair)
    words = bytes(len(frame.rest) - box_bytes(Kind.UPDATE))
    content = hashlib.sha256(words).digest() + record_round.digest + bytes(16)
    message = encode_relayed(
        record_round, frame.claim.session_id, Kind.RELAYED_UPLOAD, bytes(24) + words + bytes(8), content, key
    )
    split = split_relayed(record_round, frame.claim.session_id, Kind.RELAYED_UPLOAD, message)
    return replace(frame, rest=split.box + words)


async def test_a_server_0_that_tells_devices_another_round_is_refused_by_server_1() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        told = round_of(pair, model_digest=bytes(32))
        pair.line.tamper = each(only(Kind.KEYS, lambda frame: resealed(pair, told, frame)))
        assert isinstance(await phone.contribute(), NotNow)
        assert refusals(pair, 1)["relay-round"] >= 1
        assert noticed(phone) == {"round"}


async def test_a_box_of_server_0s_own_in_the_place_of_the_keys_gives_the_device_no_receipt() -> None:
    """Server 1 takes it, as it cannot know better; but what it then holds says nothing of the device, nor counts."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(3)]
        pair.line.tamper = each(only(Kind.KEYS, lambda frame: resealed(pair, round_of(pair), frame)))
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert outcome.reason == "server 0 did not return server 1's receipt for the keys"
        assert phones[0].model.trained == 0
        assert set(puts(phones[0])) == {(0, "relayed-keys")}
        pair.line.tamper = None
        outcome = await phones[0].contribute()
        assert isinstance(outcome, Dropped)
        assert outcome.reason == "server 1 (as server 0 says) already has a different message for this session"
        assert refusals(pair, 1)["session-conflict"] == 1
        assert noticed(phones[0]) == {"receipt", "session"}
        for phone in phones[1:]:
            await contributed(phone)
        await check_sum(pair, phones[1:])


def resealed(pair: Pair, round_: RoundSpec, frame: Frame) -> Frame:
    """Return a frame of keys with a box that server 0 has made: a seed of its own beside the device's public part."""
    keys = bytes(24) + bytes(16) + frame.rest[box_bytes(Kind.KEYS) :]
    content = box_content(round_, Kind.KEYS, keys)
    message = encode_relayed(round_, frame.claim.session_id, Kind.RELAYED_KEYS, keys, content, newest_key(pair))
    split = split_relayed(round_, frame.claim.session_id, Kind.RELAYED_KEYS, message)
    return replace(frame, rest=split.box + split.public)


async def test_a_refusal_says_no_more_than_its_name() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        replies: list[bytes] = []
        pair.line.tamper = each(lambda frame: flip(frame, -1))
        pair.line.tamper_reply = noting(replies)
        await phone.contribute()
        for data in replies:
            for reply in read_replies(data):
                assert reply.body == Refusal("relay-altered", None)
