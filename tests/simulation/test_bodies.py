"""A body that is too long or does not come is refused before it is taken in, on every route that devices call."""

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from tests.devices.scripted import KEYS, UPDATE, Device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_refusals import assert_problem, joined, stored

from secemb_party.http.request_body import LARGEST_SMALL_BODY, Patience

pytestmark = pytest.mark.asyncio
JSON = {"content-type": "application/json"}


def wish(pair: Pair, route: str, content: bytes | AsyncIterator[bytes], **headers: str) -> httpx.Request:
    """Return a request to join or to read."""
    url = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/{route}"
    return httpx.Request("POST", url, content=content, headers=JSON | headers)


async def endless(given: list[int]) -> AsyncIterator[bytes]:
    """Yield for ever, and note how much was asked for."""
    while True:
        given.append(1024)
        yield b" " * 1024


async def halting(start: bytes) -> AsyncIterator[bytes]:
    """Yield the beginning of a body and then nothing."""
    yield start
    await asyncio.Event().wait()


async def until(holds: Callable[[], bool]) -> None:
    """Let others go on until this holds."""
    while not holds():  # noqa: ASYNC110 - nobody tells when bytes have arrived
        await asyncio.sleep(0.01)


async def put(device: Device, role: int, what: str, content: AsyncIterator[bytes]) -> httpx.Response | None:
    """Send a message piece by piece."""
    url = f"https://server{role}/v1/rounds/{device.spec.digest.hex()}/sessions/{device.name.hex()}/{what}"
    headers = device.headers(role, what, b"")
    return await device.pair.send(role, httpx.Request("PUT", url, content=content, headers=headers))


@pytest.mark.parametrize("route", ["join", "read"])
async def test_a_wish_that_is_too_long_is_refused_by_its_header(route: str) -> None:
    async with a_pair() as pair:
        await pair.step()
        request = wish(pair, route, endless([]), **{"content-length": str(LARGEST_SMALL_BODY + 1)})
        assert_problem(await pair.send(0, request), 400, "message-length")


@pytest.mark.parametrize("route", ["join", "read"])
async def test_a_wish_without_an_end_is_read_no_further_than_the_limit(route: str) -> None:
    async with a_pair() as pair:
        await pair.step()
        given: list[int] = []
        assert_problem(await pair.send(0, wish(pair, route, endless(given))), 400, "message-length")
        assert sum(given) <= LARGEST_SMALL_BODY + 1024


@pytest.mark.parametrize("route", ["join", "read"])
async def test_a_wish_that_does_not_come_is_given_up(route: str) -> None:
    async with a_pair(patience=Patience(seconds=0.05)) as pair:
        await pair.step()
        assert_problem(await pair.send(0, wish(pair, route, halting(b'{"session"'))), 408, "body-slow")


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_a_message_that_does_not_come_is_given_up_and_the_session_goes_on(role: int, what: str) -> None:
    async with a_pair(patience=Patience(seconds=0.05)) as pair:
        device = await joined(pair, 1, *([KEYS] if what == UPDATE else []))
        before = await stored(pair, role)
        assert_problem(await put(device, role, what, halting(device.body(role, what)[:10])), 408, "body-slow")
        assert await stored(pair, role) == before
        answer = await device.put(role, what)
        assert answer is not None
        assert answer.status_code == 200


@pytest.mark.parametrize("role", [0, 1])
async def test_a_message_without_an_end_is_read_no_further_than_its_length(role: int) -> None:
    async with a_pair() as pair:
        device, given = await joined(pair), list[int]()
        assert_problem(await put(device, role, KEYS, endless(given)), 400, "message-length")
        assert sum(given) <= len(device.body(role, KEYS)) + 1024
        assert await stored(pair, role) == (0, 0)


async def test_keys_for_another_layout_are_refused() -> None:
    """The same items in as many slots, dealt out in another way: the length is right and nothing else."""
    async with a_pair() as pair, a_pair(tables=4, bins=3) as other:
        device, foreign = await joined(pair), await joined(other)
        keys = foreign.body(0, KEYS)
        assert len(keys) == len(device.body(0, KEYS))
        assert_problem(await device.put(0, KEYS, keys), 400, "message-binding")
        assert await stored(pair, 0) == (0, 0)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_requests_without_a_body_keep_nobody_out(role: int, what: str) -> None:
    before = [KEYS] if what == UPDATE else []
    async with a_pair() as pair:
        idle = [await joined(pair, number, *before) for number in (1, 2)]
        device = await joined(pair, 3, *before)
        pair.parties[role].memory.most = 1  # a single byte of theirs would be too many
        waiting = [asyncio.create_task(put(one, role, what, halting(b""))) for one in idle]
        await asyncio.sleep(0.05)
        answer = await device.put(role, what)
        assert answer is not None
        assert answer.status_code == 200
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert pair.parties[role].memory.held == 0


@pytest.mark.parametrize("role", [0, 1])
async def test_the_bytes_of_a_message_count_from_their_arrival_until_its_request_is_over(role: int) -> None:
    async with a_pair() as pair:
        device, memory = await joined(pair), pair.parties[role].memory
        waiting = asyncio.create_task(put(device, role, KEYS, halting(bytes(100))))
        await until(lambda: memory.held == 100)
        memory.most = 100
        answer = await (await joined(pair, 2)).put(role, KEYS)
        assert_problem(answer, 429, "busy")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert memory.held == 0


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_a_session_has_one_request_at_a_time(role: int, what: str) -> None:
    async with a_pair() as pair:
        device = await joined(pair, 1, *([KEYS] if what == UPDATE else []))
        waiting = asyncio.create_task(put(device, role, what, halting(bytes(10))))
        await until(lambda: pair.parties[role].memory.held == 10)
        assert_problem(await device.put(role, what), 429, "busy")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        answer = await device.put(role, what)
        assert answer is not None
        assert answer.status_code == 200


async def dripping(message: bytes) -> AsyncIterator[bytes]:
    """Yield a body byte by byte, with a pause after each."""
    for letter in message:
        yield bytes([letter])
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_message_that_drips_is_given_up_long_before_its_time_is_over(role: int) -> None:
    async with a_pair(patience=Patience(seconds=3600.0, rate=10_000.0, grace=0.05)) as pair:
        device = await joined(pair)
        assert_problem(await put(device, role, KEYS, dripping(device.body(role, KEYS))), 408, "body-slow")
        answer = await device.put(role, KEYS)  # one that comes at once is not slow
        assert answer is not None
        assert answer.status_code == 200


async def test_what_has_arrived_buys_time_and_never_more_than_there_is() -> None:
    patience = Patience(seconds=60.0, rate=1024.0, grace=10.0)
    assert patience.until(5.0, 0) == 15.0
    assert patience.until(5.0, 10_240) == 25.0
    assert patience.until(5.0, 1 << 30) == 65.0
    assert Patience(seconds=300.0, rate=0.0).until(0.0, 0) == 300.0
