"""Log lines: one JSON object each, and nothing in them that could be a secret."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from secemb_party.logs import configure_logs, get_logger

SECRET = "hunter2"


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Give logging back as it was."""
    names = ["", "secemb", "uvicorn", "uvicorn.error", "uvicorn.access"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate


@pytest.fixture
def stream(restored_logs: None) -> io.StringIO:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(words: str) -> None:
    raise ValueError(words)


def test_a_line_is_one_json_object_with_time_and_level(stream: io.StringIO) -> None:
    get_logger().info("round sealed", round=17, sessions=100, digest_equal=True)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "round sealed", "level": "info", "round": 17, "sessions": 100, "digest_equal": True}


def test_a_line_can_be_text(restored_logs: None) -> None:
    stream = io.StringIO()
    configure_logs("info", "text", stream)
    get_logger().info("round sealed", round=17)
    assert "round sealed" in stream.getvalue()
    assert "round=17" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_level_hides_what_is_below_it(stream: io.StringIO) -> None:
    get_logger().debug("detail")
    assert lines(stream) == []


@pytest.mark.parametrize(
    "name",
    [
        "session",
        "token",
        "item",
        "body",
        "key",
        "seed",
        "ticket",
        "authorization",
        "peer_token",
        "item_ids",
        "Keys",
        "share",
    ],
)
def test_a_value_with_a_secret_name_is_withheld_and_its_name_is_told(stream: io.StringIO, name: str) -> None:
    get_logger().info("oops", **{name: SECRET})
    (line,) = lines(stream)
    assert line["withheld"] == name
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("value", [SECRET.encode(), [SECRET], {"a": SECRET}, ValueError(SECRET), SECRET * 100])
def test_a_value_that_is_not_plain_and_short_is_withheld(stream: io.StringIO, value: object) -> None:
    get_logger().info("oops", value=value)
    assert lines(stream)[0]["withheld"] == "value"
    assert SECRET not in stream.getvalue()


def test_an_exception_is_told_by_type_and_place_without_its_words(stream: io.StringIO) -> None:
    try:
        fail(SECRET)
    except ValueError:
        get_logger().exception("it failed")
    (line,) = lines(stream)
    assert line["error"] == "ValueError"
    assert "test_logs.py" in line["where"]
    assert " fail" in line["where"]
    assert SECRET not in stream.getvalue()


def test_the_chain_behind_an_exception_is_not_told_either(stream: io.StringIO) -> None:
    try:
        try:
            fail(SECRET)
        except ValueError as error:
            raise RuntimeError(SECRET) from error
    except RuntimeError as error:
        get_logger().error("it failed", exc_info=error)
    assert lines(stream)[0]["error"] == "RuntimeError"
    assert SECRET not in stream.getvalue()


def test_lines_of_libraries_come_out_alike_and_without_the_words_of_exceptions(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("started")
    try:
        fail(SECRET)
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
        logging.getLogger("asyncio").exception("lost\nfuture: %r", SECRET, extra={"body": SECRET})
    assert [line["event"] for line in lines(stream)] == ["started", "Exception in ASGI application", "lost"]
    assert [line.get("error") for line in lines(stream)] == [None, "ValueError", "ValueError"]
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("level", ["debug", "info"])
def test_libraries_do_not_speak_of_requests_whatever_our_level_is(restored_logs: None, level: Any) -> None:
    stream = io.StringIO()
    configure_logs(level, "json", stream)
    for name in ("httpx", "httpcore.connection", "sqlalchemy.engine", "uvicorn.access", "aiosqlite", "asyncio"):
        logging.getLogger(name).info('HTTP Request: PUT /sessions/%s "200"', SECRET)
        logging.getLogger(name).debug(SECRET)
    assert stream.getvalue() == ""


def test_the_logger_keeps_secrets_before_logs_are_configured(caplog: pytest.LogCaptureFixture) -> None:
    try:
        fail(SECRET)
    except ValueError:
        get_logger().exception("oops", token=SECRET)
    assert "oops" in caplog.text
    assert SECRET not in caplog.text
