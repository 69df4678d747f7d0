"""The ports of a server, as `secemb check` finds them: free, held by this server, or by something else."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

import httpx

from secemb_party.settings import Settings
from secemb_shared.errors import SecEmbError
from secemb_tools.operate.findings import Finding, fail, ok, warn
from secemb_tools.operate.task_files import read_task

_SECONDS = 3.0
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class Port(NamedTuple):
    """The address of one listener of a server."""

    name: str
    host: str
    port: int
    scheme: str = "http"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Return its address on this machine."""
        host = _HERE.get(self.host, self.host)
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"


def ports_of(settings: Settings) -> Iterator[Port]:
    """Yield the ports that a server listens on, the one for devices first."""
    for name, at in (("devices", settings.devices), ("operator", settings.operator)):
        if name == "devices" or settings.operator.tokens_file is not None:
            yield Port(f"{name} port", at.host, at.port, "http" if at.tls_cert is None else "https")
    yield Port("metrics port", settings.metrics.host, settings.metrics.port)
    if settings.role == 1 and settings.peer.host is not None and settings.peer.port is not None:
        yield Port("peer port", settings.peer.host, settings.peer.port, "https")


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each port."""
    ports = list(ports_of(settings))
    running = _runs(settings, ports[0])
    for port in ports:
        yield _check(port, ours=running and _is_ours(settings, port))


def _check(port: Port, *, ours: bool) -> Finding:
    family = socket.AF_INET6 if ":" in port.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((port.host, port.port))
    except OSError as error:
        text = f"{port}: {error.strerror}"
        if ours:
            return ok(port.name, f"{port} is held by this server, which is running")
        if _answers(port):
            fix = (
                "stop the other program or choose another port; nothing, if this server is running but does not answer"
            )
            return warn(port.name, text, fix)
        return fail(port.name, text, "choose an address of this machine and a free port above 1023")
    return ok(port.name, f"{port} is free")


def _runs(settings: Settings, devices: Port) -> bool:
    """Tell whether this server responds on its port for devices: one with its role and its task."""
    try:
        task = read_task(settings.task.file)
    except SecEmbError:
        return False  # reported elsewhere
    return _is_ours(settings, devices) and _ask(devices, f"/v1/tasks/{task.task_id.hex()}") is not None


def _is_ours(settings: Settings, port: Port) -> bool:
    """Tell whether a server of this role responds there; the peer port accepts only the other server."""
    if port.name == "peer port":
        return True
    answer = _ask(port, "/openapi.json")
    return answer is not None and answer["info"]["title"].startswith(f"SecEmb server {settings.role}")


def _ask(port: Port, path: str) -> "dict[str, dict[str, str]] | None":
    """Return the JSON object in a response from this machine, or None; the certificate is checked elsewhere."""
    try:
        answer = httpx.get(port.url + path, timeout=_SECONDS, verify=False, trust_env=False)  # noqa: S501
        found = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
    return found if isinstance(found, dict) and (path != "/openapi.json" or "info" in found) else None


def _answers(port: Port) -> bool:
    """Tell whether a process listens there."""
    try:
        with socket.create_connection((_HERE.get(port.host, port.host), port.port), timeout=_SECONDS):
            return True
    except OSError:
        return False
