"""Numbers from outside are ASCII digits up to a bound; anything else is refused, and nothing breaks over it."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.unit.operator_desk import TOKEN, Desk, a_desk, form_token

from secemb_party.http import operator_routes
from secemb_party.http.requests import read_number
from secemb_shared.messages.canonical import LARGEST_NUMBER

NONE = ["²", "٣", "-1", "+1", "1_0", " 1", "1.0", "0x1", "", "1" * 5000, str(LARGEST_NUMBER + 1), str(2**63), "9" * 16]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number_is_none(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("number", [0, 7, LARGEST_NUMBER])
def test_a_number_is_read(number: int) -> None:
    assert read_number(str(number)) == read_number(str(number).zfill(16)) == number


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", [one for one in NONE if 0 < len(one) < 5000])
async def test_an_address_with_a_number_that_is_none_is_not_there(desk: Desk, text: str) -> None:
    number = quote(text)
    pages = [f"events?after={number}", f"rounds?before={number}", f"rounds/{number}", f"model/{number}/export"]
    async with desk.logged_in(0) as browser:
        for path in (*pages, f"model/{number}/rollback"):
            assert (await browser.get(f"/ui/{path}")).status_code == 404, path
        fields = {"form_token": await form_token(browser), "sure": "yes", "seen": text}
        assert (await browser.post("/ui/model/0/rollback", data=fields)).status_code == 409
        headers = {"authorization": f"Bearer {TOKEN}"}
        for path in (f"events?after={number}", f"rounds?before={number}", f"rounds/{number}"):
            assert (await browser.get(f"/v1/operator/{path}", headers=headers)).status_code == 400, path
        rolled = await browser.post(f"/v1/operator/models/0/rollback?seen={number}", headers=headers)
        assert rolled.status_code == 400


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("last", ["²".encode("latin-1"), b"9" * 30, b"x", str(LARGEST_NUMBER).encode()])
async def test_a_stream_goes_on_from_its_address_where_the_last_event_is_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    monkeypatch.setattr(operator_routes, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(operator_routes, "POLL_SECONDS", 0.01)
    headers = {b"last-event-id": last, b"authorization": f"Bearer {TOKEN}".encode()}
    async with desk.browser(0) as browser:
        answer = await browser.get("/v1/operator/events?after=0", headers=headers)
    assert answer.status_code == 200
    assert ('"state": "published"' in answer.text) == (last != str(LARGEST_NUMBER).encode())
