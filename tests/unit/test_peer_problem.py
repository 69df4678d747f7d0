"""Server 0's operator reads which certificate, address or token is wrong: in the log once, in readiness, in checks."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.unit.authority import Authority
from tests.unit.loopback import answer, serving

from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_server0.peer import HttpPeer
from secemb_server0.peer_transport import PeerClient, PeerTransport
from secemb_tools.local.process import free_ports

pytestmark = pytest.mark.asyncio
LONGEST_TEXT = 200  # of a value in the log


@dataclass(frozen=True)
class Fault:
    """What answers at server 1's address, and what server 0 says about it."""

    identity: Callable[[Authority, Authority], Path | None]  # of the pinned authority and of another one
    says: str
    fix: str


FAULTS = {
    "expired": Fault(lambda own, _: own.issue_both(days=(-3, -1)), "certificate has expired", "pair rotate"),
    "not valid yet": Fault(lambda own, _: own.issue_both(days=(1, 3)), "is not valid yet", "clocks"),
    "another host": Fault(lambda own, _: own.issue_both("127.0.0.2"), "for another host", "correct url"),
    "another name": Fault(lambda own, _: own.issue_both("elsewhere.example"), "for another host", "correct url"),
    "unknown authority": Fault(lambda _, other: other.issue_both(), "is not server 1", "pair import"),
    "no TLS": Fault(lambda *_: None, "does not speak TLS", "peer port"),
}


@asynccontextmanager
async def line_to(url: str, ca: Path) -> AsyncIterator[HttpPeer]:
    context = ssl.create_default_context(cafile=str(ca))
    transport = PeerTransport(lambda: context)
    async with PeerClient(url, transport=transport, bearer=lambda: "bearer", timeout=httpx.Timeout(5.0)) as client:
        yield HttpPeer(client, scratch=Path("unused"))


async def complaint(url: str, ca: Path) -> str:
    """Ask twice, and return what the caller is told."""
    async with line_to(url, ca) as line:
        with pytest.raises(PeerUnavailableError):
            await line.standing()
        with pytest.raises(PeerUnavailableError) as told:
            await line.standing()
    return str(told.value)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_a_wrong_certificate_is_named_once_with_what_to_do(
    fault: Fault, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = Authority(tmp_path), Authority(tmp_path, "other")
    with serving(answer(b"{}"), identity=fault.identity(own, other)) as server:
        said = await complaint(server.url.replace("http:", "https:"), own.file)
        assert b"bearer" not in server.everything
    assert fault.says in said
    assert fault.fix in said
    assert len(said) <= LONGEST_TEXT
    warnings = [record for record in caplog.records if "server 1 is not responding" in record.getMessage()]
    assert len(warnings) == 1
    assert fault.says in warnings[0].getMessage()


async def test_a_server_that_is_not_there_or_hangs_up_is_told_apart(tmp_path: Path) -> None:
    own = Authority(tmp_path)
    assert "nothing listens there" in await complaint(f"https://127.0.0.1:{free_ports(1)[0]}", own.file)
    assert "host name is unknown" in await complaint("https://server1.invalid", own.file)
    with serving(b"", identity=own.issue_both(), cuts=True) as server:
        assert "does not accept this server's certificate" in await complaint(server.url, own.file)


async def test_a_bearer_that_is_refused_is_told_as_server_1_puts_it(tmp_path: Path) -> None:
    own = Authority(tmp_path)
    problem = {"type": "urn:secemb:problem:unauthorized", "detail": "the bearer token is not server 0's"}
    reply = answer(json.dumps(problem).encode(), status="401 Unauthorized")
    with serving(reply, identity=own.issue_both()) as server:
        async with line_to(server.url, own.file) as line:
            with pytest.raises(PeerRefusedError, match="401: the bearer token is not server 0's"):
                await line.standing()
