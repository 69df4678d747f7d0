"""The rounds of a local pair as both operators see them: counts, times and digests, but nothing about devices."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from secemb_tools.errors import RoundError
from secemb_tools.local import Pair

_PAUSE = 0.03
_TIMEOUT = 120.0  # seconds for a round to open or to end
_OPEN, _ENDED = ("open",), ("published", "aborted", "discarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One round, as both operators see it."""

    round: int
    kind: str
    joined: int
    retrieved: int
    uploaded: int
    matched: int
    dropped: int  # joined but not counted
    seconds: float
    version: int
    digest: str
    digests_equal: bool
    figures: dict[str, float] = field(default_factory=dict)  # of an evaluation
    sums: list[float] = field(default_factory=list)  # what they are based on
    window: dict[str, Any] = field(default_factory=dict)  # figures of the newest evaluations together


class RoundWatcher:
    """Asks both servers on behalf of their operators."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._event = pair, 0
        self._clients = [
            httpx.AsyncClient(
                base_url=f"{server.operator_url}/v1",
                headers={"authorization": f"Bearer {server.operator_token}"},
                trust_env=False,
                verify=server.verify,
                timeout=30.0,
            )
            for server in pair.servers
        ]

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()

    async def newest(self) -> dict[str, Any] | None:
        """Return server 0's newest round, if it has one."""
        try:
            answer = await self._clients[0].get("/operator/rounds", params={"limit": 1})
        except httpx.TransportError:
            return None
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found[0] if found else None

    async def until_open(self, number: int) -> None:
        """Wait until both servers announce this round."""
        async with _time_limit(f"round {number} did not open; see the servers' logs"):
            for role in (0, 1):
                await self._until(role, number, _OPEN)

    async def until_ended(self, number: int) -> RoundRecord:
        """Wait until the round has ended on both sides, and return its record."""
        async with _time_limit(f"round {number} did not end; see the servers' logs"):
            views = [await self._until(role, number, _ENDED) for role in (0, 1)]
        if any(view["state"] != "published" for view in views):
            raise RoundError(f"round {number} was {views[0]['state']}: {views[0]['reason'] or views[1]['reason']}")
        return await self._record(views)

    async def _record(self, views: list[dict[str, Any]]) -> RoundRecord:
        first, second = views
        versions = [await self._newest(role) for role in (0, 1)]
        same_list = first["list_digest"] == second["list_digest"]
        return RoundRecord(
            round=first["number"],
            kind=first["kind"],
            joined=first["admitted"],
            retrieved=min(view["keys"] for view in views),
            uploaded=min(view["updates"] for view in views),
            matched=first["counted"] or 0,
            dropped=first["admitted"] - (first["counted"] or 0),
            seconds=max(view["ended_at"] for view in views) - first["opened_at"],
            version=versions[0]["version"],
            digest=versions[0]["digest"],
            digests_equal=same_list and versions[0]["digest"] == versions[1]["digest"],
            **await self._result(first["number"]) if first["kind"] != "train" else {},
        )

    async def _until(self, role: int, number: int, states: tuple[str, ...]) -> dict[str, Any]:
        while True:
            view = await self._round(role, number)
            if view.get("state") in states:
                return view
            await asyncio.sleep(_PAUSE)

    async def _round(self, role: int, number: int) -> dict[str, Any]:
        try:
            answer = await self._clients[role].get(f"/operator/rounds/{number}")
        except httpx.TransportError:
            return {}  # retried until the time is up
        if answer.status_code == 404:
            return {}
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    async def _newest(self, role: int) -> dict[str, Any]:
        answer = await self._clients[role].get("/operator/models")
        published = [one for one in answer.raise_for_status().json() if one["published_at"] is not None]
        newest: dict[str, Any] = max(published, key=lambda one: one["version"])
        return newest

    async def _result(self, number: int) -> dict[str, Any]:
        """Return the figures of an evaluation or a survey from server 0's stream of events."""
        kind = ""
        async with self._clients[0].stream("GET", "/operator/events", params={"after": self._event}) as answer:
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self._event = int(value)
                elif name == "event":
                    kind = value
                elif name == "data" and kind == "result" and (found := json.loads(value))["round"] == number:
                    apart = {key: found.pop(key) for key in ("sums", "window") if key in found}
                    figures = {key: figure for key, figure in found.items() if key not in ("at", "round")}
                    return {"figures": figures, **apart}
        raise RoundError(f"server 0 has no result for round {number}")


@asynccontextmanager
async def _time_limit(words: str) -> AsyncIterator[None]:
    """Raise `RoundError` with this message when the time is up."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            yield
    except TimeoutError:
        raise RoundError(words) from None
