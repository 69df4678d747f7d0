"""Metrics and logs say how the service does and nothing about who uses it."""

import asyncio
import io
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from secemb_party.telemetry import Metrics, configure_logs, get_logger, watch_event_loop

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


def test_two_apps_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.session("keys", 2)
    assert b'secemb_sessions_total{phase="keys",transport="direct"} 2.0' in one.render()
    assert b"phase=" not in other.render().replace(b"round_phase", b"")


def test_everything_that_is_recorded_can_be_read() -> None:
    metrics = Metrics()
    metrics.request(route="/v1/tasks/{task}/join", method="POST", status=200, seconds=0.01)
    metrics.request(route="unmatched", method="BREW", status=404, seconds=0.01)
    metrics.expect_problems(["round-closed"])
    metrics.refused("busy")
    metrics.refused_by_peer("round-closed")
    metrics.refused_by_peer(SECRET)
    metrics.round_ended("published")
    metrics.round_phase("sealing", 1.5)
    with metrics.kernel("evaluate"):
        pass
    metrics.moved(received=10, sent=20)
    metrics.peer_call("seal", "ok")
    metrics.watch_queue(lambda: 3)
    metrics.loop_lag(lately=0.25, largest=0.5)
    metrics.stranger()
    metrics.model_version(17)
    text = metrics.render().decode()
    for line in (
        'secemb_request_seconds_count{method="POST",route="/v1/tasks/{task}/join",status="200"} 1.0',
        'secemb_request_seconds_count{method="other",route="unmatched",status="404"} 1.0',
        'secemb_refusals_total{by="self",problem="busy"} 1.0',
        'secemb_refusals_total{by="peer",problem="round-closed"} 1.0',
        'secemb_refusals_total{by="peer",problem="unknown"} 1.0',
        'secemb_rounds_total{outcome="published"} 1.0',
        'secemb_round_phase_seconds_sum{phase="sealing"} 1.5',
        'secemb_kernel_seconds_count{operation="evaluate"} 1.0',
        'secemb_bytes_total{direction="in"} 10.0',
        'secemb_bytes_total{direction="out"} 20.0',
        'secemb_peer_calls_total{outcome="ok",route="seal"} 1.0',
        "secemb_queue_places_taken 3.0",
        "secemb_event_loop_lag_seconds 0.25",
        "secemb_event_loop_lag_largest_seconds 0.5",
        "secemb_peer_strangers_total 1.0",
        "secemb_model_version 17.0",
    ):
        assert line in text.splitlines()
    assert SECRET not in text


def test_the_peer_cannot_invent_problems_without_end() -> None:
    """An ended round tells the operator of all of them, in an event of a few thousand characters."""
    metrics = Metrics()
    for number in range(500):
        metrics.refused_by_peer("".join(chr(97 + int(digit)) for digit in f"{number:040d}"))
    assert metrics.refusals() == {"peer: unknown": 500}


@pytest.mark.parametrize("label", ["", "Keys", "9f86d081884c7d65", "round-17", "a b", "x" * 41, SECRET])
def test_a_label_with_an_id_in_it_is_refused(label: str) -> None:
    metrics = Metrics()
    for record in (metrics.refused, metrics.session, metrics.round_ended):
        with pytest.raises(ValueError, match="do not belong into metrics"):
            record(label)
    assert b"_total{" not in metrics.render()


@pytest.mark.parametrize("path", ["", "v1", "/v1/rounds/9f86d081884c7d65", "/v1/rounds/17/keys", "/v1/Ab", "/a?b=c"])
def test_a_path_is_not_taken_for_a_route(path: str) -> None:
    with pytest.raises(ValueError, match="by its template"):
        Metrics().request(route=path, method="GET", status=200, seconds=0.0)


def hold_up(seconds: float) -> None:
    """Keep the event loop from doing anything else."""
    time.sleep(seconds)


@pytest.mark.asyncio
async def test_a_lag_of_the_event_loop_is_remembered_for_a_while_and_the_largest_for_ever() -> None:
    metrics = Metrics()
    task = asyncio.create_task(watch_event_loop(metrics, every=0.0, remembered=2))
    await asyncio.sleep(0)
    hold_up(0.05)
    for _ in range(3):
        await asyncio.sleep(0)
    figures = {name: value for name, _, value in metrics.figures()}
    assert figures["secemb_event_loop_lag_largest_seconds"] >= 0.05
    assert figures["secemb_event_loop_lag_seconds"] <= figures["secemb_event_loop_lag_largest_seconds"]
    for _ in range(100):  # until two in a row were on time, however busy the machine is
        await asyncio.sleep(0)
        if {name: value for name, _, value in metrics.figures()}["secemb_event_loop_lag_seconds"] < 0.05:
            break
    else:
        pytest.fail("what is long past is still shown as recent")
    assert {name: value for name, _, value in metrics.figures()}["secemb_event_loop_lag_largest_seconds"] >= 0.05
    task.cancel()


def test_an_alert_sees_the_first_problem_of_its_kind() -> None:
    metrics = Metrics()
    metrics.expect_problems(["proof-refused"])
    assert 'secemb_refusals_total{by="self",problem="proof-refused"} 0.0' in metrics.render().decode().splitlines()
    assert metrics.refusals() == {}
    metrics.refused("proof-refused")
    assert metrics.refusals() == {"proof-refused": 1}


@pytest.mark.asyncio
async def test_the_event_loop_is_watched_until_it_ends() -> None:
    metrics = Metrics()
    task = asyncio.create_task(watch_event_loop(metrics, every=0.0))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


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
    assert "test_telemetry.py" in line["where"]
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
