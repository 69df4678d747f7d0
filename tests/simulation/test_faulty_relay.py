"""What a relay does without meaning to: it loses, delays, repeats, cuts and mixes up, and the sums stay exact."""

from collections.abc import Callable
from itertools import count

import pytest
from tests.devices.phone import a_phone, contributed, until_contributed
from tests.simulation.pair import a_pair
from tests.simulation.tampering import LONG, check_sum, comes_back, noting, read_replies, refusals

from secemb_party.relay_frames import Frame, Refusal
from secemb_party.upload_macs import Sent
from secemb_sdk.round.contribute import NotNow
from secemb_server1.relay import RelayReceiver
from secemb_shared.messages import RoundSpec

pytestmark = pytest.mark.asyncio


def truncating(times: int, left: int) -> Callable[[bytes], bytes]:
    """Return what cuts the first messages after so many bytes."""
    numbers = count()
    return lambda data: data[:left] if next(numbers) < times else data


@pytest.mark.parametrize("moment", range(8))
@pytest.mark.parametrize("fault", ["lose_requests", "lose_responses", "hold_requests"])
async def test_a_line_that_loses_or_delays_changes_nothing(fault: str, moment: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number, seconds=200.0) for number in range(2)]  # both get into the first round
        setattr(pair.line, fault, moment)
        await until_contributed(phones)
        while pair.line.held:
            await pair.deliver_held()
        await check_sum(pair, phones)


async def test_a_frame_that_is_passed_on_twice_counts_once_and_gets_the_same_reply() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        replies: list[bytes] = []
        pair.line.tamper = lambda data: data + data
        pair.line.tamper_reply = noting(replies)
        for phone in phones:
            await contributed(phone)
        for data in replies:
            first, second = read_replies(data)
            assert first.body == second.body
        await pair.finish()
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


@pytest.mark.parametrize("cut", [1, 8, 9, 40])
async def test_replies_that_are_cut_are_asked_for_again(cut: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper_reply = truncating(2, cut)
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        assert pair.parties[0].models.load(1).rows[0, 0] == -1.5


async def test_a_server_1_that_is_busy_says_so_to_the_device() -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.parties[1].memory.most = 0
        outcome = await phones[0].contribute()
        assert isinstance(outcome, NotNow)
        assert refusals(pair, 1)["busy"] >= 1
        pair.parties[1].memory.most = 1
        await comes_back(pair, phones)


async def test_a_frame_that_fails_unexpectedly_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        replies: list[bytes] = []
        pair.line.tamper, pair.line.tamper_reply = lambda data: data + data, noting(replies)
        failures, build = [RuntimeError("what nobody has thought of")], RelayReceiver._open

        async def fail_once(receiver: RelayReceiver, spec: RoundSpec, frame: Frame) -> Sent:
            if failures:
                raise failures.pop()
            return await build(receiver, spec, frame)

        monkeypatch.setattr(RelayReceiver, "_open", fail_once)
        await a_phone(pair, 0).contribute()
        bodies = [reply.body for reply in read_replies(replies[0])]
        assert Refusal("internal") in bodies
        assert any(isinstance(body, bytes) for body in bodies)
        assert refusals(pair, 1)["internal"] == 1


@pytest.mark.parametrize("left", [0, 3, 100, -1])
async def test_requests_that_are_cut_are_sent_again(left: int) -> None:
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        pair.line.tamper = truncating(2, left)
        for phone in phones:
            await contributed(phone)
        await check_sum(pair, phones)


async def test_a_reply_that_is_for_another_session_is_not_taken_for_ones_own() -> None:
    """Replies get mixed up: what comes instead has neither this session's mask nor its receipt."""
    async with a_pair(**LONG) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        replies: list[bytes] = []
        pair.line.tamper_reply = noting(replies)
        await contributed(phones[0])
        others = {len(data): data for data in replies}  # to its keys and to its update
        pair.line.tamper_reply = lambda data: others[len(data)]
        assert isinstance(await phones[1].contribute(), NotNow)
        assert phones[1].model.trained == 0
        await comes_back(pair, phones[1:], counted=phones)
