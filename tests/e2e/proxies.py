"""nginx and Caddy with the samples of deploy/proxy, in which only addresses and files are changed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.servers import wait_for
from tests.unit.authority import HERE

from secemb_tools.local.process import free_ports, is_free

SAMPLES = Path(__file__).parents[2] / "deploy" / "proxy"
_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin"
_STREAM = Path("/usr/lib/nginx/modules/ngx_stream_module.so")  # as Debian has it
_TOP = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{modules}
events {{ }}
http {{
    client_body_temp_path {folder}/never; proxy_temp_path {folder}/never;
    fastcgi_temp_path {folder}/never; uwsgi_temp_path {folder}/never; scgi_temp_path {folder}/never;
    {sites}
}}
{stream}
"""


def find(program: str, environment: Mapping[str, str]) -> str | None:
    """Return where a proxy is, or None; with PROXY_TESTS=required its absence is a failure, not a skip."""
    found = shutil.which(program, path=environment.get("PATH", os.defpath) + ":/usr/sbin")
    if found is None and environment.get("PROXY_TESTS") == "required":
        raise RuntimeError(
            f"there is no {program}: apt-get install {program}; build/{program}.log may say why there is none"
        )
    return found


NGINX, CADDY = find("nginx", os.environ), find("caddy", os.environ)
needs_nginx = pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx libnginx-mod-stream")
needs_caddy = pytest.mark.skipif(CADDY is None, reason="there is no Caddy: apt-get install caddy")


@dataclass(frozen=True)
class Site:
    """A server behind a proxy: its port, its public port, and the certificate that devices see."""

    server: int
    public: int
    cert: Path
    key: Path

    @property
    def url(self) -> str:
        return f"https://{HERE}:{self.public}"


def new_site(server: int, identity: tuple[Path, Path]) -> Site:
    return Site(server, free_ports(1)[0], *identity)


@contextmanager
def nginx(folder: Path, sites: list[Site], peer: tuple[int, int] | None = None) -> Iterator[None]:
    """Run nginx; with `peer`, a port that leads to another one as in nginx-peer.conf."""
    folder.mkdir()
    stream = (
        ""
        if peer is None
        else _changed(
            "nginx-peer.conf", {r"listen 8441": f"listen {HERE}:{peer[0]}", r"192\.0\.2\.1:8441": f"{HERE}:{peer[1]}"}
        )
    )
    modules = f"load_module {_STREAM};" if _STREAM.exists() else ""
    text = _TOP.format(folder=folder, modules=modules, sites="\n".join(map(_nginx_site, sites)), stream=stream)
    path = folder / "nginx.conf"
    path.write_text(text)
    ports = [site.public for site in sites] + ([peer[0]] if peer else [])
    with _running([NGINX or "", "-p", str(folder), "-c", str(path)], folder, ports):
        yield


@contextmanager
def caddy(folder: Path, sites: list[Site]) -> Iterator[None]:
    """Run Caddy."""
    folder.mkdir()
    path = folder / "Caddyfile"
    texts = [_caddy_site(site) for site in sites]
    # One file has one block of options.
    options = texts[0][: texts[0].index("\nhttps://")].replace("{\n\tservers", "{\n\tadmin off\n\tservers", 1)
    path.write_text(options + "".join(text[text.index("\nhttps://") :] for text in texts))
    command = [CADDY or "", "run", "--config", str(path), "--adapter", "caddyfile"]
    with _running(command, folder, [site.public for site in sites]):
        yield


def _nginx_site(site: Site) -> str:
    return _changed(
        "nginx.conf",
        {
            r"secemb_devices": f"secemb_devices_{site.server}",
            r"127\.0\.0\.1:8440": f"{HERE}:{site.server}",
            r"listen 443 ssl": f"listen {HERE}:{site.public} ssl",
            r"/etc/secemb/tls/devices\.crt": str(site.cert),
            r"/etc/secemb/secrets/devices\.key": str(site.key),
        },
    )


def _caddy_site(site: Site) -> str:
    changes = {
        r"127\.0\.0\.1:8440": f"{HERE}:{site.server}",
        r"server0\.example\.org \{": f"https://{HERE}:{site.public} {{\n\ttls {site.cert} {site.key}",
    }
    if _caddy_version() < (2, 6, 3):
        changes[r"request_buffers 16MB"] = "buffer_requests"
    return _changed("Caddyfile", changes)


def _caddy_version() -> tuple[int, ...]:
    said = subprocess.run([CADDY or "", "version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:3]))


def _changed(name: str, changes: Mapping[str, str]) -> str:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        text, count = re.subn(old, new, text)
        assert count, f"{name} has no {old}"
    return text


@contextmanager
def _running(command: list[str], folder: Path, ports: list[int]) -> Iterator[None]:
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | {"HOME": str(folder), "PATH": _PATH}
        )

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        return not any(map(is_free, ports))

    try:
        wait_for(f"the proxy starts, see {log}", listens)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
