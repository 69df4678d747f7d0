"""The listeners of a server, checked before it starts: certificates, addresses and ports."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from secemb_party.settings import Settings
from secemb_sdk.trust import is_loopback, make_context
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import read_certificate
from secemb_tools.operate.finding import Finding, fail, ok, warn

SOON = timedelta(days=30)


def check_listeners(settings: Settings, ca: Path | None) -> Iterator[Finding]:
    """Yield findings about certificates, addresses and ports; with `ca`, certificates must come from it."""
    for name, at in (("devices", settings.devices), ("operator", settings.operator)):
        if at.tls_cert is not None and at.tls_key is not None:
            yield _check_chain(f"{name} certificate", at.tls_cert, at.tls_key.path, ca)
        elif not is_loopback(at.host):
            yield warn(
                f"{name} TLS",
                f"{at.host}:{at.port} is served without TLS",
                f"set tls_cert and tls_key in [{name}], or let only a proxy that terminates TLS reach this port",
            )
    if not is_loopback(settings.metrics.host):
        yield warn(
            "metrics",
            f"anyone who reaches {settings.metrics.host}:{settings.metrics.port} can read them",
            "let only Prometheus reach this port",
        )
    if settings.devices.open_enrolment:
        yield warn("enrolment", "open: anyone can fill a cohort", "set open_enrolment = false, use secemb token create")
    yield from _check_ports(settings)


def _check_chain(name: str, cert: Path, key: Path, ca: Path | None) -> Finding:
    found = check_dates(name, cert, "renew it with its issuer; the server reads the new files by itself")
    if found.status == "fail":
        return found
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(cert, key)
    except (OSError, ValueError):
        return fail(name, "the key does not belong to the certificate", f"copy both from their issuer: {cert}, {key}")
    if ca is None:
        return found
    try:
        _shake_hands(server, make_context("https://", ca=ca))
    except ssl.SSLError:
        fix = "append the certificates of the authorities in between to the file, leaf first; or give another --ca"
        return fail(name, f"{cert} does not lead to an authority in {ca}", fix)
    return replace(found, text=f"{found.text}; leads to an authority in {ca}")


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let a client check a server's certificate, in memory; the host name is not known here."""
    client.check_hostname = False
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(3):  # hello, certificate, verdict
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def _check_ports(settings: Settings) -> Iterator[Finding]:
    yield _check_port("devices port", settings.devices.host, settings.devices.port)
    if settings.operator.tokens_file is not None:
        yield _check_port("operator port", settings.operator.host, settings.operator.port)
    yield _check_port("metrics port", settings.metrics.host, settings.metrics.port)
    if settings.role == 1 and settings.peer.host is not None and settings.peer.port is not None:
        yield _check_port("peer port", settings.peer.host, settings.peer.port)


def _check_port(name: str, host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        fix = "nothing, if this server is running already; otherwise stop the other program or choose another port"
        return (
            warn(name, f"{host}:{port}: {error.strerror}", fix)
            if _answers(host, port)
            else fail(
                name, f"{host}:{port}: {error.strerror}", "choose an address of this machine and a free port above 1023"
            )
        )
    return ok(name, f"{host}:{port} is free")


def _answers(host: str, port: int) -> bool:
    """Tell whether something listens there."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    try:
        with socket.create_connection((here, port), timeout=2):
            return True
    except OSError:
        return False


def check_dates(name: str, path: Path, fix: str) -> Finding:
    """Return whether a certificate is valid now and for a while; `fix` says how to get another."""
    try:
        certificate = read_certificate(path.read_bytes())
    except OperationError:
        return fail(name, f"{path} is not a PEM certificate", fix)
    start, end, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if now < start:
        return fail(name, f"not valid before {start:%Y-%m-%d}", "set this machine's clock")
    if now > end:
        return fail(name, f"expired on {end:%Y-%m-%d}", fix)
    if end - now < SOON:
        return warn(name, f"expires on {end:%Y-%m-%d}", fix)
    return ok(name, f"valid until {end:%Y-%m-%d}")
