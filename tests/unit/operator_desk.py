"""Both servers of a simulated pair, and an operator's browser at each, without a network."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.devices.scripted import a_device
from tests.simulation.pair import PEER_TOKEN, TICKET_KEY, Pair, a_pair

from secemb_party.operators import Operator, OperatorRole, Operators, encode, hash_of
from secemb_server0.app import create_server0
from secemb_server1.app import create_server1

TOKEN, READ_ONLY, ENROL = "admin's token of the tests", "onlooker's token of the tests", "backend's token of the tests"
OPERATORS = {"admin": (TOKEN, "admin"), "onlooker": (READ_ONLY, "read-only"), "backend": (ENROL, "enrol")}


class Desk:
    """Both servers, and an operator's browser at each."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        file = pair.folder / "operators.json"
        file.write_bytes(encode([an_operator(name, *of) for name, of in OPERATORS.items()]))
        self.operators = Operators(file)
        self.server0 = create_server0(
            pair.parties[0], pair.server0.leader._peer, TICKET_KEY, open_enrolment=True, operators=self.operators
        )
        peer_hash = hashlib.sha256(PEER_TOKEN.encode()).digest()
        self.server1 = create_server1(pair.parties[1], lambda: [peer_hash], operators=self.operators)
        apps = self.server0.operator, self.server1.operator
        self.apps = [app for app in apps if app is not None]

    def browser(self, role: int, scheme: str = "http") -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.apps[role]), base_url=f"{scheme}://server{role}")

    @asynccontextmanager
    async def logged_in(self, role: int, token: str = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
        async with self.browser(role) as browser:
            answer = await browser.post("/ui/login", data={"token": token})
            assert answer.status_code == 303
            yield browser


def an_operator(name: str, token: str, role: str) -> Operator:
    return Operator(name=name, role=OperatorRole(role), token_hash=hash_of(token), created_at=0.0)


@asynccontextmanager
async def a_desk(**task: Any) -> AsyncIterator[Desk]:
    """Run a pair of servers that have had one round of two devices."""
    async with a_pair(**task) as pair:
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
