"""What the logs of two servers tell: the story of each round under one id, refusals without a flood, a full disk."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party import logs
from secemb_party.errors import LedgerFullError
from secemb_party.upkeep import RefusalLines
from secemb_server1.app import await_calls

pytestmark = pytest.mark.asyncio
Lines = list[dict[str, Any]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """Every line that is logged, with what the request it belongs to puts on it."""
    told: Lines = []
    honest = logs.withhold_secrets

    def keep(logger: Any, method: str, event: Any) -> Any:
        kept = honest(logger, method, event)
        told.append({**kept, "method": method})
        return kept

    monkeypatch.setattr(logs, "withhold_secrets", keep)
    logs.get_logger.cache_clear()
    yield told
    logs.get_logger.cache_clear()


def about_rounds(lines: Lines) -> Lines:
    return [line for line in lines if line["event"].startswith("round ")]


async def test_both_servers_tell_the_story_of_a_round_under_the_same_id(lines: Lines, caplog: Any) -> None:
    caplog.set_level("INFO", "secemb")
    async with a_pair() as pair:
        await pair.step()
        for number in range(2):
            await a_device(pair, number).take_part()
        late = a_device(pair, 2)
        await late.join()
        for role in (0, 1):
            await late.put(role, KEYS)
        await a_device(pair, 3).join()
        await pair.finish()
    story = about_rounds(lines)
    words = [line["event"] for line in story]
    for told in ("opened", "sealing", "sealed", "shared", "published"):
        assert words.count(f"round {told}") == 2, words
    assert len({line["round_id"] for line in story}) == 1
    assert {line["round"] for line in story} == {0}
    assert not any("withheld" in line for line in lines)
    here = next(line for line in story if line["event"] == "round sealed" and line["silent"] == 1)
    assert (here["counted"], here["left_out"], here["unfinished"], here["one_sided"]) == (2, 2, 1, 0)
    assert {line.get("version") for line in story if line["event"] == "round published"} == {1}


async def test_an_aborted_round_is_told_with_its_reason(lines: Lines, caplog: Any) -> None:
    caplog.set_level("INFO", "secemb")
    async with a_pair() as pair:
        await pair.step()
        await a_device(pair, 0).take_part()
        await a_device(pair, 1).fall_silent()  # and is lost: otherwise the round would wait for more devices
        await pair.finish()
    aborted = [line for line in about_rounds(lines) if line["event"] == "round aborted"]
    assert [line["reason"] for line in aborted] == ["too few sessions on both servers"] * 2


async def test_a_call_between_the_servers_is_logged_under_one_id_on_both(lines: Lines, caplog: Any) -> None:
    caplog.set_level("INFO", "secemb")
    async with a_pair() as pair:
        with logs.request_lines("0123456789abcdef"):
            await pair.step()
    calls = [line for line in lines if line["event"] == "request" and line["route"] == "/peer/v1/announce"]
    assert [line["request"] for line in calls] == ["0123456789abcdef"]
    assert {line["request"] for line in about_rounds(lines)} == {"0123456789abcdef"}


async def test_a_flood_of_refusals_is_one_line_with_its_slug_and_count(lines: Lines, caplog: Any) -> None:
    caplog.set_level("INFO", "secemb")
    async with a_pair() as pair:
        await pair.step()
        refusals, device = RefusalLines(pair.parties[0]), a_device(pair, 0)
        await device.join()
        for _ in range(200):
            answer = await device.put(0, KEYS, b"not keys")
            assert answer is not None
            assert answer.status_code == 400
        assert [line for line in lines if line["event"] == "request" and line["route"].startswith("/v1")] == []
        refusals.tell()
        refusals.tell()
    told = [line for line in lines if line["event"] == "refused"]
    assert [(line["problem"], line["count"], line["by"]) for line in told] == [("message-length", 200, "this server")]


async def test_server_1_tells_once_that_server_0_does_not_call_and_when_it_does_again(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair() as pair:
        await pair.step()
        party = pair.parties[1]
        watching = asyncio.create_task(await_calls(party, every=0.001, patience=120.0))

        async def told(event: str) -> Lines:
            async with asyncio.timeout(30):
                while not (found := [line for line in lines if line["event"] == event]):
                    assert not watching.done()
                    await asyncio.sleep(0.005)
            return found

        pair.clock.now += 100
        await asyncio.sleep(0.05)
        assert not [line for line in lines if line["event"] == "server 0 has stopped calling"]
        pair.clock.now += 100
        assert len(await told("server 0 has stopped calling")) == 1
        await pair.server0.leader._peer.standing()
        assert len(await told("server 0 is calling again")) == 1
        assert len(await told("server 0 has stopped calling")) == 1
        watching.cancel()


async def begin(pair: Pair) -> int:
    """Let a new device join and return the status, without a body that could be read: it announces one and stops."""

    read = []

    async def body() -> AsyncIterator[bytes]:
        read.append(True)
        yield b"{}"

    headers = {"content-type": "application/json", "content-length": "50"}
    path = f"/v1/tasks/{pair.task.task_id.hex()}/join"
    answer = await pair.send(0, httpx.Request("POST", f"http://server0{path}", content=body(), headers=headers))
    assert answer is not None
    assert answer.headers["retry-after"] == "60"
    assert not read
    return answer.status_code


async def test_without_room_no_session_begins_those_that_have_begun_end_and_it_recovers_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pair() as pair:
        await pair.step()
        devices = [a_device(pair, number) for number in range(3)]
        for device in devices:
            await device.join()
        for device in devices[:2]:
            for role in (0, 1):
                await device.put(role, KEYS)
        for party in pair.parties.values():
            monkeypatch.setattr(party.space, "reserve", 1 << 60)
        assert await begin(pair) == 503
        for role in (0, 1):
            refused = await devices[2].put(role, KEYS)
            assert refused is not None
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
            pair.line.broken.clear()  # a 503 is what this is about
            assert [one.check for one in await pair.parties[role].readiness() if not one.ok] == ["storage"]
        for device in devices[:2]:
            for role in (0, 1):
                await device.put(role, UPDATE)
        for party in pair.parties.values():
            monkeypatch.setattr(party.space, "reserve", 0)
        await devices[2].take_part()
        assert all(device.acknowledged for device in devices)
        await pair.finish()
        assert len((await pair.parties[0].ledger.rounds(pair.task.task_id))[0].sealed_sessions or ()) == 3


async def test_a_database_without_room_is_noticed_and_probed_until_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pair() as pair:
        party = pair.parties[0]
        database = party.ledger._database

        async def full(_: object) -> None:
            raise LedgerFullError("the database failed (DiskFullError 53100)")

        with monkeypatch.context() as patch:
            patch.setattr(database, "write", full)
            for _ in range(2):
                with pytest.raises(LedgerFullError):
                    await pair.server0.leader.step()
            assert "database" in str(party.space.shortage())
            with pytest.raises(LedgerFullError):
                await party.probe_ledger()
        await party.probe_ledger()
        assert party.space.shortage() is None
        await pair.step()
        assert await party.ledger.current_round(pair.task.task_id) is not None
