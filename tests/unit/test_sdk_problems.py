"""The table from problem documents to errors knows every problem that a device can meet."""

import json
from collections.abc import Mapping

import pytest

from secemb_party.http.problems import PROBLEMS
from secemb_sdk.errors import (
    ConflictError,
    DeviceError,
    EnrolmentError,
    GoneError,
    PinError,
    RefusedError,
    UnavailableError,
)
from secemb_sdk.exchange import BY_SLUG, PREFIX, error_for, retry_after
from secemb_sdk.steps import Answer

# What a server says for good about one message or one request, and would say again.
FINAL = {
    "conflict",
    "forbidden",
    "media-type",
    "message-binding",
    "message-encoding",
    "message-invalid",
    "message-kind",
    "message-length",
    "message-version",
    "method-not-allowed",
    "model-conflict",
    "number-refused",
    "peer-refused",
    "request-invalid",
    "round-state",
    "specification-invalid",
    "weights-invalid",
}


def document(slug: str, status: int, more: Mapping[str, object] | None = None, /, **headers: str) -> Answer:
    fields = {"type": PREFIX + slug, "title": "words of the server", "status": status, **(more or {})}
    headers = {"content-type": "application/problem+json", **headers}
    return Answer(status=status, headers=headers, body=json.dumps(fields).encode())


def test_every_slug_of_the_table_is_one_that_servers_use() -> None:
    assert set(BY_SLUG) <= set(PROBLEMS)


@pytest.mark.parametrize("slug", sorted(PROBLEMS))
def test_every_problem_of_the_servers_has_its_error(slug: str) -> None:
    error = error_for(1, document(slug, PROBLEMS[slug].status))
    if slug in BY_SLUG:
        assert type(error) is BY_SLUG[slug][0]
    else:
        assert isinstance(error, ConflictError if PROBLEMS[slug].status == 409 else RefusedError) or slug not in FINAL
    assert "words of the server" not in str(error)
    assert "{" not in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, UnavailableError),
        (400, RefusedError),
        (401, EnrolmentError),
        (404, UnavailableError),
        (408, UnavailableError),
        (409, ConflictError),
        (410, GoneError),
        (413, RefusedError),
        (429, UnavailableError),
        (500, UnavailableError),
        (502, UnavailableError),
        (503, UnavailableError),
        (599, UnavailableError),
    ],
)
def test_a_status_without_a_document_has_its_error(status: int, kind: type[DeviceError]) -> None:
    assert type(error_for(0, Answer(status=status, body=b"<html>"))) is kind


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b'{"type": 5}', b"[" * 9999])
def test_a_document_that_makes_no_sense_falls_back_to_the_status(body: bytes) -> None:
    answer = Answer(status=410, headers={"content-type": "application/problem+json"}, body=body)
    assert isinstance(error_for(0, answer), GoneError)


def test_an_unknown_task_is_a_pin_that_does_not_hold() -> None:
    assert isinstance(error_for(0, document("task-unknown", 404)), PinError)


@pytest.mark.parametrize(
    ("server", "refused_by", "who"),
    [(0, None, "server 0"), (0, 1, "server 1 (as server 0 says)"), (0, "1", "server 0"), (1, 1, "server 1")],
)
def test_a_refusal_names_the_server_that_refused_and_who_says_so(server: int, refused_by: object, who: str) -> None:
    error = error_for(server, document("session-conflict", 409, {"refused_by": refused_by}))
    assert str(error) == f"{who} already has a different message for this session"


@pytest.mark.parametrize("slug", ["relay-box", "relay-altered"])
def test_what_was_altered_on_the_way_is_the_fault_of_who_carried_it(slug: str) -> None:
    error = error_for(0, document(slug, 400, {"refused_by": 1}))
    assert str(error) == "server 0 did not pass this device's message on to server 1 unchanged"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("999999999", 86_400.0),
        ("-1", None),
        ("1.5", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("²", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_seconds_only(text: str, seconds: float | None) -> None:
    assert retry_after(Answer(status=503, headers={"retry-after": text})) == seconds
    error = error_for(0, document("busy", 429, **{"retry-after": text}))
    assert isinstance(error, UnavailableError)
    assert error.seconds == seconds
