"""The relay: frames travel together, each until it has its reply, and there is an end to what is under way."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence

import pytest

from secemb_party.errors import PeerUnavailableError, RelayRefusedError, TicketError
from secemb_party.relay_frames import MOST_FRAMES, Frame, Refusal, Reply, ReplyReader, read_frames
from secemb_party.tickets import Claim
from secemb_server0.relay import Limits, Relay
from secemb_shared.errors import EncodingError, LengthError, SecEmbError
from secemb_shared.messages import Kind

pytestmark = pytest.mark.asyncio
TICKET = urlsafe_b64encode(bytes(range(72))).decode()
QUICK = Limits(gather_seconds=0.001, pause_seconds=0.0)


def frame(number: int, rest: bytes = b"rest") -> Frame:
    return Frame(Kind.KEYS, Claim(bytes(32), number.to_bytes(16, "little"), TICKET), rest)


class Line:
    """A server 1 that says every frame's session back, after some failures."""

    def __init__(self, *, fail: int = 0, only: int | None = None, refuse: bool = False) -> None:
        self.fail, self.only, self.refuse = fail, only, refuse
        self.requests: list[list[bytes]] = []

    async def relay_key(self) -> bytes:
        raise PeerUnavailableError("not asked for here")

    async def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        self.requests.append(list(frames))
        places = list(range(len(frames)))
        for place in reversed(places[: self.only] if len(self.requests) <= self.fail and self.only else places):
            if len(self.requests) <= self.fail and not self.only:
                break
            (one,) = read_frames(frames[place])
            yield Reply(place, Refusal("busy", 3) if self.refuse else one.claim.session_id)
        if len(self.requests) <= self.fail:
            raise PeerUnavailableError("cut")


async def test_what_comes_together_travels_together_and_gets_its_own_reply() -> None:
    line = Line()
    relay = Relay(line, limits=QUICK)
    replies = await asyncio.gather(*(relay.pass_on(frame(number), 16) for number in range(10)))
    assert replies == [number.to_bytes(16, "little") for number in range(10)]
    assert [len(request) for request in line.requests] == [10]


async def test_a_request_has_an_end_in_frames_and_in_bytes() -> None:
    line = Line()
    relay = Relay(line, limits=Limits(gather_seconds=0.001, frames=4))
    await asyncio.gather(*(relay.pass_on(frame(number), 16) for number in range(10)))
    assert sorted(len(request) for request in line.requests) == [2, 4, 4]
    line = Line()
    relay = Relay(line, limits=Limits(gather_seconds=0.001, batch_bytes=1000))
    await asyncio.gather(*(relay.pass_on(frame(number, bytes(400)), 16) for number in range(4)))
    assert [len(request) for request in line.requests] == [2, 2]


async def test_only_what_has_no_reply_is_sent_again_and_it_is_the_same_bytes() -> None:
    line = Line(fail=1, only=3)
    relay = Relay(line, limits=QUICK)
    replies = await asyncio.gather(*(relay.pass_on(frame(number), 16) for number in range(5)))
    assert replies == [number.to_bytes(16, "little") for number in range(5)]
    assert line.requests[1] == line.requests[0][3:]


async def test_after_the_last_try_the_device_hears_that_server_1_is_away() -> None:
    line = Line(fail=3)
    relay = Relay(line, limits=QUICK)
    with pytest.raises(PeerUnavailableError):
        await relay.pass_on(frame(1), 16)
    assert len(line.requests) == 3
    assert line.requests[0] == line.requests[1] == line.requests[2]


class Broken(Line):
    """A line that fails in a way that nobody has thought of."""

    async def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        yield Reply(0, bytes(most))
        raise RuntimeError("what nobody has thought of")


async def test_nobody_waits_for_ever_whatever_the_line_raises() -> None:
    relay = Relay(Broken(), limits=QUICK)
    first, second = await asyncio.gather(
        relay.pass_on(frame(1), 16), relay.pass_on(frame(2), 16), return_exceptions=True
    )
    assert first == bytes(16)
    assert isinstance(second, RuntimeError)


async def test_nobody_waits_for_a_batch_that_was_ended() -> None:
    relay = Relay(Line(fail=3), limits=Limits(frames=1, pause_seconds=60.0))
    reply = relay.pass_on(frame(1), 16)
    (batch,) = relay._batches
    await asyncio.sleep(0)
    batch.cancel()
    with pytest.raises(PeerUnavailableError):
        await reply


@pytest.mark.parametrize("size", [0, 15, 17, 64])
async def test_a_reply_of_another_length_is_none(size: int) -> None:
    relay = Relay(Line(), limits=QUICK)
    right, wrong = await asyncio.gather(
        relay.pass_on(frame(1), 16), relay.pass_on(frame(2), size), return_exceptions=True
    )
    assert right == frame(1).claim.session_id
    assert isinstance(wrong, PeerUnavailableError)


async def test_a_refusal_reaches_the_one_it_is_for() -> None:
    relay = Relay(Line(refuse=True), limits=QUICK)
    with pytest.raises(RelayRefusedError) as caught:
        await relay.pass_on(frame(1), 16)
    assert caught.value.refusal == Refusal("busy", 3)
    assert caught.value.retry_after == 3


async def test_who_has_gone_is_not_carried() -> None:
    line = Line()
    relay = Relay(line, limits=Limits(gather_seconds=0.05))
    gone = asyncio.ensure_future(relay.pass_on(frame(1), 16))
    stays = asyncio.ensure_future(relay.pass_on(frame(2), 16))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == frame(2).claim.session_id
    assert [len(request) for request in line.requests] == [1]


async def test_frames_are_read_as_they_were_written_and_nothing_else_is() -> None:
    frames = [frame(1), frame(2, b""), Frame(Kind.SUM_SHARE, Claim(bytes(32), bytes(16), TICKET), bytes(300))]
    data = b"".join(one.encode() for one in frames)
    assert list(read_frames(data)) == frames
    for wrong in (data[:-1], data + b"\0", b"\xff\xff\xff\xff" + data[4:], frame(1).encode() * (MOST_FRAMES + 1)):
        with pytest.raises(LengthError):
            list(read_frames(wrong))
    for step in (0, int(Kind.ANSWER), int(Kind.RELAYED_KEYS), 255):
        with pytest.raises(EncodingError):
            list(read_frames(data[:4] + bytes([step]) + data[5:]))
    with pytest.raises(TicketError):
        Frame(Kind.KEYS, Claim(bytes(32), bytes(16), "short"), b"").encode()


async def test_replies_are_read_from_pieces_of_any_size() -> None:
    replies = [Reply(3, b"answer"), Reply(0, Refusal("busy", 1)), Reply(1, b""), Reply(2, Refusal("relay-box", None))]
    data = b"".join(one.encode() for one in replies)
    for size in (1, 7, len(data)):
        reader = ReplyReader(6)
        found = [reply for at in range(0, len(data), size) for reply in reader.feed(data[at : at + size])]
        assert found == replies
    list(ReplyReader(2000).feed(bytes(4) + (2001).to_bytes(4, "little")))  # as long as was asked for, and on its way
    with pytest.raises(LengthError):
        list(ReplyReader(2000).feed(bytes(4) + (2002).to_bytes(4, "little")))
    with pytest.raises(SecEmbError):
        list(ReplyReader(6).feed(bytes(4) + (5).to_bytes(4, "little") + b"\1nope"))
