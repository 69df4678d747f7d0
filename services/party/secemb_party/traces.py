"""Traces for OpenTelemetry: one span per request, and one per call to the other server.

A span has the template of a route, a method and a status; ids of rounds and sessions are hashed. FastAPI's own
telemetry stays off, because it records paths, and paths contain ids. This module is imported only if tracing is on,
because the libraries are an extra.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PARENT = "traceparent"
_ID = re.compile(r"[0-9a-f]{32,64}")
_TRACED = ("round", "session")  # path parameters that are shown, hashed


class Tracing:
    """Sends spans of one server to a collector, in batches and in the background."""

    def __init__(self, endpoint: str, *, service: str, sample: float) -> None:
        resource = Resource.create({"service.name": service, "service.version": version("secemb")})
        self._provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)))
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("secemb", version("secemb"))
        self._headers = TraceContextTextMapPropagator()

    @contextmanager
    def request(
        self, scope: Mapping[str, Any], answered: Callable[[], tuple[str, int]], *, peer: bool
    ) -> Iterator[None]:
        """Trace a request; `answered` returns its route and status. Only the peer's requests continue a trace."""
        # A device's trace header is ignored: it could link the device's requests to those of others.
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]} if peer else {}
        parent = self._headers.extract({_PARENT: given.get(_PARENT, "")}, context=Context())
        with self._span("request", SpanKind.SERVER, context=parent) as span:
            try:
                yield
            finally:
                route, status = answered()
                span.update_name(f"{scope['method'][:10]} {route}")
                span.set_attribute("http.request.method", scope["method"][:10])
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                for name in _TRACED:
                    if found := scope.get("path_params", {}).get(name):
                        span.set_attribute(f"secemb.{name}", hashed(str(found)))

    @contextmanager
    def call(self, method: str, path: str, headers: MutableMapping[str, str]) -> Iterator[None]:
        """Trace a call to the other server, and let it continue this trace."""
        route = _ID.sub("{round}", path)
        with self._span(f"{method} {route}", SpanKind.CLIENT) as span:
            span.set_attribute("http.request.method", method)
            span.set_attribute("http.route", route)
            for found in _ID.findall(path):
                span.set_attribute("secemb.round", hashed(found))
            self._headers.inject(headers)
            yield

    def _span(self, name: str, kind: SpanKind, **more: Any) -> Any:
        # An exception's message may quote a request.
        return self._tracer.start_as_current_span(
            name, kind=kind, record_exception=False, set_status_on_exception=False, **more
        )

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def hashed(name: str) -> str:
    """Return a hash that replaces an id in traces; it is the same on both servers."""
    return hashlib.sha256(b"secemb/1 trace" + name.encode()).hexdigest()[:16]
