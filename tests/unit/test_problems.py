"""Every error has one entry in the table, and the table is the one that is documented."""

import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import secemb_party
import secemb_server0
import secemb_server1
import secemb_shared
from secemb_party.errors import (
    BusyError,
    ForbiddenError,
    LedgerUnavailableError,
    MediaTypeError,
    ModelMissingError,
    NotRecordedError,
    SessionConflictError,
    TicketError,
    UnauthorizedError,
    UnknownVersionError,
)
from secemb_party.http.problems import (
    INTERNAL,
    MEDIA_TYPE,
    PROBLEMS,
    TABLE,
    Problem,
    problem_for,
    problem_response,
    problem_responses,
)
from secemb_shared.errors import LengthError, SecEmbError, VersionError

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| (.+?) \| (.+?) \|$", DOCUMENT, re.MULTILINE)


def every_error() -> list[type[SecEmbError]]:
    """Return every error class of the services and what they stand on."""
    for package in (secemb_shared, secemb_party, secemb_server0, secemb_server1):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("._kernel", "__main__")):
                importlib.import_module(module.name)
    found, todo = [], [SecEmbError]
    while todo:
        error = todo.pop()
        todo += error.__subclasses__()
        found.append(error)
    return [error for error in found if error.__module__.startswith("secemb_")]


def nearest_entries(error: type[SecEmbError]) -> list[type[SecEmbError]]:
    """Return the entries of an error's ancestors that no nearer one covers."""
    entries = [entry for entry in TABLE if issubclass(error, entry)]
    return [e for e in entries if not any(other is not e and issubclass(other, e) for other in entries)]


def test_every_error_has_exactly_one_entry() -> None:
    for error in every_error():
        (entry,) = nearest_entries(error)
        assert problem_for(error) is TABLE[entry]


def test_no_error_of_the_shared_and_party_packages_is_left_to_the_last_resort() -> None:
    packages = ("secemb_shared.", "secemb_party.")
    errors = [error for error in every_error() if error.__module__.startswith(packages) and error is not SecEmbError]
    assert [error.__name__ for error in errors if nearest_entries(error) == [SecEmbError]] == []


def test_what_is_no_error_of_ours_is_internal() -> None:
    assert problem_for(ValueError) is INTERNAL
    assert problem_for(KeyError) is INTERNAL


def test_the_document_lists_exactly_the_problems_of_the_table() -> None:
    assert {slug: int(status) for slug, status, _, _ in ROWS} == {p.slug: p.status for p in PROBLEMS.values()}
    assert len(ROWS) == len(PROBLEMS) == DOCUMENT.count("\n| `")


def test_the_document_is_ordered_by_status_and_says_what_to_do() -> None:
    assert [int(row[1]) for row in ROWS] == sorted(int(row[1]) for row in ROWS)
    assert all(meaning.endswith(".") and advice.endswith(".") for _, _, meaning, advice in ROWS)


def test_entries_that_share_a_slug_share_everything_a_caller_sees() -> None:
    for problem in TABLE.values():
        listed = PROBLEMS[problem.slug]
        assert (problem.type, problem.status, problem.title) == (listed.type, listed.status, listed.title)


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (LengthError, 400, "message-length"),
        (VersionError, 400, "message-version"),
        (UnauthorizedError, 401, "unauthorized"),
        (ForbiddenError, 403, "forbidden"),
        (TicketError, 403, "ticket-refused"),
        (NotRecordedError, 404, "not-found"),
        (UnknownVersionError, 404, "model-unknown"),
        (SessionConflictError, 409, "session-conflict"),
        (MediaTypeError, 415, "media-type"),
        (BusyError, 429, "busy"),
        (LedgerUnavailableError, 503, "unavailable"),
    ],
)
def test_statuses_and_slugs_are_part_of_the_interface(error: type[Exception], status: int, slug: str) -> None:
    assert (problem_for(error).status, problem_for(error).type) == (status, f"urn:secemb:problem:{slug}")


def answer(error: Exception) -> tuple[dict[str, object], dict[str, str]]:
    response = problem_response(problem_for(type(error)), error)
    return json.loads(bytes(response.body)), dict(response.headers)


def test_a_document_has_type_title_status_and_words_for_the_caller() -> None:
    document, headers = answer(LengthError("expected exactly 72 bytes, got 71"))
    assert document == {
        "type": "urn:secemb:problem:message-length",
        "title": "The message is too short or too long",
        "status": 400,
        "detail": "expected exactly 72 bytes, got 71",
    }
    assert headers["content-type"] == MEDIA_TYPE


def test_what_may_be_repeated_says_when() -> None:
    assert answer(BusyError(7))[1]["retry-after"] == "7"
    assert int(answer(LedgerUnavailableError("gone"))[1]["retry-after"]) > 0
    assert answer(UnauthorizedError("no token"))[1]["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "error",
    [SecEmbError("secret"), LedgerUnavailableError("secret"), ModelMissingError("secret"), ValueError("secret")],
)
def test_words_that_are_not_meant_for_the_caller_stay_inside(error: Exception) -> None:
    assert "detail" not in answer(error)[0]


@pytest.mark.parametrize("leak", ["9f86d081884c7d65", "AbCdEfGhIjKlMnOpQrStUvWx9_-", "0" * 32, "x" * 300])
def test_words_with_something_like_an_id_in_them_are_withheld(leak: str) -> None:
    assert "detail" not in answer(TicketError(f"the ticket {leak} is wrong"))[0]


def test_the_words_we_write_ourselves_do_go_out() -> None:
    for error in (UnauthorizedError("a"), SessionConflictError("b"), ForbiddenError("c"), BusyError(1)):
        assert answer(error)[0]["detail"] == str(error)


def test_a_route_can_describe_its_problems() -> None:
    responses = problem_responses(TicketError, LengthError, VersionError, BusyError, LengthError)
    assert list(responses) == [400, 403, 429]
    assert responses[400]["description"].count("message-") == 2
    assert list(responses[403]["content"]) == [MEDIA_TYPE]
    assert "Retry-After" in responses[429]["headers"]
    assert "headers" not in responses[403]


def test_a_problem_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PROBLEMS["busy"].status = 200  # type: ignore[misc]
    assert isinstance(PROBLEMS["busy"], Problem)
