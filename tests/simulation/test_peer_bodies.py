"""What server 1 reads on the peer line: nothing before the bearer is right, and no more than a round can need."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.simulation.pair import PEER_TOKEN, Pair, a_pair

pytestmark = pytest.mark.asyncio

ROUND = "00" * 32
PATHS = ["/peer/v1/announce", *(f"/peer/v1/rounds/{ROUND}/{last}" for last in ("prepare", "commit", "share", "abort"))]
MEGABYTE = 1 << 20


class Body:
    """A body without a stated length that counts what is taken of it."""

    def __init__(self, megabytes: int) -> None:
        self.taken, self._megabytes = 0, megabytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._megabytes):
            self.taken += 1
            yield b" " * MEGABYTE


async def ask(pair: Pair, path: str, content: bytes | Body, *, bearer: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=pair.server1.peer)
    always = {"authorization": f"Bearer {bearer}", "content-type": "application/json"}
    async with httpx.AsyncClient(transport=transport, base_url="https://server1") as client:
        return await client.post(path, content=content, headers=always | headers)


def kind_of(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).removeprefix("urn:secemb:problem:")


@pytest.mark.parametrize("path", PATHS)
async def test_who_has_no_bearer_is_told_so_before_anything_is_read(path: str) -> None:
    async with a_pair() as pair:
        for content in (b"{", body := Body(20)):
            answer = await ask(pair, path, content, bearer="wrong")
            assert (answer.status_code, kind_of(answer)) == (401, "unauthorized")
        assert body.taken == 0
        assert b"secemb_peer_strangers_total 2.0" in pair.parties[1].metrics.render()


@pytest.mark.parametrize("path", PATHS)
async def test_a_message_longer_than_any_is_refused_and_not_read_to_its_end(path: str) -> None:
    async with a_pair() as pair:
        body = Body(20)
        answer = await ask(pair, path, body, bearer=PEER_TOKEN)
        assert kind_of(answer) == "message-length"
        assert body.taken < 3
        announced = await ask(pair, path, b"{}", bearer=PEER_TOKEN, **{"content-length": str(20 * MEGABYTE)})
        assert kind_of(announced) == "message-length"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"more": 1}'])
async def test_what_is_no_message_is_refused(path: str, content: bytes) -> None:
    async with a_pair() as pair:
        answer = await ask(pair, path, content, bearer=PEER_TOKEN)
        assert (answer.status_code, kind_of(answer)) == (400, "request-invalid")
        other = await ask(pair, path, b"{}", bearer=PEER_TOKEN, **{"content-type": "text/plain"})
        assert kind_of(other) == "media-type"


async def test_the_largest_cohort_fits() -> None:
    async with a_pair(cohort=10) as pair:
        await pair.step()
        sessions = [[f"{number:032x}", "ab" * 32, "cd" * 32] for number in range(pair.task.cohort)]
        offer = httpx.Response(200, json={"sessions": sessions}).content
        record = await pair.parties[1].ledger.last_round(pair.task.task_id)
        assert record is not None
        answer = await ask(pair, f"/peer/v1/rounds/{record.round_id.hex()}/prepare", offer, bearer=PEER_TOKEN)
        assert (answer.status_code, answer.json()) == (200, {"sessions": [], "rejected": []})
