"""What it costs server 0 to turn a device away, beside the least that a FastAPI route costs.

The bare service is uvicorn with FastAPI and one route of the same path, which reads the body and returns the same few
bytes: nothing is checked, counted or logged. Both get the same requests in turn, in the same run.
"""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from typing_extensions import TypedDict

from secemb_lab import child_environment
from secemb_lab.loadtest.bare import await_start
from secemb_tools.local import Pair
from secemb_tools.local.child import end_with_parent
from secemb_tools.local.process import HERE, free_ports, processor_seconds

GOAL = 2.0  # times the bare request
_TURNS, _CONNECTIONS = 4, 10  # each service is asked in turns


class NotNowCost(TypedDict):
    """Processor milliseconds of a request."""

    not_now_ms: float
    bare_route_ms: float
    ratio: float


def measure_not_now(pair: Pair, *, requests: int) -> NotNowCost:
    """Take all places of the round, turn as many devices away, and return what each of them costs."""
    path, server = f"/v1/tasks/{pair.task.task_id.hex()}/join", pair.servers[0]
    body, spent, times = asyncio.run(_fill(server.url + path, pair.task.cohort)), [0.0, 0.0], 0
    with _bare(body) as (bare_url, bare_pid):
        for _ in range(_TURNS):
            for place, (url, pid) in enumerate(((server.url, server.pid), (bare_url, bare_pid))):
                before = processor_seconds(pid)
                times += asyncio.run(_ask(url + path, requests // _TURNS))
                spent[place] += processor_seconds(pid) - before
    own, bare = (2e3 * seconds / times for seconds in spent)
    return {"not_now_ms": own, "bare_route_ms": bare, "ratio": own / bare}


async def _fill(url: str, places: int) -> bytes:
    """Take all places of the round; return the body for who comes later."""
    taken = 0
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            answer = (await client.post(url, json={"session": secrets.token_hex(16)})).raise_for_status()
            if answer.status_code == 200:
                taken += 1
            elif taken == places:
                return answer.content
            else:
                await asyncio.sleep(0.2)  # no round is open yet


async def _ask(url: str, requests: int) -> int:
    """Ask at least this often, and return how often."""
    each = -(-requests // _CONNECTIONS)
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for _ in range(each):
                answer = await client.post(url, json={"session": secrets.token_hex(16)})
                if answer.status_code != 202:
                    raise RuntimeError(f"expected 202, got {answer.status_code}")

        await asyncio.gather(*(one_after_the_other() for _ in range(_CONNECTIONS)))
    return each * _CONNECTIONS


@contextmanager
def _bare(body: bytes) -> Iterator[tuple[str, int]]:
    """Run the bare service; yield its address and its process."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "secemb_lab.loadtest.not_now", str(port), body.decode(), str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=child_environment()) as service:
        try:
            await_start(port)
            yield f"http://{HERE}:{port}", service.pid
        finally:
            service.terminate()


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
