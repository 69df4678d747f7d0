"""The samples in deploy/proxy, in real proxies: devices take part through them, and reach nothing else."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.e2e.place import RUNNING
from tests.e2e.proxies import NGINX, SAMPLES, Site, caddy, find, needs_caddy, needs_nginx, new_site, nginx
from tests.e2e.servers import wait_for
from tests.unit.authority import HERE, Authority
from tests.unit.loopback import Served, answer, serving

from secemb_sdk import Contributed, Device
from secemb_tools.local import Pair
from secemb_tools.local.process import free_ports

Proxy = Callable[[Path, list[Site]], AbstractContextManager[None]]
BOTH = pytest.mark.parametrize(
    "proxy", [pytest.param(nginx, marks=needs_nginx), pytest.param(caddy, marks=needs_caddy)], ids=["nginx", "caddy"]
)
TASK = replace(RUNNING, join_seconds=300, upload_seconds=600)
PUBLIC = ("/healthz", "/v1/tasks/00", "/v1/rounds/00")
HIDDEN = ("/", "/ui", "/ui/login", "/metrics", "/readyz", "/openapi.json", "/v1/operator/overview", "/peer/v1/standing",
          "/v1/tasks/../operator/overview", "//metrics", "/v1/tasks%2f..%2f..%2fmetrics")  # fmt: skip


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def in_front(proxy: Proxy, authority: Authority, folder: Path) -> Iterator[tuple[Site, Served]]:
    """Run a proxy in front of a server that answers everything alike, and remembers what it was sent."""
    with serving(answer(b"hello")) as server:
        site = new_site(int(server.url.rsplit(":", 1)[1]), authority.issue())
        with proxy(folder / "proxy", [site]):
            yield site, server


async def take_part(pair: Pair, urls: tuple[str, str], ca: Path, home: Path, transport: str) -> object:
    async with Device.open(
        home=home,
        servers=urls,
        task=pair.task.task_id.hex(),
        ca=ca,
        transport="relayed" if transport == "relayed" else "direct",
    ) as device:
        device.log_many({3: 5.0, 17: 1.0, 90: 4.0})
        while not isinstance(outcome := await device.contribute(), Contributed):
            assert "certificate" not in outcome.reason
            await asyncio.sleep(0.2)
        assert await device.recommend(k=3)
        return outcome


def check_rounds(pair: Pair, sites: tuple[Site, Site], ca: Path, folder: Path) -> None:
    """Let two devices take part through the proxies, one of them through server 0 alone."""
    urls = sites[0].url, sites[1].url

    async def both() -> None:
        await asyncio.gather(
            *(take_part(pair, urls, ca, folder / transport, transport) for transport in ("relayed", "direct"))
        )

    asyncio.run(both())
    # Server 1 publishes first.
    wait_for("the round is published", lambda: pair.servers[0].ask("rounds")[-1]["state"] == "published")
    assert pair.servers[1].ask("overview")["model_version"] >= 1


@needs_nginx
def test_rounds_run_through_nginx_between_the_servers_too(authority: Authority, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "pair", TASK, relayed=True)
    pair.peer_via = free_ports(1)[0]
    sites = [new_site(server.ports.devices, authority.issue()) for server in pair.servers]
    with nginx(tmp_path / "proxy", sites, peer=(pair.peer_via, pair.peer_port)), pair.running():
        check_rounds(pair, (sites[0], sites[1]), authority.file, tmp_path)
    assert not (tmp_path / "proxy" / "never").is_dir() or not any((tmp_path / "proxy" / "never").rglob("*"))


@needs_caddy
def test_rounds_run_through_caddy(authority: Authority, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "pair", TASK, relayed=True)
    sites = [new_site(server.ports.devices, authority.issue()) for server in pair.servers]
    with caddy(tmp_path / "proxy", sites), pair.running():
        check_rounds(pair, (sites[0], sites[1]), authority.file, tmp_path)


@BOTH
def test_only_the_paths_of_devices_lead_to_the_server(proxy: Proxy, authority: Authority, tmp_path: Path) -> None:
    with in_front(proxy, authority, tmp_path) as (site, server):
        found = {path: status_of(site, authority, path) for path in (*PUBLIC, *HIDDEN)}
    assert {path for path, status in found.items() if status == 200} == set(PUBLIC), found
    for path in ("metrics", "operator", "readyz", "openapi"):
        assert path.encode() not in server.everything


def status_of(site: Site, authority: Authority, path: str) -> int:
    """Ask for a path as it is: clients would tidy it up."""
    with connected(site, authority) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nhost: {HERE}\r\nconnection: close\r\n\r\n".encode())
        return int(line.recv(64).split()[1])


@contextmanager
def connected(site: Site, authority: Authority) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection((HERE, site.public), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=HERE) as line,
    ):
        yield line


@BOTH
def test_a_slow_body_takes_no_place_at_the_server(proxy: Proxy, authority: Authority, tmp_path: Path) -> None:
    body, path = b"k" * 300_000, f"/v1/rounds/{'ab' * 32}/sessions/{'cd' * 16}/keys"
    head = f"PUT {path} HTTP/1.1\r\nhost: {HERE}\r\ncontent-length: {len(body)}\r\nsecemb-ticket: abc\r\n\r\n"
    with in_front(proxy, authority, tmp_path) as (site, server), connected(site, authority) as line:
        line.sendall(head.encode() + body[:200_000])
        assert status_of(site, authority, "/healthz") == 200  # the proxy has had time to pass it on
        assert b"PUT" not in server.everything
        line.sendall(body[200_000:])
        assert line.recv(64).split()[1] == b"200"
        (got,) = [one for one in server.received if b"PUT" in one]
    start, _, rest = got[got.index(b"PUT") :].partition(b"\r\n\r\n")
    assert rest[: len(body)] == body
    assert b"secemb-ticket: abc" in start.lower()
    assert not {b"x-forwarded-for", b"x-real-ip", b"forwarded"} & {
        line.partition(b":")[0] for line in start.lower().splitlines()
    }


@BOTH
def test_a_body_that_no_message_has_is_refused_by_the_proxy(proxy: Proxy, authority: Authority, tmp_path: Path) -> None:
    with in_front(proxy, authority, tmp_path) as (site, server):
        context = ssl.create_default_context(cafile=str(authority.file))
        found = httpx.put(
            f"{site.url}/v1/rounds/00/sessions/00/keys", content=bytes(17_000_000), verify=context, timeout=60
        ).status_code
        assert found == 413 or (proxy is caddy and found == 502)  # Caddy 2.6.2, which buffers, says 502
        # Caddy passes the beginning on, which the server refuses by its length.
        assert proxy is caddy or b"PUT" not in server.everything


@needs_nginx
def test_nginx_finds_a_fault_in_a_sample(authority: Authority, tmp_path: Path) -> None:
    """Planted: what the tests above run is checked by the proxy itself."""
    path = tmp_path / "nginx.conf"
    good = (SAMPLES / "nginx.conf").read_text().replace("/etc/secemb/tls/devices.crt", str(authority.issue()[0]))
    path.write_text(f"pid {tmp_path}/pid;\nevents {{ }}\nhttp {{\n{good.replace('gzip off', 'gzip perhaps')}\n}}\n")
    done = subprocess.run([NGINX or "", "-t", "-c", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert 'invalid value "perhaps"' in done.stderr


def test_a_proxy_that_is_required_is_not_skipped(tmp_path: Path) -> None:
    assert find("no-such-proxy", {"PATH": str(tmp_path)}) is None
    with pytest.raises(RuntimeError, match="apt-get install no-such-proxy"):
        find("no-such-proxy", {"PATH": str(tmp_path), "PROXY_TESTS": "required"})
    script = (SAMPLES.parents[1] / ".ci" / "run").read_text()
    assert 0 < script.index("PROXY_TESTS=required") < script.index("make test")
