"""A FastAPI app with everything both servers want around their routes, and nothing that reports elsewhere."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from secemb_party.http.by_hand import ByHand, HandRoute
from secemb_party.http.health import Readiness, health_router
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
from secemb_party.telemetry import Metrics

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class Service(FastAPI):
    """FastAPI with our layers around it, whose description says that invalid requests get a problem document."""

    def __init__(self, metrics: Metrics, **options: Any) -> None:
        super().__init__(**options)
        install_problems(self, metrics.refused)
        self.by_hand: list[HandRoute] = []  # served next to the framework
        # Outside of the framework, whose own layers have nothing to add to the routes by hand.
        self._around = Requests(ByHand(super().__call__, self.by_hand, metrics.refused), metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._around(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description."""
        if self.openapi_schema is None:
            description = super().openapi()
            for route in self.by_hand:
                operation = route.operation | {
                    "responses": {str(k): v for k, v in route.operation["responses"].items()}
                }
                description["paths"].setdefault(route.path_format, {})[route.method.lower()] = operation
            self.openapi_schema = _with_problems(description)
        return self.openapi_schema


def new_app(
    title: str,
    description: str,
    *,
    metrics: Metrics,
    ready: Readiness | None = None,
    lifespan: Lifespan | None = None,
) -> Service:
    """Return an app with problems, measurements, health routes and `/openapi.json`, ready for routes.

    A listener without `ready`, such as the peer's, has `/healthz` only.
    """
    app = Service(
        metrics,
        title=title,
        description=description,
        version=version("secemb"),
        lifespan=lifespan,
        docs_url=None,  # the pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the caller's path
        # FastAPI's own telemetry keeps request bodies and the words of exceptions.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    metrics.expect_problems(PROBLEMS)
    app.include_router(health_router(ready, metrics))
    return app


def _with_problems(description: dict[str, Any]) -> dict[str, Any]:
    """Replace FastAPI's 422 by our 400 and add what any route may answer."""
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
