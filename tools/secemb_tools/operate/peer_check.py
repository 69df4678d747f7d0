"""The connection to server 1, tested before the first round."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx

from secemb_party.errors import LedgerError
from secemb_party.ledger import Ledger
from secemb_party.peer_messages import StandingMessage
from secemb_party.settings import Settings
from secemb_server0.app import peer_client
from secemb_server0.peer_problem import explain
from secemb_tools.operate.certificate import hosts, read_certificate
from secemb_tools.operate.finding import Finding, fail, ok, warn
from secemb_tools.operate.task_files import read_task

_LARGEST_SKEW = 10.0  # seconds; tickets and deadlines are in seconds since 1970


async def check_peer(settings: Settings) -> AsyncIterator[Finding]:
    """Call server 1 as server 0 will, and compare its answer with this server's settings."""
    if settings.role == 1:
        yield ok("peer", "server 0 calls this server: its operator's secemb check tests the connection")
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
            fail("same task", "server 1 has another task", "give both servers the files of one secemb task create")
        )
    return [*found, *_clock(answer)]


async def _same_model(settings: Settings, standing: StandingMessage) -> Finding | None:
    """Compare the published models; one of the servers may be about to publish what the other has."""
    try:
        async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
            known = await ledger.versions(read_task(settings.task.file).task_id)
    except LedgerError:
        return None  # never started, or named elsewhere
    here = {one.version: one.digest.hex() for one in known}
    newest = max(here, default=0)
    if not here or here.get(standing.version) == standing.digest:
        return ok("same model", f"server 1 has published version {standing.version}, the same as here")
    older = "this server's" if standing.version > newest else "server 1's"
    text = f"server 1 has published version {standing.version}, the newest here is {newest}: {older} ledger is older"
    if standing.version in here:
        text = f"the two servers have different models as version {standing.version}"
    return fail("same model", text, "see Backups in docs/operating.md: a ledger was restored, or a file replaced")


def _clock(answer: httpx.Response) -> list[Finding]:
    if (date := answer.headers.get("date")) is None:
        return []
    skew = abs((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds())
    if skew > _LARGEST_SKEW:
        return [warn("clock", f"the two clocks differ by {skew:.0f} seconds", "synchronise both with NTP")]
    return [ok("clock", "the two clocks agree")]
