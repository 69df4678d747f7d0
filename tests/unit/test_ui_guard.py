"""What each server's page says about sums, discarded rounds, the devices in them, and the trusted panel."""

import hashlib

import pytest
from tests.devices.scripted import a_device
from tests.unit.operator_desk import Desk, a_desk
from tests.unit.test_ui_peer import read

pytestmark = pytest.mark.asyncio


async def a_round(desk: Desk, number: int, *, wild: bool) -> list[bytes]:
    """Have another round; return the sessions in it."""
    await desk.pair.step()
    names = [bytes([100 + number, power]) * 8 for power in range(2)]
    for power, session in enumerate(names):
        await a_device(desk.pair, power, name=session, wild=wild and not power).take_part()
    await desk.pair.finish()
    return names


async def test_the_page_shows_how_large_the_newest_sum_was() -> None:
    async with a_desk(guard="8") as desk:
        text = await read(desk, 0, "/ui/guard")
        assert "No round has been discarded." in text
        assert "rows 2." in text  # the norm
        assert "The optimiser limited 0 of 24 rows to 8 times their usual size." in text
        assert "The panel has not evaluated the model yet." in text
        assert "No figure on this page describes an individual device." in text
        assert "Server 0 adds the two shares" in await read(desk, 1, "/ui/guard")


async def test_the_page_lists_discarded_rounds_and_nobody_who_was_in_one_of_them() -> None:
    async with a_desk() as desk:
        await a_round(desk, 1, wild=True)
        for role in (0, 1):
            text = await read(desk, role, "/ui/guard")
            assert "Training: 1. Discarded rounds do not change the model" in text
            assert "discarded" in await read(desk, role, "/ui/rounds")
            story = await read(desk, role, "/ui/rounds/1")
            assert "its sum is impossible: rows larger than these sessions can add up to" in story
            assert "was discarded; its updates do not count. Reason: its sum is impossible" in await read(
                desk, role, "/ui"
            )
        assert "No device was in more than one discarded round." in await read(desk, 0, "/ui/guard")


async def test_the_page_names_the_token_that_was_in_several_discarded_rounds() -> None:
    async with a_desk(open_enrolment=False) as desk:
        pair = desk.pair
        for token in ("anna", "bert", "carl"):
            await pair.enrol(token)
        for number, tokens in enumerate((("anna", "bert"), ("anna", "carl"))):
            await pair.step()
            for place, token in enumerate(tokens):
                device = a_device(pair, place, name=bytes([50 + number, place]) * 8, token=token, wild=token == "anna")
                await device.take_part()
            await pair.finish()
        text = await read(desk, 0, "/ui/guard")
        digits = hashlib.sha256(b"anna").hexdigest()
        assert digits[:4] in text
        assert digits not in text
        assert "name of anna" in text
        assert "name of bert" not in text
        assert "Only the table of devices in discarded rounds describes individual devices." in text
        assert "name of anna" not in await read(desk, 1, "/ui/guard")


async def test_the_page_shows_what_the_panel_has_measured() -> None:
    async with a_desk() as desk:
        party = desk.pair.parties[0]
        found = {"round": 4, "version": 3, "rmse": 0.8125, "predictions": 20.0, "biases_rmse": 0.9}
        await party.ledger.append_event("panel", found, desk.pair.clock.now)
        party.metrics.safeguards.panel_worse(2)
        text = await read(desk, 0, "/ui/guard")
        assert "3 0.8125" in text
        assert "The last 2 evaluations of the panel were worse than its best one" in text
        assert "was for the trusted panel, and measured the model" in await read(desk, 0, "/ui")
