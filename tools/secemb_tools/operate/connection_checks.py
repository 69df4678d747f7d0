"""Checks of connections in `secemb check`: the listeners of a server, and the line to server 1."""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from secemb_party.errors import LedgerError
from secemb_party.ledger import Ledger
from secemb_party.peer_messages import StandingMessage
from secemb_party.settings import Settings
from secemb_sdk.trust import is_loopback, make_context
from secemb_server0.app import peer_client
from secemb_server0.peer_problem import explain
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import hosts, read_certificate
from secemb_tools.operate.findings import Finding, fail, ok, warn
from secemb_tools.operate.port_checks import check_ports
from secemb_tools.operate.task_files import read_task

SOON = timedelta(days=30)
_LARGEST_SKEW = 10.0  # seconds; tickets and deadlines are in seconds since 1970


def check_listeners(settings: Settings, ca: Path | None) -> Iterator[Finding]:
    """Yield findings about certificates, addresses and ports; with `ca`, certificates must be issued by it."""
    for name, at in (("devices", settings.devices), ("operator", settings.operator)):
        if at.tls_cert is not None and at.tls_key is not None:
            yield _check_chain(f"{name} certificate", at.tls_cert, at.tls_key.path, ca)
        elif not is_loopback(at.host):
            yield warn(
                f"{name} TLS",
                f"{at.host}:{at.port} is served without TLS",
                f"set tls_cert and tls_key in [{name}], or allow only a proxy that terminates TLS to reach this port",
            )
    if not is_loopback(settings.metrics.host):
        yield warn(
            "metrics",
            f"anyone who can reach {settings.metrics.host}:{settings.metrics.port} can read them",
            "allow only Prometheus to reach this port",
        )
    if settings.devices.open_enrolment:
        yield warn(
            "enrolment", "open: anyone can fill a cohort", "set open_enrolment = false and run secemb token create"
        )
    yield from check_ports(settings)


def _check_chain(name: str, cert: Path, key: Path, ca: Path | None) -> Finding:
    found = check_dates(name, cert, "renew it with its issuer; the server loads the new files automatically")
    if found.status == "fail":
        return found
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(cert, key)
    except (OSError, ValueError):
        return fail(
            name, "the key does not belong to the certificate", f"copy both again from their issuer: {cert}, {key}"
        )
    if ca is None:
        return found
    try:
        _shake_hands(server, make_context("https://", ca=ca))
    except ssl.SSLError:
        fix = "append the intermediate certificates to the file, leaf first, or use another --ca"
        return fail(name, f"{cert} does not chain to a CA in {ca}", fix)
    return replace(found, text=f"{found.text}; chains to a CA in {ca}")


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let a client verify a server's certificate, in memory; the host name is not known here."""
    client.check_hostname = False
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(3):  # hello, certificate, verdict
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def check_dates(name: str, path: Path, fix: str) -> Finding:
    """Return whether a certificate is valid now and for a while; `fix` explains how to replace it."""
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


async def check_peer(settings: Settings) -> AsyncIterator[Finding]:
    """Call server 1 as server 0 will, and compare its answer with this server's settings."""
    if settings.role == 1:
        yield ok("peer", "server 0 calls this server; its operator can test the connection with secemb check")
        return
    host = urlsplit(settings.peer.url or "").hostname or ""
    names = hosts(read_certificate(settings.peer.peer_ca.read_bytes()))
    if host not in names:
        yield fail(
            "peer",
            f"server 1's certificate is for {', '.join(sorted(names))}, not {host}",
            "import its pair file again",
        )
        return
    try:
        async with peer_client(settings) as client:
            answer = await client.get("/peer/v1/standing", timeout=10.0)
    except (httpx.HTTPError, ssl.SSLError) as error:
        yield fail("peer", *explain(error))
        return
    for finding in _judge(settings, answer):
        yield finding
    if answer.status_code == 200:
        found = await _same_model(settings, StandingMessage.model_validate_json(answer.content))
        if found is not None:
            yield found


def _judge(settings: Settings, answer: httpx.Response) -> list[Finding]:
    if answer.status_code == 401:
        fix = "ask its operator to run secemb pair import with this server's pair file"
        return [fail("peer", "server 1 does not accept this server's bearer token", fix)]
    if answer.status_code != 200:
        return [fail("peer", f"server 1 answered {answer.status_code}", "see its log, and run secemb check there")]
    standing = StandingMessage.model_validate_json(answer.content)
    found = [ok("peer", f"mutual TLS and bearer token accepted; server 1 has published version {standing.version}")]
    if standing.task == read_task(settings.task.file).task_id.hex():
        found.append(ok("same task", "server 1 has the same task"))
    else:
        found.append(
            fail(
                "same task", "server 1 has another task", "give both servers the files from the same secemb task create"
            )
        )
    return [*found, *_clock(answer)]


async def _same_model(settings: Settings, standing: StandingMessage) -> Finding | None:
    """Compare the published models; one of the servers may be about to publish the other's version."""
    try:
        async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
            known = await ledger.versions(read_task(settings.task.file).task_id)
    except LedgerError:
        return None  # never started, or reported elsewhere
    here = {one.version: one.digest.hex() for one in known}
    newest = max(here, default=0)
    if not here or here.get(standing.version) == standing.digest:
        return ok("same model", f"server 1 has published version {standing.version}, the same as here")
    older = "this server's" if standing.version > newest else "server 1's"
    text = f"server 1 has published version {standing.version}, the newest here is {newest}: {older} ledger is older"
    if standing.version in here:
        text = f"the two servers have different models for version {standing.version}"
    return fail("same model", text, "see Backups in docs/operating.md: a ledger was restored, or a file replaced")


def _clock(answer: httpx.Response) -> list[Finding]:
    if (date := answer.headers.get("date")) is None:
        return []
    skew = abs((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds())
    if skew > _LARGEST_SKEW:
        return [warn("clock", f"the two clocks differ by {skew:.0f} seconds", "synchronise both with NTP")]
    return [ok("clock", "the two clocks agree")]
