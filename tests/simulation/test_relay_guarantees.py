"""What comes through server 0 is worth as much as what comes directly: the same tickets, answers, limits and seal."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from tests.devices.phone import a_phone, contributed
from tests.devices.scripted import Device, a_device
from tests.simulation.pair import RELAYED, Pair, a_pair
from tests.simulation.tampering import LONG, check_sum, each, newest_key, noting, refusals

from secemb_lab.loadtest.fleet import Sending, keys_of, update_of
from secemb_party.relay_frames import Frame
from secemb_sdk.round.contribute import Contributed
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import Kind
from secemb_shared.messages.relayed import box_content, encode_relayed

pytestmark = pytest.mark.asyncio


async def joined(pair: Pair, number: int = 1) -> tuple[Device, DeviceSession]:
    """Return a device with a ticket, and its session."""
    await pair.step()
    device = a_device(pair, number)
    await device.join()
    assert device.session is not None
    return device, device.session


def request(device: Device, sending: Sending, body: bytes | AsyncIterator[bytes] | None = None) -> httpx.Request:
    """Return the request that carries a message, or other bytes in its place."""
    url = f"https://server0/v1/rounds/{device.spec.digest.hex()}/sessions/{device.name.hex()}/{sending.name}"
    headers = {"content-type": "application/octet-stream", "secemb-ticket": device.ticket}
    if sending.mac:
        headers["secemb-proof"] = sending.mac.hex()
    content = sending.body if body is None else body
    if not isinstance(content, bytes):
        headers["content-length"] = str(len(sending.body))
    return httpx.Request("PUT", url, headers=headers, content=content)


async def put(device: Device, sending: Sending, body: bytes | None = None) -> tuple[int, bytes]:
    answer = await device.pair.send(0, request(device, sending, body))
    assert answer is not None
    return answer.status_code, answer.content


def keys(pair: Pair, session: DeviceSession) -> Sending:
    """Return the session's keys, in a box that is sealed now."""
    return keys_of(session, newest_key(pair))[0]


async def test_the_same_content_in_another_box_gets_the_same_bytes_again() -> None:
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        first, second = keys(pair, session), keys(pair, session)
        assert first.body != second.body
        answers = [await put(device, one) for one in (first, first, second)]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0][0] == 200
        upload = update_of(session, [answers[0][1]], newest_key(pair))[0]
        receipts = [await put(device, upload) for _ in range(3)]
        assert receipts[0] == receipts[1] == receipts[2]
        counts = [await party.ledger.counts(device.spec.digest) for party in pair.parties.values()]
        assert [(one.keys, one.updates) for one in counts] == [(1, 1), (1, 1)]


async def test_other_keys_in_a_used_session_are_a_conflict() -> None:
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        assert (await put(device, keys(pair, session)))[0] == 200
        drawn = iter([device.name])
        twin = DeviceSession(session.round, device.items(), random_bytes=lambda count: next(drawn, bytes(count)))
        status, body = await put(device, keys(pair, twin))
        assert (status, b"session-conflict" in body) == (409, True)
        assert json.loads(body)["refused_by"] == 1  # server 0 stores nothing before server 1 has agreed


async def test_other_seeds_for_server_1_alone_are_a_conflict_there() -> None:
    """Server 0 gets the same bytes; in the box is another seed. Server 1 does not answer two keys of one session."""
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        assert (await put(device, keys(pair, session)))[0] == 200
        session.keys = (session.keys[0], session.keys[1][:24] + bytes(16) + session.keys[1][40:])
        status, body = await put(device, keys(pair, session))
        assert (status, b"session-conflict" in body) == (409, True)
        assert json.loads(body)["refused_by"] == 1
        assert refusals(pair, 1) == {"session-conflict": 1}


async def test_an_upload_before_its_keys_is_unknown() -> None:
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        status, body = await put(device, unread_update(pair, session))
        assert (status, b"session-unknown" in body) == (404, True)


def unread_update(pair: Pair, session: DeviceSession) -> Sending:
    """Return the upload of a session whose keys have not been answered."""
    own, other = session.write_nothing()
    content = box_content(session.round, Kind.UPDATE, other, mac=session.marks.macs[1])
    body = encode_relayed(session.round, session.session_id, Kind.RELAYED_UPLOAD, own, content, newest_key(pair))
    return Sending(0, "relayed-update", body, session.marks.macs[0])


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_body_of_another_length_is_refused_before_it_is_passed_on(change: int) -> None:
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        message = keys(pair, session)
        passed: list[Frame] = []
        pair.line.tamper = each(noting(passed))
        status, body = await put(device, message, message.body[:-1] if change < 0 else message.body + b"\0")
        assert (status, b"message-length" in body) == (400, True)
        assert not passed


@pytest.mark.parametrize("crowded", ["server 0", "server 1"])
async def test_a_crowded_server_sends_relayed_devices_away_too(crowded: str) -> None:
    async with a_pair(**RELAYED) as pair:
        device, session = await joined(pair)
        message, read = keys(pair, session), 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal read
            read += 1
            yield message.body

        memory = pair.parties[int(crowded[-1])].memory
        memory.most = 0
        answer = await pair.send(0, request(device, message, body()))
        assert answer is not None
        assert answer.json()["type"] == "urn:secemb:problem:busy"
        assert answer.headers["retry-after"]
        assert read == (0 if crowded == "server 0" else 1)
        assert (await pair.parties[1].ledger.counts(device.spec.digest)).keys == 0
        memory.most = 1
        assert (await put(device, message))[0] == 200


async def test_an_expired_ticket_lets_nothing_new_in_and_gives_a_lost_receipt_again() -> None:
    async with a_pair(**RELAYED) as pair:
        (device, session), (late, other) = await joined(pair), await joined(pair, 2)
        answers = [await put(one, keys(pair, mine)) for one, mine in ((device, session), (late, other))]
        upload = update_of(session, [answers[0][1]], newest_key(pair))[0]
        missed = update_of(other, [answers[1][1]], newest_key(pair))[0]
        receipt = await put(device, upload)
        pair.clock.now += 10_000
        assert await put(device, upload) == receipt
        status, body = await put(late, missed)
        assert (status, b"ticket-refused" in body) == (403, True)


async def test_both_servers_seal_the_same_list_and_who_was_withheld_is_left_out() -> None:
    """Server 0 swallows what one device uploads for server 1: the sum is that of the others, exactly."""
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        phones = [a_phone(pair, number, seconds=5.0) for number in range(3)]
        for phone in phones[:2]:
            await contributed(phone)
        pair.line.tamper = each(lambda frame: replace(frame, rest=b"") if frame.step is Kind.UPDATE else frame)
        assert not isinstance(await phones[2].contribute(), Contributed)
        pair.line.tamper = None
        await check_sum(pair, phones[:2])
        records = [(await party.ledger.rounds(pair.task.task_id, limit=1))[0] for party in pair.parties.values()]
        assert records[0].sealed_sessions == records[1].sealed_sessions
        assert len(records[0].sealed_sessions or ()) == 2


async def test_a_round_that_is_over_takes_nothing_through_the_relay_either() -> None:
    async with a_pair(**LONG) as pair:
        device, session = await joined(pair, 3)
        for number in range(2):
            await contributed(a_phone(pair, number))
        await pair.finish()
        status, body = await put(device, keys(pair, session))
        assert (status, b"round-closed" in body) == (410, True)
