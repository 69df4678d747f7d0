"""The minimum cost of a request: uvicorn with an app that only reads the body and sends an answer.

Every request is expensive on a slow or busy machine, or with an interpreter built without optimisation. Relative to
this figure, measured in the same run, the cost of the servers can be compared from machine to machine.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep

import httpx
import uvicorn
from starlette.types import Receive, Scope, Send

from secemb_lab import child_environment
from secemb_tools.local.child import end_with_parent
from secemb_tools.local.process import HERE, free_ports, processor_seconds

_REQUESTS = 1000
_START_SECONDS = 30.0


def bare_request_ms(*, sent: int, received: int, connections: int) -> float:
    """Return the processor time of a request with this many bytes up and down, over many connections."""
    with running("secemb_lab.loadtest.bare", str(received)) as (url, pid):
        before = processor_seconds(pid)
        asyncio.run(_send(url, bytes(sent), connections, _REQUESTS // connections))
        spent = processor_seconds(pid) - before
    return 1e3 * spent / (_REQUESTS // connections * connections)


@contextmanager
def running(module: str, answer: str) -> Iterator[tuple[str, int]]:
    """Run a module as a server, with a port and a second argument; yield its address and its process."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", module, str(port), answer, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=child_environment()) as service:
        try:
            _await_start(port)
            yield f"http://{HERE}:{port}", service.pid
        finally:
            service.terminate()


def _await_start(port: int) -> None:
    give_up = perf_counter() + _START_SECONDS
    while True:
        try:
            httpx.get(f"http://{HERE}:{port}", trust_env=False)
        except httpx.TransportError:
            if perf_counter() > give_up:
                raise
            sleep(0.1)
        else:
            return


async def _send(url: str, body: bytes, connections: int, times: int) -> None:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for _ in range(times):
                (await client.put(url, content=body)).raise_for_status()

        await asyncio.gather(*(one_after_the_other() for _ in range(connections)))


def serve(port: int, length: int) -> None:
    """Answer every request with this many bytes; this is the child process."""
    answer = bytes(length)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    uvicorn.run(app, host=HERE, port=port, log_config=None, access_log=False, proxy_headers=False, lifespan="off")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
