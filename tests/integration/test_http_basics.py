"""An app answers in problem documents, tells its health and says nothing about its callers."""

import asyncio
import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.types import Message
from tests.integration.small_app import CHECKS, SECRET, SmallApp

from secemb_party.http.app import new_app
from secemb_party.http.health import metrics_router
from secemb_party.http.problems import MEDIA_TYPE
from secemb_party.logs import configure_logs
from secemb_party.metrics import Metrics
from secemb_party.service import Check

pytestmark = pytest.mark.asyncio


@pytest.fixture
def world() -> Iterator[SmallApp]:
    root, ours = logging.getLogger(), logging.getLogger("secemb")
    before = root.level, list(root.handlers), ours.level
    log = io.StringIO()
    configure_logs("debug", "json", log)
    yield SmallApp(log)
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    ours.setLevel(before[2])


@pytest.mark.parametrize(
    ("name", "status", "slug"),
    [
        ("closed", 410, "round-closed"),
        ("busy", 429, "busy"),
        ("unauthorized", 401, "unauthorized"),
        ("ledger", 503, "unavailable"),
        ("ours", 500, "internal"),
        ("theirs", 500, "internal"),
        ("teapot", 400, "request-invalid"),
        ("gateway", 500, "internal"),
        ("down", 503, "unavailable"),
    ],
)
async def test_an_error_becomes_a_document_and_a_count(world: SmallApp, name: str, status: int, slug: str) -> None:
    response = await world.ask("GET", f"/v1/things/{SECRET}/errors/{name}")
    assert response.status_code == response.json()["status"] == status
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.json()["type"] == f"urn:secemb:problem:{slug}"
    assert f'secemb_refusals_total{{by="self",problem="{slug}"}} 1.0' in world.metrics.render().decode()
    assert SECRET not in response.text


async def test_a_busy_server_says_when_to_come_back(world: SmallApp) -> None:
    assert (await world.ask("GET", "/v1/things/1/errors/busy")).headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "slug"),
    [
        ("GET", f"/{SECRET}", {}, 404, "not-found"),
        ("GET", "/v1/things/1/cached/", {}, 404, "not-found"),
        ("DELETE", "/v1/things/1", {}, 405, "method-not-allowed"),
        ("PUT", "/v1/things/1", {"json": {"number": SECRET}}, 400, "request-invalid"),
        (
            "PUT",
            "/v1/things/1",
            {"content": SECRET, "headers": {"content-type": "application/json"}},
            400,
            "request-invalid",
        ),
        ("PUT", "/v1/things/1", {"json": {"number": 1}, "headers": {"ticket": SECRET}}, 400, "request-invalid"),
    ],
)
async def test_what_the_framework_refuses_is_a_document_that_repeats_nothing(
    world: SmallApp, method: str, path: str, more: dict[str, Any], status: int, slug: str
) -> None:
    response = await world.ask(method, path, **more)
    assert response.status_code == status
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.json()["type"] == f"urn:secemb:problem:{slug}"
    assert SECRET not in response.text + str(response.headers)


async def test_a_refused_method_lists_those_that_are_allowed(world: SmallApp) -> None:
    assert (await world.ask("DELETE", "/v1/things/1")).headers["allow"] == "PUT"


async def test_an_unexpected_error_is_logged_by_type_and_place_and_goes_no_further(world: SmallApp) -> None:
    await world.ask("GET", "/v1/things/1/errors/theirs")
    failed, request = world.lines()
    assert (failed["event"], failed["error"], failed["level"]) == ("request failed", "ValueError", "error")
    assert "small_app.py" in failed["where"]
    assert failed["request"] == request["request"]


async def test_a_half_answer_is_cut_off_and_never_completed(world: SmallApp) -> None:
    sent: list[Message] = []
    scope = {"type": "http", "method": "GET", "path": "/v1/things/1/cut", "headers": [], "query_string": b""}

    async def receive() -> Message:
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(RuntimeError, match="truncated") as raised:
        await world.app(scope, receive, send)
    assert raised.value.__suppress_context__
    assert [message.get("body") for message in sent] == [None, b"half"]
    assert 'status="200"' in world.metrics.render().decode()
    assert SECRET not in world.log.getvalue()


async def test_a_request_is_counted_and_logged_by_its_template_alone(world: SmallApp) -> None:
    response = await world.ask("GET", f"/v1/things/{SECRET}/cached?item={SECRET}", headers={"X-Request-Id": SECRET})
    (line,) = world.lines()
    assert line.pop("seconds") >= 0
    assert line.pop("timestamp")
    assert line == {
        "event": "request",
        "level": "info",
        "request": response.headers["x-request-id"],
        "method": "GET",
        "route": "/v1/things/{thing}/cached",
        "status": 200,
        "received": 0,
        "sent": 5,
    }
    text = world.metrics.render().decode()
    assert 'secemb_request_seconds_count{method="GET",route="/v1/things/{thing}/cached",status="200"} 1.0' in text
    assert 'secemb_bytes_total{direction="out"} 5.0' in text
    assert SECRET not in text + world.log.getvalue() + str(response.headers)


async def test_paths_that_lead_nowhere_are_counted_together(world: SmallApp) -> None:
    for path in ("/a", "/b", f"/{SECRET}"):
        await world.ask("GET", path)
    assert (
        'secemb_request_seconds_count{method="GET",route="unmatched",status="404"} 3.0'
        in world.metrics.render().decode()
    )


async def test_bodies_are_counted_in_bytes(world: SmallApp) -> None:
    await world.ask("PUT", "/v1/things/1", json={"number": 1})
    assert 'secemb_bytes_total{direction="in"} 12.0' in world.metrics.render().decode()


async def test_every_answer_has_its_own_id_and_is_safe_in_a_browser(world: SmallApp) -> None:
    answers = [await world.ask("GET", path) for path in ("/healthz", "/nowhere", "/v1/things/1/errors/theirs")]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 3
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_route_may_choose_its_own_caching(world: SmallApp) -> None:
    response = await world.ask("GET", "/v1/things/1/cached")
    assert response.headers.get_list("cache-control") == ["max-age=60"]


async def test_a_service_that_runs_is_alive(world: SmallApp) -> None:
    world.checks = [Check("ledger", False, "start the database")]
    response = await world.ask("GET", "/healthz")
    assert (response.status_code, response.json()) == (200, {"alive": True})


async def test_a_service_is_ready_when_all_checks_are_passed(world: SmallApp) -> None:
    response = await world.ask("GET", "/readyz")
    assert response.status_code == 200
    assert response.json()["ready"] is True
    assert [check["hint"] for check in response.json()["checks"]] == ["", ""]


async def test_a_service_that_is_not_ready_names_what_is_wrong_and_the_fix(world: SmallApp) -> None:
    world.checks = [CHECKS[0], Check("peer", False, "start server 1")]
    response = await world.ask("GET", "/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "ready": False,
        "checks": [
            {"check": "ledger", "ok": True, "hint": ""},
            {"check": "peer", "ok": False, "hint": "start server 1"},
        ],
    }


async def test_a_check_that_fails_itself_is_not_ready_and_says_no_more(world: SmallApp) -> None:
    world.checks = ValueError(SECRET)
    response = await world.ask("GET", "/readyz")
    assert (response.status_code, response.json()["ready"]) == (503, False)
    assert SECRET not in response.text + world.log.getvalue()


async def test_readiness_and_metrics_are_found_out_once_a_second_however_many_ask(
    world: SmallApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    ready, render = world.ready, world.metrics.render

    async def count_ready() -> Sequence[Check]:
        found.append("ready")
        await asyncio.sleep(0.01)
        return await ready()

    def count_render() -> bytes:
        found.append("metrics")
        return render()

    monkeypatch.setattr(world.metrics, "render", count_render)
    routers = [metrics_router(world.metrics)]
    world.app = new_app("Test", "An app.", metrics=world.metrics, routers=routers, ready=count_ready)
    paths = ["/readyz", "/metrics"] * 20
    answers = await asyncio.gather(*(world.ask("GET", path) for path in paths))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(found) == ["metrics", "ready"]
    monkeypatch.setattr("secemb_party.http.health.FRESH_SECONDS", 0.0)  # as if the second had passed
    for path in paths:
        await world.ask("GET", path)
    assert len(found) == 2 + len(paths)


async def test_metrics_are_prometheus_text(world: SmallApp) -> None:
    await world.ask("GET", "/healthz")
    response = await world.ask("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert 'route="/healthz"' in response.text


async def test_health_is_asked_too_often_to_be_logged_as_news(world: SmallApp) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        await world.ask("GET", path)
    assert {line["level"] for line in world.lines()} == {"debug"}


async def test_a_listener_says_that_it_is_alive_and_shows_its_state_only_where_it_is_meant_to(world: SmallApp) -> None:
    world.app = new_app("Peer", "A listener.", metrics=Metrics(), routers=[])
    statuses = [(await world.ask("GET", path)).status_code for path in ("/healthz", "/readyz", "/metrics")]
    assert statuses == [200, 404, 404]


async def test_no_page_that_loads_anything_from_elsewhere_is_served(world: SmallApp) -> None:
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert (await world.ask("GET", path)).status_code == 404


async def test_the_description_shows_problems_and_not_what_fastapi_would_answer(world: SmallApp) -> None:
    description = (await world.ask("GET", "/openapi.json")).json()
    operations = [op for path in description["paths"].values() for op in path.values()]
    assert operations
    assert not any("422" in operation["responses"] for operation in operations)
    assert "HTTPValidationError" not in description["components"]["schemas"]
    responses = description["paths"]["/v1/things/{thing}/errors/{name}"]["get"]["responses"]
    assert list(responses["410"]["content"]) == [MEDIA_TYPE]
    assert {"400", "405", "429", "500"} <= set(responses)
    assert "urn:secemb:problem:busy" in description["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]


async def test_fastapi_keeps_and_sends_nothing_by_itself(world: SmallApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    app = new_app("Test", "An app.", metrics=Metrics(), routers=[])
    switches = ("tracing", "metrics", "logs", "operation_spans", "auto_configure")
    assert {name: dict(app._telemetry)[name] for name in switches} == dict.fromkeys(switches, False)
    assert not app._native_telemetry.enabled()
