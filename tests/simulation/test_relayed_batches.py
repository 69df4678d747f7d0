"""Frames of several sessions in one request: whatever a server 0 does to their order, nobody gets another's reply."""

import asyncio
from dataclasses import replace

import pytest
from tests.devices.phone import Phone, a_phone, until_contributed
from tests.simulation.pair import AT_ONCE, Pair, a_pair
from tests.simulation.tampering import LONG, check_sum, flip, read_replies, refusals

from secemb_party.relay_frames import Frame, Reply, read_frames
from secemb_sdk.round.contribute import Contributed, NotNow
from secemb_server0.relay import Limits
from secemb_shared.messages import Kind

pytestmark = pytest.mark.asyncio
PHONES = 4
TOGETHER = Limits(frames=PHONES, gather_seconds=600.0, pause_seconds=0.0)  # a request leaves when all are there


def keep_frames(frames: list[Frame]) -> list[Frame]:
    return frames


def reverse_frames(frames: list[Frame]) -> list[Frame]:
    return frames[::-1]


def alter_one(frames: list[Frame]) -> list[Frame]:
    return [flip(frames[0], -1), *frames[1:]]


def keep_replies(replies: list[Reply]) -> list[Reply]:
    return replies


def reverse_replies(replies: list[Reply]) -> list[Reply]:
    """Return them in another order, which they may have: each says whose it is."""
    return replies[::-1]


def rotate_bodies(replies: list[Reply]) -> list[Reply]:
    """Return the reply to each frame as that to its neighbour."""
    ordered = sorted(replies, key=lambda reply: reply.place)
    return [replace(one, body=ordered[one.place - 1].body) for one in ordered]


NO_RECEIPT, NOT_PASSED_ON = "did not return server 1's receipt", "did not pass this device's message on"
# What server 0 does to frames and to replies, and what devices that cannot go on say, one by one.
CASES = {
    "nothing": (keep_frames, keep_replies, []),
    "frames reversed": (reverse_frames, keep_replies, [NO_RECEIPT] * PHONES),
    "replies reversed": (keep_frames, reverse_replies, []),
    "bodies rotated": (keep_frames, rotate_bodies, [NO_RECEIPT] * PHONES),
    "one frame altered": (alter_one, keep_replies, [NOT_PASSED_ON]),
}


@pytest.mark.parametrize("step", [Kind.KEYS, Kind.UPDATE])
@pytest.mark.parametrize("name", CASES)
async def test_a_batch_that_is_mixed_up_fails_whom_it_must_and_spoils_no_sum(name: str, step: Kind) -> None:
    change_frames, change_replies, words = CASES[name]
    async with a_pair(**LONG, relay_limits=TOGETHER) as pair:
        await pair.step()
        # One go each: with no time to ask again, whoever fails says why and leaves.
        phones = [a_phone(pair, number, seconds=1e-6) for number in range(PHONES)]
        passed: list[int] = []

        def tamper(data: bytes) -> bytes:
            frames = list(read_frames(data))
            if frames[0].step is not step:
                return data
            assert {frame.step for frame in frames} == {step}
            passed.append(len({frame.claim.session_id for frame in frames}))
            return b"".join(frame.encode() for frame in change_frames(frames))

        def tamper_reply(data: bytes) -> bytes:
            if not passed:
                return data
            return b"".join(reply.encode() for reply in change_replies(read_replies(data)))

        pair.line.tamper, pair.line.tamper_reply = tamper, tamper_reply
        for phone in phones:
            phone.allowed = lambda: not passed  # nobody goes on from here: the next batch would not be full
        outcomes = await asyncio.gather(*map(Phone.contribute, phones))
        reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, NotNow)]
        said = [reason for reason in reasons if "the policy" not in reason]
        assert passed == [PHONES]
        assert len(said) == len(words)
        assert all(one in reason for one, reason in zip(words, said, strict=True))
        assert refusals(pair, 1) == ({"relay-altered": 1} if change_frames is alter_one else {})
        pair.line.tamper = pair.line.tamper_reply = None
        done = [isinstance(outcome, Contributed) for outcome in outcomes]
        await come_back(pair, [phone for phone, is_done in zip(phones, done, strict=True) if not is_done])
        await check_sum(pair, phones)


async def come_back(pair: Pair, phones: list[Phone]) -> None:
    """Let server 0 start again as one that does not gather, so that devices may come one by one."""
    pair.relay_limits = AT_ONCE
    await pair.crash(0)
    for phone in phones:
        phone.seconds, phone.allowed = 20.0, lambda: True
    if phones:
        await until_contributed(phones)
