"""Someone who cannot connect because of a certificate or a protocol is told which, at once."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.authority import Authority
from tests.unit.loopback import Served, answer, serving
from tests.unit.test_sdk_transport import BOTH, GET, Carry

from secemb_sdk import Device, NotNow
from secemb_sdk.errors import CertificateError, UnavailableError
from secemb_sdk.steps import Answer, Lost
from secemb_tools.device import Membership, join_task
from secemb_tools.errors import OperationError, UnreachableError
from secemb_tools.operate.operator_api import OperatorClient

TASK = "ab" * 32


@dataclass(frozen=True)
class Fault:
    """A server whose certificate or protocol is not what its address promises."""

    identity: Callable[[Authority, Authority], Path | None]  # of the trusted authority and of another one
    scheme: str
    says: str


FAULTS = {
    "unknown authority": Fault(lambda _, other: other.issue_both(), "https", "unknown authority"),
    "its own authority": Fault(lambda _, other: self_signed(other), "https", "unknown authority"),
    "another host": Fault(lambda own, _: own.issue_both("elsewhere.example"), "https", "for a different host name"),
    "another address": Fault(lambda own, _: own.issue_both("127.0.0.2"), "https", "for a different host name"),
    "expired": Fault(lambda own, _: own.issue_both(days=(-3, -1)), "https", "an expired certificate"),
    "not valid yet": Fault(lambda own, _: own.issue_both(days=(1, 3)), "https", "is not valid yet"),
    "no authority in between": Fault(lambda own, _: in_between(own).issue_both(), "https", "unknown authority"),
    "plain HTTP": Fault(lambda *_: None, "https", "does not use TLS on this port"),
    "TLS": Fault(lambda own, _: own.issue_both(), "http", "use https:// instead of http://"),
}
EACH = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))


def self_signed(authority: Authority) -> Path:
    alone = Authority(authority.file.parent, "alone")
    return alone.issue_both()


def in_between(parent: Authority) -> Authority:
    return Authority(parent.file.parent, "between", parent)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def faulty(fault: Fault, authority: Authority) -> Iterator[Served]:
    other = Authority(authority.file.parent, "other")
    with serving(answer(b"{}"), identity=fault.identity(authority, other)) as server:
        server.url = f"{fault.scheme}://{server.url.partition('://')[2]}"
        yield server


@BOTH
@EACH
def test_a_device_hears_what_is_wrong_and_the_server_hears_nothing(
    carry: Carry, fault: Fault, authority: Authority
) -> None:
    with faulty(fault, authority) as server:
        found = carry(server.url, GET, ca=authority.file)
        assert isinstance(found, Lost)
        assert found.untrusted
        assert fault.says in found.reason
        assert b"thing" not in server.everything


@EACH
def test_an_operator_hears_what_is_wrong(fault: Fault, authority: Authority) -> None:
    with faulty(fault, authority) as server, OperatorClient(server.url, "token", authority.file) as client:
        for call in (client.readiness, lambda: client.get("overview")):
            with pytest.raises(OperationError, match=fault.says) as raised:
                call()
            assert not isinstance(raised.value, UnreachableError)  # `status --watch` would wait for it
        assert b"token" not in server.everything


@EACH
def test_nothing_is_tried_again_that_only_a_person_can_repair(
    fault: Fault, authority: Authority, tmp_path: Path
) -> None:
    fine = authority.issue_both()
    with faulty(fault, authority) as zero, serving(answer(b"{}"), identity=fine) as one:
        membership = Membership(servers=(zero.url, one.url), task=TASK, ca=authority.file)
        with pytest.raises(CertificateError, match=f"server 0 .*{fault.says}"):
            join_task(tmp_path / "home", membership, None)
        assert not (tmp_path / "home").exists()
        probes = 1 if fault.scheme == "http" else 0  # what speaks TLS is found by speaking it
        assert len(zero.received) == 1 + probes


def test_a_device_that_takes_part_comes_back_later(authority: Authority, tmp_path: Path) -> None:
    async def contribute(urls: tuple[str, str]) -> object:
        async with Device.open(home=tmp_path / "home", servers=urls, task=TASK, ca=authority.file) as device:
            return await device.contribute()

    with faulty(FAULTS["expired"], authority) as zero, faulty(FAULTS["expired"], authority) as one:
        outcome = asyncio.run(contribute((zero.url, one.url)))
    assert isinstance(outcome, NotNow)
    assert "server 0 has an expired certificate" in outcome.reason


@BOTH
def test_a_server_with_a_certificate_of_the_given_authority_is_talked_to(carry: Carry, authority: Authority) -> None:
    with serving(answer(b"hello"), identity=authority.issue_both()) as server:
        assert isinstance(carry(server.url, GET, ca=authority.file), Answer)
        refused = carry(server.url, GET)
    assert isinstance(refused, Lost)
    assert "--ca" in refused.reason


@BOTH
def test_a_connection_that_breaks_is_not_a_matter_of_trust(carry: Carry, authority: Authority) -> None:
    found = carry("https://127.0.0.1:9", GET, ca=authority.file)
    assert isinstance(found, Lost)
    assert (found.untrusted, found.reason) == (False, "could not connect")
    with OperatorClient("http://127.0.0.1:9", "token") as client, pytest.raises(UnreachableError, match=found.reason):
        client.get("overview")
    with serving(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", cuts=True) as server:
        cut = carry(server.url, GET)
    assert isinstance(cut, Lost)
    assert (cut.untrusted, cut.reason) == (False, "the connection was lost")


def test_a_device_remembers_the_authority_it_has_joined_with(authority: Authority, tmp_path: Path) -> None:
    home = tmp_path / "device"
    home.mkdir(mode=0o700)
    remembered = {"servers": ["https://127.0.0.1:9", "https://127.0.0.1:10"], "task": TASK, "token": None}
    (home / "command.json").write_text(json.dumps(remembered | {"ca": str(authority.file)}))
    from secemb_tools.device import open_device

    assert open_device(home).ca == authority.file


def test_a_certificate_error_leaves_a_session_as_it_is() -> None:
    assert issubclass(CertificateError, UnavailableError)
