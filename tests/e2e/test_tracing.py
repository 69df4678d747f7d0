"""Traces across both servers: one from a device's request through the peer line, without ids, tokens or bodies."""

import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from secemb_lab.loadtest.fleet import run_fleet
from secemb_lab.loadtest.loadtest import task_for
from secemb_party.traces import hashed
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.local import Pair

FOREIGN = "0af7651916cd43dd8448eb211c80319c"  # a trace id that a device makes up
OFF = "import sys, secemb_server0.app, secemb_server1.app; sys.exit('opentelemetry.sdk' in sys.modules)"


@dataclass
class Collector:
    """What servers have sent: spans by service, and every byte."""

    url: str = ""
    raw: bytes = b""
    spans: list[tuple[str, Span]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        """Read one export."""
        self.raw += body
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(one.value.string_value for one in sent.resource.attributes if one.key == "service.name")
            self.spans += [(service, span) for scope in sent.scope_spans for span in scope.spans]

    def of(self, service: str, name: str) -> list[Span]:
        """Return the spans of a server with this name."""
        return [span for found, span in self.spans if (found, span.name) == (service, name)]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector that speaks OTLP over HTTP."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Span) -> dict[str, str]:
    """Return a span's attributes as text."""
    return {one.key: one.value.string_value or str(one.value.int_value) for one in span.attributes}


def test_a_device_s_request_is_traced_through_both_servers_without_what_it_says(tmp_path: Path) -> None:
    with collecting() as collector:
        pair = Pair(tmp_path, task_for(PaperCatalogue("small", 200, 10), cohort=2), relayed=True)
        for server in pair.servers:
            settings = server.folder / "secemb.toml"
            settings.write_text(f'{settings.read_text()}\n[tracing]\nendpoint = "{collector.url}"\n')
        with pair.running():
            asyncio.run(run_fleet(pair, devices=2, rounds=1))
            parent = {"traceparent": f"00-{FOREIGN}-b7ad6b7169203331-01"}
            httpx.get(f"{pair.urls[0]}/v1/tasks/{pair.task.task_id.hex()}", headers=parent, trust_env=False)
        with closing(sqlite3.connect(pair.servers[0].folder / "data" / "ledger.db")) as ledger:
            sessions = [row[0] for row in ledger.execute("SELECT session_id FROM sessions")]
    # One trace: the device's request, server 0's call, server 1's part.
    requests = collector.of("secemb-server0", "PUT /v1/rounds/{round}/sessions/{session}/relayed-keys")
    calls = {span.span_id: span for span in collector.of("secemb-server0", "POST /peer/v1/relay")}
    taken = collector.of("secemb-server1", "POST /peer/v1/relay")
    assert len(requests) == len(sessions) == 2
    assert taken
    for span in taken:
        assert calls[span.parent_span_id].trace_id == span.trace_id
    assert {span.trace_id for span in requests} & {span.trace_id for span in taken}
    # Rounds are called for by nobody, and traced too.
    announced = collector.of("secemb-server1", "POST /peer/v1/announce")
    assert {one.trace_id for one in announced} <= {one.trace_id for _, one in collector.spans if not one.parent_span_id}
    # Sessions are hashed, and the same on both servers' spans of them.
    assert {attributes(span)["secemb.session"] for span in requests} == {hashed(one.hex()) for one in sessions}
    texts = [text for _, span in collector.spans for text in (span.name, *attributes(span).values())]
    assert not [text for text in texts if re.search(r"[0-9a-f]{17,}", text)]
    token = (pair.servers[0].folder / "secrets" / "peer.token").read_bytes().strip()
    operators = [server.operator_token.encode() for server in pair.servers]
    for secret in [token, *operators, *sessions, *(one.hex().encode() for one in sessions)]:
        assert secret not in collector.raw
    keys = {key for _, span in collector.spans for key in attributes(span)}
    assert keys == {
        *("http.request.method", "http.route", "http.response.status_code"),
        *("secemb.round", "secemb.session"),
    }
    assert not any(span.events or span.links for _, span in collector.spans)
    # A device cannot choose the trace it is in.
    assert bytes.fromhex(FOREIGN) not in {span.trace_id for _, span in collector.spans}
    assert collector.of("secemb-server0", "GET /v1/tasks/{task}")


def test_without_an_endpoint_the_libraries_are_not_even_imported() -> None:
    assert subprocess.run([sys.executable, "-c", OFF], check=False).returncode == 0
