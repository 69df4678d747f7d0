"""Rounds on the operator's pages: the phases that were reached, what evaluations found, and times under their heads."""

import re
import secrets
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.devices.scripted import KEYS, UPDATE, a_device
from tests.simulation.pair import Pair, a_pair
from tests.unit.operator_desk import Desk, file_of_operators
from tests.unit.test_ui_peer import read

from secemb_party.ui.views.rounds import AHEAD, DONE, FAILED, NOW, round_facts
from secemb_sdk.round.upload import survey
from secemb_shared.messages.measures import EvaluationSums
from secemb_shared.messages.spec import EVALUATE, SURVEY

pytestmark = pytest.mark.asyncio

_LATER = [("Sealed", AHEAD), ("Shared", AHEAD), ("Published", AHEAD)]


async def steps(pair: Pair, role: int = 0) -> list[tuple[str, str]]:
    """Return the phases of the newest round and how far each of them is."""
    record = await pair.parties[role].ledger.last_round(pair.task.task_id)
    assert record is not None
    return [(one.name, one.state) for one in (await round_facts(pair.parties[role], record)).steps]


async def test_only_the_phases_that_a_round_has_reached_are_lit() -> None:
    async with a_pair(cohort=2) as pair:
        await pair.step()
        devices = [a_device(pair, number) for number in range(2)]
        assert await steps(pair) == [("Joined", NOW), ("Keys", AHEAD), ("Updates", AHEAD), *_LATER]
        await devices[0].join()
        assert await steps(pair) == [("Joined", NOW), ("Keys", AHEAD), ("Updates", AHEAD), *_LATER]
        await devices[1].join()  # the cohort is full
        assert await steps(pair) == [("Joined", DONE), ("Keys", AHEAD), ("Updates", AHEAD), *_LATER]
        await devices[0].put(0, KEYS)
        assert await steps(pair) == [("Joined", DONE), ("Keys", NOW), ("Updates", AHEAD), *_LATER]
        await devices[1].put(0, KEYS)
        await devices[0].put(0, UPDATE)
        assert await steps(pair) == [("Joined", DONE), ("Keys", DONE), ("Updates", NOW), *_LATER]
        assert (await steps(pair, 1))[1:3] == [("Keys", AHEAD), ("Updates", AHEAD)], "server 1 has nothing yet"


async def test_a_round_that_no_device_joined_has_reached_nothing() -> None:
    async with a_pair() as pair:
        await pair.step()
        pair.clock.now += pair.task.upload_seconds + 1
        await pair.finish()
        expected = [("Joined", NOW), ("Keys", AHEAD), ("Updates", AHEAD), *_LATER]
        assert await steps(pair) == await steps(pair, 1) == expected


async def test_a_round_whose_only_device_was_lost_is_aborted() -> None:
    async with a_pair() as pair:
        await pair.step()
        device = a_device(pair, 0)
        await device.join()
        await device.put(0, KEYS)
        pair.clock.now += pair.task.upload_seconds + 1
        await pair.finish()
        assert (await steps(pair))[1:] == [("Keys", DONE), ("Updates", AHEAD), ("Aborted", FAILED)]


async def test_a_round_whose_only_seat_has_lapsed_goes_on() -> None:
    async with a_pair() as pair:
        await pair.step()
        await a_device(pair, 0).join()
        pair.clock.now += pair.task.upload_seconds + 1
        await pair.finish()
        assert await steps(pair) == [("Joined", NOW), ("Keys", AHEAD), ("Updates", AHEAD), *_LATER]


async def test_a_session_without_keys_counts_as_joined_only_while_a_round_waits_for_it() -> None:
    async with a_pair(cohort=2, operators=file_of_operators()) as pair:
        desk = Desk(pair)
        await pair.step()
        for number in range(2):
            await a_device(pair, number).join()
        assert "2 of at most 2" in await read(desk, 0, "/ui/live")
        pair.clock.now += pair.parties[0].seat_seconds + 1
        await pair.step()
        assert (await steps(pair))[0] == ("Joined", NOW), "there is room for others"
        assert "0 of at most 2; 2 more sent no keys" in await read(desk, 0, "/ui/live")
        device = a_device(pair, 2)
        await device.join()
        await device.put(0, KEYS)
        assert "1 of at most 2; 2 more sent no keys" in await read(desk, 0, "/ui/live")
        record = await pair.parties[0].ledger.last_round(pair.task.task_id)
        assert record is not None
        assert "1 2 more sent no keys" in await read(desk, 0, f"/ui/rounds/{record.number}")


async def finish_round(pair: Pair, sums: list[float] | None = None) -> None:
    """Run a round of two devices; in a survey or an evaluation each uploads these sums."""
    await pair.step()
    for number in range(2):
        device = a_device(pair, number, name=secrets.token_bytes(16))
        await device.join()
        if sums is not None:
            device.write_sum(sums)
        await device.take_part()
    await pair.finish()


def line_of(text: str, number: int, kind: str) -> str:
    found = re.search(rf"\b{number} {kind} .*?(?: ago| now)\b", text)
    assert found is not None, text
    return found[0]


async def test_an_evaluation_is_called_evaluated_and_has_its_error_at_server_0_alone() -> None:
    async with a_pair(
        operators=file_of_operators(), choose_kind=lambda number: EVALUATE if number == 1 else "train", capacity=24
    ) as pair:
        desk = Desk(pair)
        await finish_round(pair)
        await finish_round(pair, EvaluationSums(predictions=4.0, squared=1.0).numbers().tolist())
        for path in ("/ui/rounds", "/ui"):
            text = await read(desk, 0, path)
            assert line_of(text, 1, "evaluate").startswith("1 evaluate evaluated 2 2 2 0.500 ")
            assert line_of(text, 0, "train").startswith("0 train published 2 2 2 – ")
            there = await read(desk, 1, path)
            assert "RMSE" not in there
            assert line_of(there, 1, "evaluate").startswith("1 evaluate evaluated 2 2 2 ")
        page = await read(desk, 0, "/ui/rounds/1")
        assert "Evaluation · evaluated" in page
        assert "ublish" not in page, "an evaluation makes no model"


async def test_a_survey_is_called_surveyed() -> None:
    async with a_pair(operators=file_of_operators(), choose_kind=lambda _: SURVEY) as pair:
        await finish_round(pair, survey(np.ones(3, np.float32)).tolist())
        assert "0 survey surveyed" in await read(Desk(pair), 0, "/ui/rounds")
        page = await read(Desk(pair), 0, "/ui/quality")
        assert "Their mean rating is 1.00, with a standard deviation of 0.00" in page


async def told_of_progress(*errors: float, begins: int = 0, schedule: str = "constant") -> str:
    """Return the quality page after evaluations with these errors; the window starts anew after a rollback."""
    async with a_pair(operators=file_of_operators(), schedule=schedule) as pair:
        for place, rmse in enumerate(errors):
            rounds = list(range(max(0 if place < begins else begins, place - 4), place + 1))
            window = {"rounds": rounds, "predictions": 50.0, "rmse": rmse, "mean_rmse": 1.0, "biases_rmse": 1.0}
            window |= {"mae": rmse, "rmse_low": rmse - 0.03, "rmse_high": rmse + 0.03}
            await pair.parties[0].ledger.append_event("result", {"round": place, "window": window}, 1.0)
        return await read(Desk(pair), 0, "/ui/quality")


async def test_the_page_says_when_more_rounds_no_longer_help() -> None:
    found = await told_of_progress(0.1, 0.99, 0.98, 0.97, 0.96, 0.91, 0.92, 0.93, 0.92, 0.92)
    assert "The model was better in the evaluation of round 5" in found, "an incomplete window says nothing"
    assert (
        "where five evaluations together had RMSE 0.910, and at least four evaluations since then were worse" in found
    )
    silent = "The model was better"
    assert silent not in await told_of_progress(0.99, 0.98, 0.97, 0.96, 0.95, 0.91, 0.92, 0.93, 0.92)
    assert silent not in await told_of_progress(*(1 - place / 100 for place in range(20)))
    after_a_rollback = [0.9] * 3 + [0.1] * 3 + [0.99 - place / 100 for place in range(9)]
    assert silent not in await told_of_progress(*after_a_rollback, begins=6)
    settling = [0.99, 0.98, 0.97, 0.96, 0.96, 0.91, 0.92, 0.93, 0.92]
    assert silent not in await told_of_progress(*settling, 0.95, schedule="cosine"), "that may be chance"
    assert silent in await told_of_progress(*settling, 0.98, schedule="cosine")


async def test_the_times_of_a_round_stand_under_their_heads() -> None:
    async with a_pair(operators=file_of_operators()) as pair:
        desk = Desk(pair)
        await pair.step()
        for number in range(2):
            await a_device(pair, number).take_part()
        pair.clock.now += 20
        await pair.finish()
        async with desk.logged_in(0) as browser:
            text = (await browser.get("/ui/rounds/0")).text
    rows = table(text, "Time of each phase")
    assert rows[0] == ["Phase", "Began", "Ended", "Took"]
    assert [row[0] for row in rows[1:]] == ["open", "sealing", "adding", "reconstructing", "publishing", "total"]
    for row, after in pairwise(rows[1:-1]):
        assert row[2] == after[1], "a phase ends when the next one begins"
    first, last, total = rows[1], rows[-2], rows[-1]
    assert total == ["total", first[1], last[2], "20 s"]
    assert (first[1][:8], first[2][:8]) == ("00:16:40", "00:17:00")


def table(text: str, label: str) -> list[list[str]]:
    """Return the cells of the table with this label."""
    part: Any = text.partition(f'aria-label="{label}"')[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


@pytest.mark.parametrize("role", [0, 1])
async def test_every_page_names_the_task_by_its_id_once_someone_has_logged_in(role: int) -> None:
    async with a_pair(operators=file_of_operators()) as pair:
        desk = Desk(pair)
        name = pair.task.task_id.hex()
        for path in ("/ui", "/ui/rounds", "/ui/quality", "/ui/privacy", "/ui/peer", "/ui/model", "/ui/capacity"):
            assert name[:16] in await read(desk, role, path)
        async with desk.browser(role) as stranger:
            assert name[:4] not in (await stranger.get("/ui/login")).text


async def test_the_page_shows_rankings_in_the_whole_catalogue_apart_from_those_among_strangers() -> None:
    ranked = {"hit_rate": 0.8, "recall": 0.8, "ndcg": 0.5, "mrr": 0.4, "whole_hit_rate": 0.2, "whole_ndcg": 0.1}
    window = ranked | {f"popular_{name}": value / 2 for name, value in ranked.items()}
    window |= {"whole_mrr": 0.05, "popular_whole_mrr": 0.025, "perplexity": 321.04, "rankings": 500.0, "k": 10}
    async with a_pair(operators=file_of_operators()) as pair:
        facts = {"round": 5, "window": {"rounds": [5], "strangers": 100, **window}}
        await pair.parties[0].ledger.append_event("result", facts, 1.0)
        async with Desk(pair).logged_in(0) as browser:
            page = (await browser.get("/ui/quality")).text
    assert table(page, "Rankings of the newest evaluations")[1][:2] == ["Hit rate at 10", "0.800"]
    whole = table(page, "Rankings in the whole catalogue")
    assert [row[:2] for row in whole[1:]] == [
        ["Hit rate at 10", "0.200"],
        ["NDCG at 10", "0.100"],
        ["MRR", "0.050"],
        ["Perplexity", "321.0"],
    ]
    assert whole[1][-1] == "0.100"
