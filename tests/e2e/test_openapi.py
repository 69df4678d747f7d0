"""Each service keeps to its own OpenAPI description, whatever is sent: real processes, generated requests."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import DataObject, data, sampled_from
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.e2e.servers import Servers, set_up

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
REQUESTS = 300


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pair = set_up(Path(tmp_path_factory.mktemp("openapi")))
    try:
        pair.start()
        yield pair
    finally:
        pair.end()


@pytest.mark.parametrize("role", [0, 1])
def test_a_service_answers_as_its_description_says(servers: Servers, role: int) -> None:
    schema = schemathesis.openapi.from_url(f"{servers.pair[role].url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    endless = [one for one in operations if "events" in one.path]
    assert len(operations) - len(endless) >= 6
    operator, seen = {"authorization": f"Bearer {servers.operator_tokens[role]}"}, set[tuple[str, int]]()

    @settings(max_examples=REQUESTS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data())
    def answers_as_described(draw: DataObject) -> None:
        operation = draw.draw(sampled_from([one for one in operations if one not in endless]))
        headers = draw.draw(sampled_from([None, operator]))
        answer = draw.draw(operation.as_strategy()).call_and_validate(checks=CHECKS, headers=headers)
        seen.add((operation.path, answer.status_code))

    answers_as_described()
    assert {(path, 200) for path in ("/v1/operator/overview", "/v1/operator/rounds", "/v1/operator/models")} <= seen


@pytest.mark.parametrize("role", [0, 1])
def test_what_uploads_are_refused_with_is_described(servers: Servers, role: int) -> None:
    paths = httpx.get(f"{servers.pair[role].url}/openapi.json").json()["paths"]
    puts = [operations["put"] for path, operations in paths.items() if path.endswith(("/keys", "/update"))]
    assert len(puts) == 2
    for put in puts:
        assert {"400", "403", "404", "408", "409", "410", "415", "429", "503"} <= set(put["responses"])
