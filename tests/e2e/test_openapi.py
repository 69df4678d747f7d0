"""Each service keeps to its own OpenAPI description, whatever is sent: real processes, generated requests."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import (
    DataObject,
    binary,
    booleans,
    data,
    fixed_dictionaries,
    from_regex,
    integers,
)
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.devices.over_http import RelayedDevice
from tests.e2e.servers import Servers, set_up

from secemb_party.storage import Shape
from secemb_shared.messages import Kind
from secemb_shared.messages.codec import ENVELOPE_BYTES

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
REQUESTS = {True: 10, False: 3}  # for each route, with the operator's token and without
EACH = 6  # requests for each route of a session and each way to get its message wrong
PEER_REQUESTS = {True: 12, False: 4}  # for each route of the peer line, with the bearer and without
LONG = {"join-seconds": 3000, "upload-seconds": 3600}  # the round stays open

Make = Callable[[DataObject, bytes], bytes]


def generated(count: int) -> Callable[[Callable[[DataObject], None]], None]:
    """Return a decorator that runs a function with so many examples, at once."""

    def run(function: Callable[[DataObject], None]) -> None:
        quiet = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        quiet(given(data())(function))()

    return run


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pair = set_up(Path(tmp_path_factory.mktemp("openapi")), changes=LONG, relayed=True)
    try:
        pair.start()
        yield pair
    finally:
        pair.end()


def listeners(servers: Servers, role: int) -> list[str]:
    """Return the addresses of the listeners for devices, for the operator and for Prometheus."""
    server = servers.pair[role]
    return [server.url, server.operator_url, server.metrics_url]


@pytest.mark.parametrize("role", [0, 1])
def test_a_service_answers_as_its_description_says(servers: Servers, role: int) -> None:
    schemas = [schemathesis.openapi.from_url(f"{url}/openapi.json") for url in listeners(servers, role)]
    operations = [found.ok() for schema in schemas for found in schema.get_all_operations() if isinstance(found, Ok)]
    endless = [one for one in operations if "events" in one.path]
    assert len(operations) - len(endless) >= 6
    operator, seen = {"authorization": f"Bearer {servers.operator_tokens[role]}"}, set[tuple[str, int]]()

    def try_out(operation: Any, headers: dict[str, str] | None) -> None:
        @generated(REQUESTS[headers is not None])
        def answers_as_described(draw: DataObject) -> None:
            answer = draw.draw(operation.as_strategy()).call_and_validate(checks=CHECKS, headers=headers)
            seen.add((operation.path, answer.status_code))

    for operation in operations:
        if operation not in endless:
            try_out(operation, None)
            try_out(operation, operator)
    expected = {"overview", "rounds", "models", *(("tokens", "tokens/list", "tokens/revoke") if role == 0 else ())}
    assert {(f"/v1/operator/{path}", 200) for path in expected} <= seen


@pytest.mark.parametrize("role", [0, 1])
def test_what_uploads_are_refused_with_is_described(servers: Servers, role: int) -> None:
    paths = httpx.get(f"{servers.pair[role].url}/openapi.json").json()["paths"]
    puts = [operations["put"] for path, operations in paths.items() if path.endswith(("keys", "update"))]
    assert len(puts) == (4 if role == 0 else 2)
    for put in puts:
        assert {"400", "403", "404", "408", "409", "410", "415", "429", "503"} <= set(put["responses"])


@pytest.mark.parametrize("role", [0, 1])
def test_a_route_says_what_its_caller_must_show(servers: Servers, role: int) -> None:
    described = [httpx.get(f"{url}/openapi.json").json() for url in listeners(servers, role)]
    schemes = {k: v for one in described for k, v in one["components"].get("securitySchemes", {}).items()}
    assert (schemes["ticket"]["type"], schemes["ticket"]["name"]) == ("apiKey", "secemb-ticket")
    assert all(
        (schemes[name]["type"], schemes[name]["scheme"]) == ("http", "bearer") for name in set(schemes) - {"ticket"}
    )
    for path, operations in ((path, found) for one in described for path, found in one["paths"].items()):
        for operation in operations.values():
            assert operation.get("security") == scheme_of(path), path


@pytest.mark.parametrize("role", [0, 1])
def test_devices_are_offered_nothing_that_is_for_operators(servers: Servers, role: int) -> None:
    device_paths, operator_paths, metrics_paths = (
        set(httpx.get(f"{url}/openapi.json").json()["paths"]) for url in listeners(servers, role)
    )
    assert device_paths & (operator_paths | metrics_paths) == {"/healthz"}
    assert metrics_paths == {"/healthz", "/readyz", "/metrics"}
    assert all(path.startswith("/v1/operator/") for path in operator_paths - {"/healthz", "/readyz"})
    for_operators = operator_paths | metrics_paths | {"/ui", "/ui/login"}
    headers = {"authorization": f"Bearer {servers.operator_tokens[role]}"}
    for path in for_operators - {"/healthz"}:
        answer = httpx.get(servers.pair[role].url + path.format(number=0, version=0), headers=headers)
        assert answer.status_code == 404, path
    assert httpx.get(f"{servers.pair[role].operator_url}/ui/login").status_code == 200
    assert httpx.get(f"{servers.pair[role].url}/healthz").json() == {"alive": True}


def scheme_of(path: str) -> list[dict[str, list[str]]] | None:
    """Return what the callers of a path must show, as OpenAPI writes it."""
    for start, end, name in (
        ("/v1/rounds/", "", "ticket"),
        ("/v1/tasks/", "/join", "enrolment"),
        ("/v1/tasks/", "/read", "enrolment"),
        ("/v1/operator/", "", "operator"),
    ):
        if path.startswith(start) and path.endswith(end):
            return [{name: []}]
    return None


# A session that has joined: what is generated for it goes beyond the check of its ticket.


@pytest.fixture(scope="module")
def device(servers: Servers) -> RelayedDevice:
    """One that has joined and made its messages, of which neither server has got any."""

    async def join() -> RelayedDevice:
        made = RelayedDevice(servers, 0)
        await made.join()
        made.updates = made.session.write_nothing()
        await made.close()
        return made

    return asyncio.run(join())


def messages(device: RelayedDevice, role: int) -> dict[str, bytes]:
    """Return the session's messages to a server by the last word of their path, keys first."""
    assert device.updates is not None
    direct = {"keys": device.session.keys[role], "update": device.updates[role]}
    through = {"relayed-keys": Kind.RELAYED_KEYS, "relayed-update": Kind.RELAYED_UPLOAD}
    return direct | ({name: device.relayed(kind) for name, kind in through.items()} if role == 0 else {})


def changed(draw: DataObject, message: bytes, first: int, end: int) -> bytes:
    """Return the message with other bits at one place."""
    at, bits = draw.draw(integers(first, end - 1)), draw.draw(integers(1, 255))
    return message[:at] + bytes([message[at] ^ bits]) + message[at + 1 :]


WAYS: dict[str, tuple[Make, set[int]]] = {
    "as it is": (lambda _, message: message, {200}),
    "shorter": (lambda draw, message: message[: draw.draw(integers(0, len(message) - 1))], {400}),
    "longer": (lambda draw, message: message + draw.draw(binary(min_size=1, max_size=99)), {400}),
    "another envelope": (lambda draw, message: changed(draw, message, 0, ENVELOPE_BYTES), {400}),
    # Not canonical, without the right MAC, not what the session has sent before, or a box that does not open.
    "other contents": (lambda draw, message: changed(draw, message, ENVELOPE_BYTES, len(message)), {400, 403, 409}),
    "anything": (lambda draw, message: draw.draw(binary(max_size=len(message) - 1)), {400}),
}


@pytest.mark.parametrize("role", [0, 1])
def test_a_session_is_answered_as_the_description_says(servers: Servers, device: RelayedDevice, role: int) -> None:
    schema = schemathesis.openapi.from_url(f"{servers.pair[role].url}/openapi.json")
    operations = {found.ok().path: found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)}
    place = {"round": device.session.round.digest.hex(), "session": device.session_id.hex()}
    for name, message in messages(device, role).items():
        strategy = operations[f"/v1/rounds/{{round}}/sessions/{{session}}/{name}"].as_strategy
        proven = strategy(path_parameters=place, headers=device.headers(role, name))
        for way, (make, statuses) in WAYS.items():
            seen = statuses_of(proven, make, message)
            assert seen, "nothing was sent"
            assert seen <= statuses, f"{name}, {way}: {seen}"
        if name.endswith("update"):
            unproven = strategy(path_parameters=place, headers=device.headers(role, "keys"))
            assert statuses_of(unproven, WAYS["as it is"][0], message) == {403}, "with a MAC that was generated"


def statuses_of(cases: Any, make: Make, message: bytes) -> set[int]:
    """Send generated requests with bodies made of this message, and return the answers' statuses."""
    seen = set[int]()

    @generated(EACH)
    def answers_as_described(draw: DataObject) -> None:
        case = draw.draw(cases)
        case.body = make(draw, message)
        seen.add(case.call_and_validate(checks=CHECKS).status_code)

    return seen


# The peer line. This comes last: with the peer's bearer a round can be ended.

DIGEST = from_regex(r"\A[0-9a-f]{64}\Z")
FACTS = {"version": integers(), "digest_hex": DIGEST, "body_digest_hex": DIGEST}


class PeerLine:
    """Server 0's end of the line, with its certificate."""

    def __init__(self, servers: Servers) -> None:
        home, other = servers.pair[0].folder, servers.pair[1].folder
        self.token = (home / "secrets" / "peer.token").read_text().strip()
        self.url = f"https://127.0.0.1:{servers.peer_port}"
        identity = str(home / "tls" / "peer.crt"), str(home / "secrets" / "peer.key")
        self._shown: dict[str, Any] = {"verify": str(other / "tls" / "peer.crt"), "cert": identity}

    def operations(self) -> list[Any]:
        """Return what the line's own description lists."""
        schema = schemathesis.openapi.from_url(f"{self.url}/openapi.json", **self._shown)
        found = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
        return [one for one in found if one.path.startswith("/peer/")]

    def ask(self, case: Any, headers: dict[str, str]) -> int:
        """Send a request, and see that the answer is as described."""
        return int(case.call_and_validate(checks=CHECKS, headers=headers, **self._shown).status_code)


def peer_case(draw: DataObject, operation: Any, servers: Servers) -> Any:
    """Draw a request for a route, about half of them for the round that is open and with a model's numbers."""
    ((round_id, spec),) = servers.pair[1].ask("SELECT hex(round_id), spec FROM rounds ORDER BY number LIMIT 1")
    known = {"round": round_id.lower()} if "{round}" in operation.path and draw.draw(booleans()) else None
    case = draw.draw(operation.as_strategy(path_parameters=known))
    if operation.path.endswith(("rollback", "publish")) and draw.draw(booleans()):
        source = {"source": integers()} if operation.path.endswith("rollback") else {}
        case.headers["secemb-published"] = json.dumps(draw.draw(fixed_dictionaries(FACTS | source)))
        case.body = bytes(4 * Shape.of(servers.task).numbers)
    if operation.path.endswith("announce") and draw.draw(booleans()):
        case.body["round"] = spec.decode()
    return case


@pytest.mark.parametrize("bearer", [False, True])
def test_server_1_answers_server_0_as_its_description_says(servers: Servers, bearer: bool) -> None:
    line = PeerLine(servers)
    headers = {"authorization": f"Bearer {line.token}"} if bearer else {}
    operations = line.operations()
    assert len(operations) == 18
    for operation in operations:
        seen = peer_statuses(line, operation, servers, headers)
        assert bearer or seen == {401}, f"{operation.path} without a bearer: {seen}"
        assert not bearer or 401 not in seen, f"{operation.path} with the bearer: {seen}"


def peer_statuses(line: PeerLine, operation: Any, servers: Servers, headers: dict[str, str]) -> set[int]:
    """Send generated requests, and return the answers' statuses."""
    seen = set[int]()

    @generated(PEER_REQUESTS[bool(headers)])
    def answers_as_described(draw: DataObject) -> None:
        seen.add(line.ask(peer_case(draw, operation, servers), headers))

    return seen


CHAPTER = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
SHOWN = {"": None, "bearer": "enrolment", "ticket": "ticket", "ticket, MAC": "ticket", "read ticket": "ticket"}


def table_below(heading: str) -> list[list[str]]:
    """Return the cells of the chapter's first table below a line, without its head."""
    lines = iter(CHAPTER.read_text(encoding="utf-8").splitlines())
    next(line for line in lines if line.startswith(heading))
    rows = [line for line in lines if line.startswith(("|", "#", "**"))]
    rows = rows[next(n for n, line in enumerate(rows) if line.startswith("|")) :]
    rows = rows[: next((n for n, line in enumerate(rows) if not line.startswith("|")), len(rows))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def operations_of(server: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a server describes: its devices' operations by method and path, and its schemas."""
    described = httpx.get(f"{server.url}/openapi.json").json()
    paths = {path: found for path, found in described["paths"].items() if path.startswith(("/v1/rounds", "/v1/tasks"))}
    operations = {f"{method.upper()} {path}": one for path, found in paths.items() for method, one in found.items()}
    return operations, described["components"]["schemas"]


@pytest.mark.parametrize("role", [0, 1])
def test_the_chapter_on_http_lists_the_routes_that_are_described(servers: Servers, role: int) -> None:
    operations, _ = operations_of(servers.pair[role])
    listed = {route.strip("`"): rest for route, *rest in table_below("## Routes")}
    assert {route for route, (at, *_) in listed.items() if str(role) in at} == set(operations)
    for route, operation in operations.items():
        _, shown, body, answers, *_ = listed[route]
        schemes = [name for choice in operation.get("security", []) for name in choice]
        assert schemes == ([SHOWN[shown]] if SHOWN[shown] else []), route
        assert ("requestBody" in operation) == (body != ""), route
        described = {status for status in operation["responses"] if status < "400"}
        assert described == set(re.findall(r"\b[23]\d\d\b", answers)), route


@pytest.mark.parametrize("role", [0, 1])
def test_the_chapter_on_http_names_the_headers_that_are_described(servers: Servers, role: int) -> None:
    operations, _ = operations_of(servers.pair[role])
    names = {name for cells in table_below("## Headers") for name in re.findall(r"[A-Za-z][A-Za-z0-9-]+", cells[0])}
    for route, operation in operations.items():
        for status, answer in operation["responses"].items():
            assert set(answer.get("headers", {})) <= names, (route, status)
    assert set(operations["GET /v1/tasks/{task}/table/{version}"]["responses"]["206"]["headers"]) >= {
        "ETag",
        "Content-Range",
        "secemb-copy-sha256",
        "secemb-model-digest",
    }
    assert "Content-Range" in operations["GET /v1/tasks/{task}/catalogue"]["responses"]["416"]["headers"]


def test_the_chapter_on_http_names_the_members_that_are_described(servers: Servers) -> None:
    _, schemas = operations_of(servers.pair[0])
    for heading, kinds in (
        ("**task**", ["TaskView"]),
        ("**permission**", ["JoinAnswer", "ReadAnswer"]),
        ("**receipt**", ["Receipt", "RelayedReceipt"]),
    ):
        named = {name.strip("`") for name, *_ in table_below(heading)}
        assert named == {name for kind in kinds for name in schemas[kind]["properties"]}, heading
