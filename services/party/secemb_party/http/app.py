"""A FastAPI app with everything that both servers need around their routes, without telemetry."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from secemb_party.http.health import Readiness, health_router, metrics_router
from secemb_party.http.middleware import Requests
from secemb_party.http.problems import (
    INTERNAL,
    METHOD_NOT_ALLOWED,
    PROBLEMS,
    REQUEST_INVALID,
    SCHEMA,
    describe_problems,
    install_problems,
)
from secemb_party.http.requests import DeviceRoute
from secemb_party.http.security import add_schemes
from secemb_party.metrics import Metrics
from secemb_party.parts import Clock

if TYPE_CHECKING:
    from secemb_party.traces import Tracing


# Headers that a device in a web page sends and reads, besides those that any page may.
_SENT_HEADERS = ("authorization", "content-type", "if-none-match", "range", "secemb-proof", "secemb-ticket")
_READ_HEADERS = ("content-range", "date", "etag", "retry-after", "secemb-copy-sha256")
_REMEMBERED_SECONDS = 7200  # how long a browser may cache the answer; no browser does so for longer


class Service(FastAPI):
    """FastAPI whose OpenAPI description includes problem documents and security schemes."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description."""
        if self.openapi_schema is None:
            description = super().openapi()
            add_schemes(description)
            self.openapi_schema = _with_problems(description)
        return self.openapi_schema


def new_app(
    title: str,
    description: str,
    *,
    metrics: Metrics,
    routers: Iterable[APIRouter],
    ready: Readiness | None = None,
    peer_clock: Clock | None = None,
    tracing: "Tracing | None" = None,
    allowed_origins: Sequence[str] = (),
) -> Service:
    """Return an app with these routes, problem documents, metrics, health routes and `/openapi.json`.

    Routes are tried in this order: those that sessions call come first. A listener without `ready`, such as the
    devices', has `/healthz` only. The one for the other server, with `peer_clock`, logs with that server's request ids
    and reports this server's time. Web pages from `allowed_origins` may call it too.
    """
    app = Service(
        title=title,
        description=description,
        version=_version(),
        docs_url=None,  # off, because FastAPI's pages load their scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the caller's path
        # FastAPI's own telemetry records paths, request bodies and exception messages: see secemb_party.traces.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    metrics.expect_problems(PROBLEMS)
    install_problems(app, metrics.refused)
    if allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed_origins,
            allow_methods=("GET", "POST", "PUT"),
            allow_headers=_SENT_HEADERS,
            expose_headers=_READ_HEADERS,
            max_age=_REMEMBERED_SECONDS,
        )
    app.add_middleware(Requests, metrics=metrics, clock=peer_clock, tracing=tracing)  # added last, so outermost
    in_order = sorted(routers, key=lambda router: router.route_class is not DeviceRoute)
    for router in (*in_order, health_router(ready)):
        # `include_router` would analyse each route a second time at the first request, half of the startup time.
        app.router.routes.extend(router.routes)
    return app


@cache
def _version() -> str:
    return version("secemb")


def operator_app(title: str, *, metrics: Metrics, routers: Iterable[APIRouter], ready: Readiness) -> Service:
    """Return the app of the operator's listener."""
    description = "The operator's page and API."
    return new_app(f"{title}, operator", description, metrics=metrics, routers=routers, ready=ready)


def metrics_app(title: str, *, metrics: Metrics, ready: Readiness) -> Service:
    """Return the app of the listener for Prometheus."""
    routers = [metrics_router(metrics)]
    return new_app(f"{title}, metrics", "Metrics for Prometheus.", metrics=metrics, routers=routers, ready=ready)


def _with_problems(description: dict[str, Any]) -> dict[str, Any]:
    """Replace FastAPI's 422 by our 400, and add the responses that any route may return."""
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = dict(SCHEMA)
    for operations in description.get("paths", {}).values():
        for operation in operations.values():
            responses = operation["responses"]
            if responses.pop("422", None) is not None:
                responses.setdefault("400", describe_problems([REQUEST_INVALID]))
            responses.setdefault("405", describe_problems([METHOD_NOT_ALLOWED]))
            responses.setdefault("500", describe_problems([INTERNAL]))
    return description
