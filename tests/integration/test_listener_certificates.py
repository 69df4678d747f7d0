"""A listener's certificates change while it serves: new connections get the new ones, old connections live on."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.unit.authority import HERE, Authority

from secemb_party import file_watch
from secemb_party.http.app import new_app
from secemb_party.http.listeners import Listener, serve
from secemb_party.metrics import Metrics
from secemb_tools.local.process import free_ports

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.0)


class Files:
    """The files that a listener's settings name."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.client_ca = (folder / name for name in ("now.crt", "now.key", "clients.pem"))

    def show(self, issued: tuple[Path, Path]) -> None:
        """Show this certificate from now on; the key first, as `secemb pair switch` does."""
        shutil.copy2(issued[1], self.key)
        shutil.copy2(issued[0], self.cert)


@asynccontextmanager
async def listening(files: Files, *, asks: bool = False) -> AsyncIterator[str]:
    [port] = free_ports(1)
    app = new_app("Test", "A listener.", metrics=Metrics(), routers=[])
    listener = Listener(
        app=app, host=HERE, port=port, cert=files.cert, key=files.key, client_ca=files.client_ca if asks else None
    )
    stop = asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()

    served = asyncio.create_task(serve([listener], until_stopped))
    try:
        yield f"https://{HERE}:{port}/healthz"
    finally:
        stop.set()
        await served


async def ask(url: str, ca: Path, identity: tuple[Path, Path] | None = None) -> int:
    context = ssl.create_default_context(cafile=str(ca))
    if identity is not None:
        context.load_cert_chain(*identity)
    async with httpx.AsyncClient(verify=context) as client:
        return (await client.get(url)).status_code


async def refused(url: str, ca: Path, identity: tuple[Path, Path] | None = None) -> bool:
    try:
        await ask(url, ca, identity)
    except httpx.TransportError:
        return True
    return False


async def started(url: str, ca: Path, identity: tuple[Path, Path] | None = None) -> None:
    for _ in range(500):
        if not await refused(url, ca, identity):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the listener did not start")


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on(tmp_path: Path) -> None:
    old, new, files = Authority(tmp_path, "old"), Authority(tmp_path, "new"), Files(tmp_path)
    files.show(old.issue())
    async with listening(files) as url:
        await started(url, old.file)
        async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=str(old.file))) as client:
            assert (await client.get(url)).status_code == 200
            files.show(new.issue())
            assert await ask(url, new.file) == 200
            assert await refused(url, old.file)
            assert (await client.get(url)).status_code == 200  # on the connection that it has


async def test_a_certificate_without_its_key_is_not_shown(tmp_path: Path) -> None:
    authority, files = Authority(tmp_path), Files(tmp_path)
    files.show(authority.issue())
    async with listening(files) as url:
        await started(url, authority.file)
        shutil.copy2(Authority(tmp_path, "other").issue()[0], files.cert)
        assert await ask(url, authority.file) == 200
        files.key.chmod(0o644)
        files.show(Authority(tmp_path, "third").issue())
        files.key.chmod(0o644)  # others could read it
        assert await ask(url, authority.file) == 200


async def test_clients_are_accepted_and_expelled_without_a_restart(tmp_path: Path) -> None:
    authority, files = Authority(tmp_path), Files(tmp_path)
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    one, two = first.issue(), second.issue()
    files.show(authority.issue())
    files.client_ca.write_bytes(first.pem)
    async with listening(files, asks=True) as url:
        await started(url, authority.file, one)
        assert await refused(url, authority.file, two)
        assert await refused(url, authority.file)
        files.client_ca.write_bytes(first.pem + second.pem)
        assert [await ask(url, authority.file, identity) for identity in (one, two)] == [200, 200]
        files.client_ca.write_bytes(second.pem)
        assert await refused(url, authority.file, one)
        assert await ask(url, authority.file, two) == 200
        assert await refused(url, authority.file)
