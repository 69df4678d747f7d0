"""The event loop of a server: clients that begin TLS and say nothing are cut off."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi import FastAPI
from tests.unit.authority import HERE, Authority

from secemb_party.http import event_loop
from secemb_party.http.listeners import Listener, serve
from secemb_tools.local.process import free_ports


async def is_cut(listener: Listener, *, within: float) -> bool:
    """Connect to a listener, send nothing, and tell whether it closes the connection."""
    stop = asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()

    served = asyncio.create_task(serve([listener], until_stopped))
    while True:
        with suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(HERE, listener.port)
            break
        await asyncio.sleep(0.02)
    try:
        async with asyncio.timeout(within):
            with suppress(ConnectionError):
                await reader.read()
        return True
    except TimeoutError:
        return False
    finally:
        writer.close()
        stop.set()
        await served


@pytest.mark.parametrize(("seconds", "within"), [(0.1, 20.0), (None, 1.0)], ids=["a deadline", "asyncio's minute"])
def test_a_client_that_begins_tls_and_says_nothing_is_cut_off(
    seconds: float | None, within: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "HANDSHAKE_SECONDS", seconds)
    cert, key = Authority(tmp_path).issue()
    [port] = free_ports(1)
    listener = Listener(app=FastAPI(), host=HERE, port=port, cert=cert, key=key)
    with asyncio.Runner(loop_factory=event_loop.EventLoop) as runner:
        assert runner.run(is_cut(listener, within=within)) is (seconds is not None)
