"""The list of events on the live page: what happened, in words, as it happens, and nothing about a device."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.devices.scripted import a_device
from tests.unit.operator_desk import Desk, a_desk

from secemb_party.http import operator_routes
from secemb_party.ledger import Event, RoundState
from secemb_party.ui.views.events import SHOWN, tell


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


@pytest.fixture
def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_routes, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(operator_routes, "POLL_SECONDS", 0.01)


def words(kind: str, data: dict[str, Any], role: int = 0) -> str:
    told = tell(Event(1, 1000.0, kind, data), role)
    return "" if told is None else f"{told.subject} {told.words}"


def listed(text: str) -> list[str]:
    """Return the lines of the list in a page or a stream, without tags."""
    return [" ".join(re.sub(r"<[^>]+>", " ", line).split()) for line in re.findall(r"(?s)<li>(<time.*?)</li>", text)]


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("state", [one for one in RoundState if one is not RoundState.OPEN])
def test_every_state_that_a_round_enters_has_words(role: int, state: RoundState) -> None:
    found = words("round", {"round": 3, "kind": "train", "state": state.value}, role)
    assert found.startswith("Round 3 ") == (role == 0 or state is not RoundState.RECONSTRUCTED)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (
            "round",
            {"round": 3, "kind": "train", "state": "published"},
            "Round 3 has ended; its model is published.",
        ),
        (
            "round",
            {"round": 3, "kind": "survey", "state": "published", "refused": {"busy": 2, "ticket-refused": 1}},
            "Round 3 has ended; the model is unchanged. Requests refused in the meantime: 3.",
        ),
        (
            "result",
            {"round": 4, "rmse": 0.9, "predictions": 1234, "biases_rmse": 0.95}
            | {"ndcg": 0.25, "k": 10, "rankings": 80, "popular_ndcg": 0.125},
            "Round 4 measured the model: RMSE 0.900 over 1,234 ratings (biases alone 0.950), "
            "NDCG at 10 0.250 over 80 devices (popularity 0.125).",
        ),
        ("result", {"round": 4}, "Round 4 measured nothing because no device held out ratings."),
        (
            "result",
            {"round": 0, "mean_items": 12.34},
            "Round 0 surveyed the devices, which have 12.3 items on average.",
        ),
        ("rollback", {"source": 5, "version": 8}, "Version 8 restores the numbers of version 5."),
        ("rollback", {"source": 5, "reason": "<b>gone"}, "The rollback to version 5 was abandoned: <b>gone."),
        (
            "round",
            {"round": 3, "kind": "train", "state": "aborted", "reason": "too few sessions"},
            "Round 3 was aborted; its updates do not count. Reason: too few sessions.",
        ),
        ("control", {"what": "pause", "by": "anna", "reason": "x"}, "The task was paused by anna: x."),
        ("control", {"what": "resume", "by": "anna", "reason": None}, "The task was resumed by anna."),
        ("control", {"what": "drain end", "reason": "y"}, "This server was taken out of drain mode: y."),
        ("control", {"what": "close", "by": "anna", "reason": "x", "round": 4}, "Round 4 is being closed by anna: x."),
        ("round", {"round": 3, "kind": "train", "state": "unheard of"}, ""),
        ("something new", {"round": 3}, ""),
    ],
)
def test_an_event_is_told_in_words(kind: str, data: dict[str, Any], expected: str) -> None:
    assert words(kind, data) == expected


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
async def test_the_live_page_lists_the_newest_events_and_the_stream_goes_on_behind_them(
    desk: Desk, short_streams: None, role: int
) -> None:
    party = desk.pair.parties[role]
    async with desk.logged_in(role) as browser:
        page = (await browser.get("/ui")).text
        before = listed(page)
        assert before[0].endswith("Round 0 has ended; its model is published.")
        assert before[-1].endswith("Round 0 no longer accepts messages; the two servers are comparing their sessions.")
        source = re.search(r'data-source="([^"]+)"', page)
        assert source is not None
        assert listed((await browser.get(source[1])).text) == []
        await party.ledger.append_event("rollback", {"source": 0, "reason": "<script>\n\nx"}, party.clock())
        stream = (await browser.get(source[1])).text
        (line,) = listed(stream)
        assert line.endswith("The rollback to version 0 was abandoned: &lt;script&gt; x.")
        assert re.fullmatch(r"retry: 500\n\nid: \d+\nevent: rollback\ndata: <li>.*</li>\n\n", stream)
        assert listed((await browser.get("/ui")).text) == [line, *before]


@pytest.mark.asyncio
async def test_the_list_ends_somewhere_and_names_no_session(desk: Desk) -> None:
    party = desk.pair.parties[0]
    for number in range(SHOWN):
        figures = {"rmse": 1.0, "predictions": 20, "biases_rmse": 2.0}
        await party.ledger.append_event("result", {"round": number, **figures}, party.clock())
    await party.ledger.append_event("something new", {"round": 1}, party.clock())
    await desk.pair.step()
    device = a_device(desk.pair, 0, name=bytes(range(16)))
    await device.take_part()
    async with desk.logged_in(0) as browser:
        text = (await browser.get("/ui")).text
    assert len(listed(text)) == SHOWN
    assert listed(text)[0].endswith(
        f"Round {SHOWN - 1} measured the model: RMSE 1.000 over 20 ratings (biases alone 2.000)."
    )
    assert device.name.hex() not in text
