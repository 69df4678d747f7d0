"""What a device sends wrongly gets a problem of a stable type, is not stored and does no harm to the round."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from tests.devices.scripted import KEYS, UPDATE, Device, a_device, flipped
from tests.simulation.pair import TICKET_KEY, Pair, a_pair

from secemb_party.http.problems import MEDIA_TYPE, PREFIX
from secemb_party.ledger import Counts
from secemb_party.tickets import CLOCK_TOLERANCE, issue_ticket
from secemb_shared.dpf import HASH_BYTES

pytestmark = pytest.mark.asyncio
Spoil = Callable[[bytes], bytes]


def assert_problem(answer: httpx.Response | None, status: int, slug: str) -> None:
    assert answer is not None
    assert (answer.status_code, answer.json().get("type")) == (status, PREFIX + slug)
    assert answer.headers["content-type"] == MEDIA_TYPE


async def joined(pair: Pair, number: int = 1, *messages: str) -> Device:
    """Return a device with a ticket that has sent these messages to both servers."""
    await pair.step()
    device = a_device(pair, number)
    answer = await device.join()
    assert answer is not None
    assert answer.status_code == 200
    for what in messages:
        for role in (0, 1):
            await device.put(role, what)
    return device


async def stored(pair: Pair, role: int) -> tuple[int, int]:
    """Return how many keys and updates a server has stored."""
    record = await pair.parties[role].ledger.current_round(pair.task.task_id)
    assert record is not None
    counts: Counts = await pair.parties[role].ledger.counts(record.round_id)
    return counts.keys, counts.updates


SPOILED: list[tuple[str, Spoil, str]] = [
    ("short", lambda data: data[:-1], "message-length"),
    ("long", lambda data: data + b"\0", "message-length"),
    ("empty", lambda _: b"", "message-length"),
    ("magic", lambda data: flipped(data, 0), "message-encoding"),
    ("version", lambda data: flipped(data, 6), "message-version"),
    ("kind", lambda data: flipped(data, 7), "message-kind"),
    ("binding", lambda data: flipped(data, 8), "message-binding"),
]


@pytest.mark.parametrize(("spoil", "slug"), [one[1:] for one in SPOILED], ids=[one[0] for one in SPOILED])
async def test_a_message_that_the_round_does_not_ask_for_is_refused_and_not_stored(spoil: Spoil, slug: str) -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        for role in (0, 1):
            assert_problem(await device.put(role, KEYS, spoil(device.body(role, KEYS))), 400, slug)
            assert await stored(pair, role) == (0, 0)
        for role in (0, 1):
            await device.put(role, KEYS)
            assert_problem(await device.put(role, UPDATE, spoil(device.body(role, UPDATE))), 400, slug)
            assert await stored(pair, role) == (1, 0)
            await device.put(role, UPDATE)
        assert device.acknowledged


async def test_the_other_servers_message_is_refused() -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        assert_problem(await device.put(0, KEYS, device.body(1, KEYS)), 400, "message-binding")
        assert_problem(await device.put(1, KEYS, device.body(0, KEYS)), 400, "message-binding")


async def test_keys_with_bits_after_the_last_one_are_refused() -> None:
    async with a_pair(items=25, tables=3, bins=5) as pair:
        device = await joined(pair)
        body = device.body(0, KEYS)
        geometry = pair.task.geometry
        assert geometry.depth * geometry.slots % 8, "this test needs bits to spare"
        at = len(body) - geometry.slots * HASH_BYTES - 1
        spoiled = body[:at] + bytes([body[at] | 0x80]) + body[at + 1 :]
        assert_problem(await device.put(0, KEYS, spoiled), 400, "message-encoding")


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("headers", [{"content-type": "application/json"}, {"content-encoding": "gzip"}])
async def test_another_media_type_and_a_compressed_body_are_refused(role: int, headers: dict[str, str]) -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        assert_problem(await device.put(role, KEYS, device.body(role, KEYS), **headers), 415, "media-type")
        assert await stored(pair, role) == (0, 0)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_other_bytes_for_a_used_session_conflict_and_change_nothing(role: int, what: str) -> None:
    async with a_pair() as pair:
        device = await joined(pair, 1, KEYS, UPDATE)
        for at in (24, 40, len(device.body(role, what)) - 9):
            other = flipped(device.body(role, what), at)
            assert_problem(await device.put(role, what, other), 409, "session-conflict")
        answer = await device.put(role, what)  # and compares it with the first answer
        assert answer is not None
        assert answer.status_code == 200


@pytest.mark.parametrize("role", [0, 1])
async def test_an_update_before_its_keys_is_refused(role: int) -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        assert_problem(await device.put(role, UPDATE), 404, "session-unknown")
        assert await stored(pair, role) == (0, 0)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_round_that_nobody_knows_is_refused(role: int) -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        path = f"https://server/v1/rounds/{'00' * 32}/sessions/{device.name.hex()}/keys"
        ticket = issue_ticket(TICKET_KEY, bytes(32), device.name, int(device.upload_until))
        headers = {"content-type": "application/octet-stream", "secemb-ticket": ticket}
        request = httpx.Request("PUT", path, content=device.body(role, KEYS), headers=headers)
        assert_problem(await pair.send(role, request), 404, "round-unknown")


@pytest.mark.parametrize("role", [0, 1])
async def test_what_comes_after_the_round_is_sealed_is_refused(role: int) -> None:
    async with a_pair() as pair:
        devices = [await joined(pair, number, KEYS) for number in range(3)]
        for device in devices[:2]:
            for to in (0, 1):
                await device.put(to, UPDATE)
        pair.clock.now = devices[0].upload_until
        await pair.step()
        await pair.step()
        assert_problem(await devices[2].put(role, UPDATE), 410, "round-closed")
        assert await stored(pair, role) == (3, 2)


@pytest.mark.parametrize("role", [0, 1])
async def test_a_ticket_is_good_for_one_session_of_one_round_until_it_ends(role: int) -> None:
    async with a_pair() as pair:
        one, other = await joined(pair, 1), await joined(pair, 2)
        end = int(one.upload_until)
        forged = {
            "of another session": other.ticket,
            "of another round": issue_ticket(TICKET_KEY, bytes(32), one.name, end),
            "with a later end": _with_end(one.ticket, end + 1),
            "of the wrong length": one.ticket[:-4],
            "not base64": "!" * 96,
        }
        for ticket in forged.values():
            headers = {"secemb-ticket": ticket}
            assert_problem(await one.put(role, KEYS, one.body(role, KEYS), **headers), 403, "ticket-refused")
        pair.clock.now = end + (CLOCK_TOLERANCE if role == 1 else 0) + 0.5
        assert_problem(await one.put(role, KEYS), 403, "ticket-refused")
        assert await stored(pair, role) == (0, 0)


def _with_end(ticket: str, end: int) -> str:
    from base64 import urlsafe_b64decode, urlsafe_b64encode

    return urlsafe_b64encode(end.to_bytes(8, "little") + urlsafe_b64decode(ticket)[8:]).decode()


async def test_no_ticket_at_all_is_an_invalid_request() -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        path = f"https://server/v1/rounds/{device.spec.digest.hex()}/sessions/{device.name.hex()}/keys"
        headers = {"content-type": "application/octet-stream"}
        request = httpx.Request("PUT", path, content=device.body(0, KEYS), headers=headers)
        assert_problem(await pair.send(0, request), 400, "request-invalid")


async def test_server_0_takes_nothing_of_a_session_that_has_not_joined() -> None:
    """Even with a ticket that is signed: only who was admitted counts towards the cohort."""
    async with a_pair() as pair:
        await joined(pair)
        record = await pair.parties[0].ledger.current_round(pair.task.task_id)
        assert record is not None
        stranger = a_device(pair, 3)
        stranger.ticket = issue_ticket(TICKET_KEY, record.round_id, stranger.name, int(record.upload_until))
        stranger.begin(record.spec)
        assert_problem(await stranger.put(0, KEYS), 404, "session-unknown")


async def test_a_full_round_and_one_past_its_time_to_join_say_when_to_come_back() -> None:
    async with a_pair() as pair:
        for number in range(pair.task.cohort):
            await (await joined(pair, number)).put(0, KEYS)
        full = await a_device(pair, 8).join()
        assert full is not None
        assert (full.status_code, full.headers["retry-after"]) == (202, "11")  # when rounds end, and up to a second
        pair.clock.now += pair.task.join_seconds
        late = await a_device(pair, 9).join()
        assert late is not None
        assert late.status_code == 202
        assert 1 <= int(late.headers["retry-after"]) <= 3  # the round is late


async def test_nobody_joins_before_server_1_knows_the_round() -> None:
    async with a_pair() as pair:
        pair.line.lose_requests = 1
        await pair.step()
        answer = await a_device(pair, 1).join()
        assert answer is not None
        assert answer.status_code == 202
        await pair.step()
        await joined(pair, 1)


async def test_another_task_is_refused() -> None:
    async with a_pair() as pair:
        request = httpx.Request("POST", f"https://server0/v1/tasks/{'00' * 32}/join", json={"session": "00" * 16})
        assert_problem(await pair.send(0, request), 404, "task-unknown")


async def test_a_device_gets_one_ticket_a_round_and_the_same_one_again() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        await pair.enrol("first")
        device = a_device(pair, 1, token="first")
        first, again = await device.join(), await device.join()
        assert first is not None
        assert again is not None
        assert first.status_code == 200
        assert first.content == again.content
        second = await a_device(pair, 2, token="first").join()
        assert second is not None
        assert (second.status_code, second.json()["ticket"]) == (202, None)


async def test_a_session_id_that_another_device_has_is_refused() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        for token in ("first", "second"):
            await pair.enrol(token)
        await a_device(pair, 1, token="first").join()
        assert_problem(await a_device(pair, 1, token="second").join(), 409, "session-conflict")


async def test_without_an_enrolment_token_nobody_joins() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.step()
        for token in (None, "", "unknown"):
            assert_problem(await a_device(pair, 1, token=token).join(), 401, "unauthorized")


async def test_a_session_id_is_not_used_in_a_second_round() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await pair.enrol("first")
        await pair.step()
        await a_device(pair, 1, token="first").fall_silent()
        await pair.finish()
        await pair.step()
        assert_problem(await a_device(pair, 1, token="first").join(), 409, "session-conflict")


@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_a_crowded_server_turns_requests_away_before_it_reads_their_bodies(what: str) -> None:
    async with a_pair() as pair:
        device = await joined(pair, 1, *([KEYS] if what == UPDATE else []))
        body, read = device.body(1, what), 0

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal read
            read += 1
            yield body

        path = f"https://server1/v1/rounds/{device.spec.digest.hex()}/sessions/{device.name.hex()}/{what}"
        headers = device.headers(1, what, body)
        with pair.parties[1].memory.message() as arrived:
            arrived(pair.parties[1].memory.most)
            answer = await pair.send(1, httpx.Request("PUT", path, content=chunks(), headers=headers))
            assert_problem(answer, 429, "busy")
            assert answer is not None
            assert int(answer.headers["retry-after"]) >= 1
            assert read == 0
        answer = await pair.send(1, httpx.Request("PUT", path, content=chunks(), headers=headers))
        assert answer is not None
        assert (answer.status_code, read) == (200, 1)


async def test_a_device_that_was_let_in_gets_its_ticket_again_when_joining_is_over() -> None:
    async with a_pair() as pair:
        device = await joined(pair)
        pair.clock.now += pair.task.join_seconds
        again = await device.join()
        assert again is not None
        assert (again.status_code, again.json()["ticket"]) == (200, device.ticket)
        for number in (2, 3):
            await a_device(pair, number).take_part()  # there are too few as yet
        pair.clock.now += pair.task.join_seconds
        late = await a_device(pair, 4).join()
        assert late is not None
        assert late.status_code == 202
        assert (await device.join()) is not None
        assert device.upload_until == pair.clock.now - pair.task.join_seconds + pair.task.upload_seconds
