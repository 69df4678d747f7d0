"""The cost for server 0 of turning a device away, compared with a bare FastAPI route and a bare uvicorn.

The bare route has the same path, reads the body and returns the same few bytes: nothing is checked, counted or logged.
The bare uvicorn has no framework at all. All three get the same requests in turn, in the same run.
"""

import asyncio
import secrets
import sys

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from typing_extensions import TypedDict

from secemb_lab.loadtest.bare import running
from secemb_lab.loadtest.fleet import join, keys_of, send
from secemb_tools.errors import OperationError
from secemb_tools.local import Pair
from secemb_tools.local.child import end_with_parent
from secemb_tools.local.process import HERE, processor_seconds

GOAL = 2.0  # multiple of the bare uvicorn; little of it exceeds a FastAPI route
_TURNS, _CONNECTIONS = 4, 10  # each service is called in turns
_LEAST_SECONDS = 0.1  # CPU seconds for the cheapest, because the system counts in hundredths


class NotNowCost(TypedDict):
    """Processor milliseconds of a request."""

    not_now_ms: float
    bare_route_ms: float
    bare_uvicorn_ms: float


def measure_not_now(pair: Pair, *, requests: int) -> NotNowCost:
    """Take all seats of the round, turn as many devices away, and return the cost of each."""
    path, server = f"/v1/tasks/{pair.task.task_id.hex()}/join", pair.servers[0]
    body, spent, times = asyncio.run(_fill(pair, server.url + path)), [0.0] * 3, 0
    with (
        running("secemb_lab.loadtest.not_now", body.decode()) as route,
        running("secemb_lab.loadtest.bare", str(len(body))) as bare,
    ):
        turns = 0
        while turns < _TURNS or spent[2] < _LEAST_SECONDS:
            turns += 1
            for place, (url, pid) in enumerate(((server.url, server.pid), route, bare)):
                before = processor_seconds(pid)
                times += asyncio.run(_ask(url + path, max(requests // _TURNS, 100), status=200 if place == 2 else 202))
                spent[place] += processor_seconds(pid) - before
    own, routed, least = (3e3 * seconds / times for seconds in spent)
    return {"not_now_ms": own, "bare_route_ms": routed, "bare_uvicorn_ms": least}


async def _fill(pair: Pair, url: str) -> bytes:
    """Take all seats of the round, with keys and without updates; return the body of later requests."""
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        for _ in range(pair.task.cohort):
            joined = await join(client, pair)
            await send(client, pair, joined, keys_of(joined.session, joined.relay)[0])
        answer = (await client.post(url, json={"session": secrets.token_hex(16)})).raise_for_status()
    if answer.status_code != 202:
        raise OperationError("a full round let another device join; see server 0's log")
    return answer.content


async def _ask(url: str, requests: int, *, status: int) -> int:
    """Send at least this many requests, and return how many."""
    each = -(-requests // _CONNECTIONS)
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for _ in range(each):
                answer = await client.post(url, json={"session": secrets.token_hex(16)})
                if answer.status_code != status:
                    raise RuntimeError(f"expected {status}, got {answer.status_code}")

        await asyncio.gather(*(one_after_the_other() for _ in range(_CONNECTIONS)))
    return each * _CONNECTIONS


def serve(port: int, body: bytes) -> None:
    """Turn everyone away; this is the child process."""
    app = FastAPI()

    @app.post("/v1/tasks/{task}/join")
    async def join(task: str, request: Request) -> Response:
        await request.body()
        return Response(body, 202, {"retry-after": "60"}, "application/json")

    uvicorn.run(app, host=HERE, port=port, log_config=None, access_log=False, proxy_headers=False, lifespan="off")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))
    serve(int(sys.argv[1]), sys.argv[2].encode())
