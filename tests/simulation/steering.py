"""What an operator of either server does to a task, and what the servers then show."""

import secrets

import httpx
import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair

from secemb_party.errors import ControlRefusedError
from secemb_party.ledger import RoundState, What
from secemb_party.operators import Order

WHY = Order("admin", "the database moves")


async def tell(pair: Pair, role: int, what: What) -> None:
    await pair.parties[role].control.tell(what, WHY)


async def lift(pair: Pair, role: int, what: What) -> None:
    await pair.parties[role].control.lift(what, WHY)


async def end(pair: Pair, role: int, what: What, number: int = 0) -> None:
    await pair.parties[role].control.end_round(what, number, WHY)


async def refused(pair: Pair, role: int, what: What, number: int = 0) -> str:
    with pytest.raises(ControlRefusedError) as caught:
        await end(pair, role, what, number)
    return str(caught.value)


async def knock(pair: Pair) -> httpx.Response:
    answer = await a_device(pair, 9, name=secrets.token_bytes(16)).join()
    assert answer is not None
    return answer


async def rounds(pair: Pair, role: int) -> list[tuple[int, RoundState, str | None]]:
    found = await pair.parties[role].ledger.rounds(pair.task.task_id)
    return [(one.number, one.state, one.reason) for one in reversed(found)]


def phase(pair: Pair, role: int) -> str:
    shown = [
        labels["phase"]
        for name, labels, value in pair.parties[role].metrics.figures()
        if value == 1.0
        if name == "secemb_round_phase"
    ]
    (found,) = shown
    return found


def figure(pair: Pair, role: int, wanted: str) -> float:
    (found,) = (value for name, _, value in pair.parties[role].metrics.figures() if name == wanted)
    return found


async def hindrances(pair: Pair, role: int) -> list[str]:
    return [check.check for check in await pair.parties[role].readiness() if not check.ok]
