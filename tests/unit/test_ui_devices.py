"""The page about devices: on server 0 by the hash of their tokens, without a name; and forms that are cut off."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from starlette.types import Message
from tests.unit.operator_desk import READ_ONLY, Desk, a_desk

from secemb_party.ledger import NewToken, Window
from secemb_party.operators import Order

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


async def test_server_0_shows_devices_with_the_most_trouble_first_and_no_names(desk: Desk) -> None:
    pair = desk.pair
    ledger, now = pair.parties[0].ledger, pair.clock.now
    async with desk.logged_in(0) as browser:
        assert "No device has a token yet." in (await browser.get("/ui/devices")).text
    hashes = [hashlib.sha256(text).digest() for text in (b"calm", b"troubled")]
    tokens = [NewToken(f"phone of {at}", one) for at, one in enumerate(hashes)]
    await ledger.add_tokens(tokens, Order("tests"), now)
    await pair.step()
    record = await ledger.last_round(pair.task.task_id)
    assert record is not None
    session, window = bytes(range(16)), Window(now + 10, now + 30)
    await ledger.admit(record.round_id, session, device=hashes[1], limit=9, waiting=9, now=now, window=window)
    await ledger.note_refusal(session, "relay-box", now)
    async with desk.logged_in(0, READ_ONLY) as browser:
        text = (await browser.get("/ui/devices")).text
    assert text.index(hashes[1].hex()[:16]) < text.index(hashes[0].hex()[:16])
    assert "relay-box" in text
    assert "phone of" not in text
    assert hashes[1].hex() not in text
    assert "No figure on this page describes an individual device" not in text


async def test_server_1_says_who_knows_devices(desk: Desk) -> None:
    async with desk.logged_in(1) as browser:
        assert "ask the operator of server 0" in (await browser.get("/ui/devices")).text


async def test_a_form_that_is_cut_off_is_the_callers_fault(desk: Desk) -> None:
    """A browser that goes away in the middle of a login is no internal error, which would page somebody."""
    sent: list[Message] = []
    parts: list[Message] = [
        {"type": "http.request", "body": b"token=ha", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        await asyncio.sleep(0)
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/ui/login",
        "raw_path": b"/ui/login",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"content-length", b"99"), (b"content-type", b"application/x-www-form-urlencoded")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await desk.apps[0](scope, receive, send)
    assert sent[0]["status"] == 408
    found = desk.pair.parties[0].metrics.refusals()
    assert found.get("internal", 0) == 0
    assert found["body-slow"] == 1
