"""Both servers of a simulated pair, and an operator's browser at each, without a network."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.operators import Operator, OperatorRole, encode, hash_of

TOKEN, READ_ONLY, ENROL = "admin's token of the tests", "onlooker's token of the tests", "backend's token of the tests"
OPERATORS = {"admin": (TOKEN, "admin"), "onlooker": (READ_ONLY, "read-only"), "backend": (ENROL, "enrol")}


class Desk:
    """Both servers, and an operator's browser at each."""

    def __init__(self, pair: Pair) -> None:
        assert pair.operators is not None, "a pair for a desk has operators: `a_pair(operators=file_of_operators())`"
        self.pair, self.operators = pair, pair.operators
        apps = pair.server0.operator, pair.server1.operator
        self.apps = [app for app in apps if app is not None]

    def browser(self, role: int, scheme: str = "http") -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.apps[role]), base_url=f"{scheme}://server{role}")

    @asynccontextmanager
    async def logged_in(self, role: int, token: str = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
        async with self.browser(role) as browser:
            answer = await browser.post("/ui/login", data={"token": token})
            assert answer.status_code == 303
            yield browser


def file_of_operators() -> bytes:
    return encode([an_operator(name, *of) for name, of in OPERATORS.items()])


def an_operator(name: str, token: str, role: str) -> Operator:
    return Operator(name=name, role=OperatorRole(role), token_hash=hash_of(token), created_at=0.0)


@asynccontextmanager
async def a_desk(**task: Any) -> AsyncIterator[Desk]:
    """Run a pair of servers that have had one round of two devices."""
    async with a_pair(operators=file_of_operators(), **task) as pair:
        if not pair.open_enrolment:
            for power in range(2):
                await pair.enrol(f"first {power}")
        await pair.step()
        for power in range(2):
            token = None if pair.open_enrolment else f"first {power}"
            await a_device(pair, power, token=token).take_part()
        await pair.finish()
        yield Desk(pair)


async def form_token(browser: httpx.AsyncClient) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', (await browser.get("/ui")).text)
    assert found is not None
    return found[1]
