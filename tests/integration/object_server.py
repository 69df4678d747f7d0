"""A real S3-compatible server, as a process, and a line to it that can lose answers, cut uploads and delay listings."""

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from urllib.parse import parse_qs, urlsplit

import pytest

from secemb_party.storage.bucket import BucketAddress, BucketObjects

REGION, KEY = "us-east-1", "tests"
_HOP = {"connection", "transfer-encoding", "keep-alive"}


@dataclass
class Line:
    """What happens to the next requests."""

    lose_answers: int = 0  # to uploads: the server has stored the object, and the caller does not learn it
    cut_uploads: int = 0  # after half of their bytes
    stale: bool = False  # listings are those from when this was set
    listed: bytes = b""


@dataclass(frozen=True)
class ObjectServer:
    """The server, and the line to it."""

    port: int
    line_port: int
    line: Line

    def bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"secemb-{token_hex(8)}"
        assert _ask(self.port, "PUT", f"/{name}").status == 200
        return name

    def address(self, bucket: str, *, faulty: bool = False) -> BucketAddress:
        endpoint = f"http://127.0.0.1:{self.line_port if faulty else self.port}"
        url = f"s3://{bucket}/pair/server0"
        return BucketAddress(url=url, endpoint=endpoint, region=REGION, access_key=KEY, secret_key=KEY)

    def objects(self, bucket: str | None = None, *, faulty: bool = False) -> BucketObjects:
        return BucketObjects(self.address(bucket or self.bucket(), faulty=faulty))


@contextmanager
def object_server_in(folder: Path) -> Iterator[ObjectServer]:
    """Run a server and a line to it."""
    log = (folder / "moto.log").open("w+", encoding="utf-8")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            port = _port(folder / "moto.log", process)
            line = Line()
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(port, line))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            yield ObjectServer(port, server.server_address[1], line)
            server.shutdown()
            server.server_close()
        finally:
            process.terminate()
    log.close()


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """A server for all tests of this process."""
    with tempfile.TemporaryDirectory(prefix="secemb-objects-") as folder, object_server_in(Path(folder)) as server:
        yield server


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    """Return the port that the server has chosen."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        _, found, rest = log.read_text("utf-8").partition("http://127.0.0.1:")
        if found and "\n" in rest:
            return int("".join(letter for letter in rest.split()[0] if letter.isdigit()))
        time.sleep(0.05)
    raise AssertionError(f"the object server did not start: {log.read_text('utf-8')}")


def _ask(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> "_Answer":
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body=body, headers=headers or {})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return _Answer(response.status, response.getheaders(), data)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def _handler(port: int, line: Line) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing."""

        def _pass_on(self) -> None:
            size = int(self.headers.get("content-length", "0"))
            upload = self.command == "PUT"
            if upload and line.cut_uploads:
                line.cut_uploads -= 1
                self._cut(self.rfile.read(size // 2), size)
                return
            body = self.rfile.read(size)
            listing = self.command == "GET" and "list-type" in parse_qs(urlsplit(self.path).query)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            answer = _ask(port, self.command, self.path, body, headers)
            if listing:
                if line.stale:
                    answer = _Answer(200, answer.headers, line.listed)
                else:
                    line.listed = answer.body
            if upload and line.lose_answers:
                line.lose_answers -= 1
                self._hang_up()
                return
            self.send_response(answer.status)
            for name, value in answer.headers:
                if name.lower() not in {*_HOP, "content-length", "server", "date"}:
                    self.send_header(name, value)
            length = {name.lower(): value for name, value in answer.headers}.get("content-length")
            self.send_header("content-length", length if self.command == "HEAD" and length else str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def _cut(self, half: bytes, size: int) -> None:
            """Send the server half of an upload and hang up on both sides."""
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.putrequest("PUT", self.path, skip_host=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            with suppress(OSError):
                connection.send(half)
            connection.close()
            self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.close()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on  # noqa: N815

    return Handler
