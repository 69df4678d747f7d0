"""Transports: what they carry, what they cut, and whom they refuse to talk to, over real sockets and real TLS."""

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.unit.loopback import answer, serving, write_identity

from secemb_sdk.errors import AddressError, PinError
from secemb_sdk.http import BlockingHttpTransport, HttpTransport
from secemb_sdk.steps import Answer, Lost, Request, Steps, drive_async, send
from secemb_sdk.trust import Authorities, Pins, check_address, key_digest

ELSEWHERE = "http://127.0.0.1:9"
GET = Request(server=0, method="GET", path="/v1/thing", headers={"secemb-ticket": "abc"}, most=100)
PUT = replace(GET, method="PUT", body=b"some bytes")

Carry = Callable[..., Answer | Lost]


def carry_async(url: str, request: Request, **settings: Any) -> Answer | Lost:
    async def carry() -> Answer | Lost:
        transport = HttpTransport((url, ELSEWHERE), **settings)
        try:
            return await transport.send(request)
        finally:
            await transport.aclose()

    return asyncio.run(carry())


def carry_blocking(url: str, request: Request, **settings: Any) -> Answer | Lost:
    transport = BlockingHttpTransport((url, ELSEWHERE), **settings)
    try:
        return transport.send_all((request,))[0]
    finally:
        transport.close()


BOTH = pytest.mark.parametrize("carry", [carry_async, carry_blocking], ids=["async", "blocking"])


@BOTH
def test_a_request_is_carried_as_it_is(carry: Carry) -> None:
    with serving(answer(b"hello", headers="ETag: x\r\n")) as server:
        found = carry(server.url, PUT)
    assert isinstance(found, Answer)
    assert (found.status, found.body, found.headers["etag"]) == (200, b"hello", "x")
    head, _, body = server.everything.partition(b"\r\n\r\n")
    assert body == b"some bytes"
    assert head.startswith(b"PUT /v1/thing HTTP/1.1\r\n")
    assert b"secemb-ticket: abc" in head.lower()
    assert b"accept-encoding: identity" in head.lower()


@BOTH
def test_a_path_of_the_address_is_kept(carry: Carry) -> None:
    with serving(answer()) as server:
        carry(server.url + "/behind/proxy/", GET)
    assert server.everything.startswith(b"GET /behind/proxy/v1/thing ")


@BOTH
def test_a_redirect_is_not_followed(carry: Carry) -> None:
    with serving(answer(b"elsewhere")) as other, serving(b"") as _:
        moved = answer(status="307 Temporary Redirect", headers=f"Location: {other.url}/v1/thing\r\n")
        with serving(moved) as server:
            found = carry(server.url, PUT)
        assert isinstance(found, Answer)
        assert found.status == 307
        assert other.everything == b""


@BOTH
@pytest.mark.parametrize("length", [None, 10_000], ids=["not announced", "announced"])
def test_an_answer_that_is_too_long_is_cut(carry: Carry, length: int | None) -> None:
    body = b"x" * 10_000
    reply = b"HTTP/1.1 200 OK\r\n\r\n" + body if length is None else answer(body)
    with serving(reply) as server:
        found = carry(server.url, GET)
    assert isinstance(found, Lost)
    assert found.reason == "the response is too long"
    assert (found.received > GET.most) == (length is None)  # who says so beforehand is not listened to


@BOTH
@pytest.mark.parametrize("cuts", [True, False], ids=["cut", "silent"])
def test_an_answer_that_ends_early_is_lost_and_what_came_of_it_counts(carry: Carry, cuts: bool) -> None:
    with serving(answer(b"half", length=90), cuts=cuts) as server:
        found = carry(server.url, replace(PUT, seconds=10.0 if cuts else 1.0))
    assert isinstance(found, Lost)
    assert (found.sent, found.received) == (len(PUT.body), len(b"half"))


@BOTH
def test_a_silent_server_is_given_up(carry: Carry) -> None:
    with serving(answer(), linger=30.0) as server:
        found = carry(server.url, replace(PUT, seconds=0.3))
    assert isinstance(found, Lost)
    assert (found.sent, found.received) == (len(PUT.body), 0)


@BOTH
def test_nobody_at_home_is_a_lost_request_of_which_nothing_was_sent(carry: Carry) -> None:
    found = carry(ELSEWHERE, PUT)
    assert isinstance(found, Lost)
    assert (found.sent, found.received) == (0, 0)


@BOTH
def test_a_long_body_arrives_whole(carry: Carry) -> None:
    body = bytes(range(256)) * 700 + b"rest"
    with serving(answer(b"hello")) as server:
        assert isinstance(carry(server.url, replace(PUT, body=body)), Answer)
    head, _, arrived = server.everything.partition(b"\r\n\r\n")
    assert arrived == body
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert b"transfer-encoding" not in head.lower()


DRIPS = {  # what is answered at once, and what follows drop by drop
    "from the beginning": (b"", answer(b"x" * 200)),
    "in the headers": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 40),
    "in the body": (answer(length=200), b"x" * 200),
}


@BOTH
@pytest.mark.parametrize("drip", DRIPS)
def test_an_answer_that_comes_drop_by_drop_is_given_up_in_time(carry: Carry, drip: str) -> None:
    """Each drop comes soon after the one before; all of them would take several times what the test allows."""
    reply, drops = DRIPS[drip]
    with serving(reply, drops=drops) as server:
        start = time.monotonic()
        found = carry(server.url, replace(PUT, most=1000, seconds=1.0))
        assert isinstance(found, Lost)
        assert time.monotonic() - start < 15.0


@BOTH
def test_a_request_that_nobody_reads_on_is_given_up_in_time(carry: Carry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the system takes the connection, and some of the bytes
        start, body = time.monotonic(), bytes(64 << 20)
        found = carry(f"http://127.0.0.1:{listener.getsockname()[1]}", replace(PUT, body=body, seconds=1.0))
        assert isinstance(found, Lost)
        assert time.monotonic() - start < 15.0
        assert found.sent is not None
        assert 0 < found.sent < len(body)


@BOTH
def test_proxies_of_the_environment_are_not_used(carry: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer()) as proxy, serving(answer(b"direct")) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        found = carry(server.url, GET)
    assert isinstance(found, Answer)
    assert found.body == b"direct"
    assert proxy.everything == b""


def test_a_cookie_is_not_kept() -> None:
    with serving(answer(headers="Set-Cookie: device=4711; Path=/\r\n")) as server:
        transport = BlockingHttpTransport((server.url, ELSEWHERE))
        for _ in range(2):
            assert isinstance(transport.send(GET), Answer)
        transport.close()
    assert server.everything.count(b"GET /v1/thing") == 2
    assert b"4711" not in server.everything


def test_closing_ends_the_wait_of_another_thread() -> None:
    with serving(answer(), linger=60.0) as server, ThreadPoolExecutor() as threads:
        transport = BlockingHttpTransport((server.url, ELSEWHERE))
        waiting = threads.submit(transport.send, GET)
        while not server.everything:
            time.sleep(0.01)
        transport.close()
        transport.close()
        with pytest.raises(CancelledError):
            waiting.result(timeout=30)


INTERRUPTED = """
import sys
from secemb_sdk.steps import Request
from secemb_sdk.http import BlockingHttpTransport
transport = BlockingHttpTransport((sys.argv[1], "http://127.0.0.1:9"))
try:
    transport.send(Request(server=0, method="GET", path="/"))
except KeyboardInterrupt:
    transport.close()
    print("interrupted and closed")
"""


def test_a_caller_who_waits_can_be_interrupted() -> None:
    with serving(answer(), linger=60.0) as server:
        program = [sys.executable, "-c", INTERRUPTED, server.url]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as waiting:
            while not server.everything and waiting.poll() is None:
                time.sleep(0.01)
            waiting.send_signal(signal.SIGINT)
            assert waiting.communicate(timeout=30)[0] == "interrupted and closed\n"


def send_both_async(urls: tuple[str, str], requests: tuple[Request, Request]) -> list[Answer | Lost]:
    def steps() -> Steps[list[Answer | Lost]]:
        return (yield from send(*requests))

    async def carry() -> list[Answer | Lost]:
        transport = HttpTransport(urls)
        try:
            return await drive_async(steps(), transport)
        finally:
            await transport.aclose()

    return asyncio.run(carry())


def send_both_blocking(urls: tuple[str, str], requests: tuple[Request, Request]) -> list[Answer | Lost]:
    transport = BlockingHttpTransport(urls)
    try:
        return transport.send_all(requests)
    finally:
        transport.close()


@pytest.mark.parametrize("send_both", [send_both_async, send_both_blocking], ids=["async", "blocking"])
def test_requests_that_belong_together_leave_together(send_both: Callable[..., list[Answer | Lost]]) -> None:
    gate = threading.Barrier(2, timeout=20)
    with serving(answer(b"0"), gate=gate) as zero, serving(answer(b"1"), gate=gate) as one:
        found = send_both((zero.url, one.url), (GET, replace(GET, server=1)))
    assert [each.body for each in found if isinstance(each, Answer)] == [b"0", b"1"]


@pytest.mark.parametrize(
    "url",
    [
        "http://server0.example",
        "http://10.0.0.1",
        "http://localhost.example",
        "http://127.0.0.1.example",
        "http://192.168.1.1:8000",
        "http://[2001:db8::1]",
        "ftp://127.0.0.1",
        "server0.example",
        "https://",
        "https://user:word@server0.example",
        "https://server0.example/?a=b",
        "https://server0.example:notaport",
        "",
    ],
)
def test_an_unsafe_address_is_refused(url: str) -> None:
    with pytest.raises(AddressError):
        check_address(url)


def test_plain_http_is_refused_with_the_fix() -> None:
    with pytest.raises(AddressError, match="use the server's https:// address"):
        check_address("http://server0.example")


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://server0.example", "https://server0.example:443"),
        ("https://SERVER0.example:443/", "https://server0.example:443"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://localhost", "http://localhost:80"),
        ("http://[::1]:8000/a/", "http://[::1]:8000/a"),
        ("http://127.8.9.1", "http://127.8.9.1:80"),
    ],
)
def test_an_address_has_one_form(url: str, form: str) -> None:
    assert check_address(url) == form
    assert check_address(form) == form


# TLS.


def pin_of(certificate: bytes) -> str:
    return key_digest(x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)).hex()


@BOTH
@pytest.mark.parametrize("extra", [(), ("00" * 32,)], ids=["one pin", "with a spare"])
def test_a_server_with_the_pinned_key_is_talked_to(carry: Carry, tmp_path: Path, extra: Pins) -> None:
    both, alone, identity = write_identity(tmp_path, "server")
    with serving(answer(b"hello"), identity=both) as server:
        found = carry(server.url, PUT, ca=alone, pins=((pin_of(identity.certificate), *extra), ()))
    assert isinstance(found, Answer)
    assert found.body == b"hello"
    assert server.everything.endswith(b"some bytes")


@BOTH
def test_a_server_with_another_key_gets_no_byte(carry: Carry, tmp_path: Path) -> None:
    both, alone, _ = write_identity(tmp_path, "server")
    _, _, other = write_identity(tmp_path, "other")
    with serving(answer(b"hello"), identity=both) as server:
        with pytest.raises(PinError, match="nothing was sent"):
            carry(server.url, PUT, ca=alone, pins=((pin_of(other.certificate),), ()))
        assert server.received
        assert server.everything == b""


@BOTH
def test_a_pin_does_not_replace_trust(carry: Carry, tmp_path: Path) -> None:
    both, _, identity = write_identity(tmp_path, "server")
    with serving(answer(b"hello"), identity=both) as server:
        assert isinstance(carry(server.url, PUT, pins=((pin_of(identity.certificate),), ())), Lost)
        assert server.everything == b""


@BOTH
def test_a_certificate_for_another_host_is_refused(carry: Carry, tmp_path: Path) -> None:
    both, alone, identity = write_identity(tmp_path, "server", host="server0.example")
    with serving(answer(b"hello"), identity=both) as server:
        assert isinstance(carry(server.url, PUT, ca=alone, pins=((pin_of(identity.certificate),), ())), Lost)
        assert server.everything == b""


@BOTH
def test_a_context_of_the_app_is_used(carry: Carry, tmp_path: Path) -> None:
    both, alone, _ = write_identity(tmp_path, "server")
    context: Authorities = ssl.create_default_context(cafile=str(alone))
    with serving(answer(b"hello"), identity=both) as server:
        assert isinstance(carry(server.url, GET, ca=context), Answer)


def test_pins_and_a_context_do_not_go_together() -> None:
    with pytest.raises(PinError, match="CA file"):
        HttpTransport(("https://a.example", ELSEWHERE), ca=ssl.create_default_context(), pins=(("00" * 32,), ()))


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_authorities_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AddressError, match="PEM"):
        HttpTransport(("https://a.example", ELSEWHERE), ca=path)


def test_pins_need_tls() -> None:
    with pytest.raises(AddressError, match="https"):
        HttpTransport((ELSEWHERE, ELSEWHERE), pins=(("00" * 32,), ()))


@pytest.mark.parametrize("pins", ["00" * 32, ("00" * 31,), ("no hexadecimal",), ("",)])
def test_what_is_no_pin_is_refused(pins: Any) -> None:
    with pytest.raises(PinError):
        HttpTransport(("https://a.example", ELSEWHERE), pins=(pins, ()))
