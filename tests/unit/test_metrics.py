"""Metrics: counted for each app, with words for labels and never an id."""

import asyncio
import platform
import re
import time
from importlib.metadata import version

import pytest

from secemb_party.metrics import PHASES, Metrics
from secemb_party.upkeep import watch_event_loop

SECRET = "hunter2"
TASK = bytes([0xAB]) * 32


def test_two_apps_in_one_process_count_apart() -> None:
    one, other = Metrics().of_task(TASK), Metrics().of_task(TASK)
    one.session("keys", 2)
    assert b'secemb_sessions_total{phase="keys",task="abababab",transport="direct"} 2.0' in one.render()
    assert b"phase=" not in other.render().replace(b"round_phase", b"")


def test_everything_that_is_recorded_can_be_read() -> None:
    metrics = Metrics().of_task(TASK)
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
    metrics.peer_call("seal", "ok", 0.25)
    metrics.join("admitted")
    metrics.join("not-now", retry_after=7.5)
    metrics.round_sessions("left-out", 3)
    metrics.task_phase("sealing", number=4, since=1000.0)
    metrics.round_deadline(600)
    metrics.watch_expiry("relay-key", lambda: 2000.0)
    with metrics.ledger("write"):
        pass
    metrics.watch_memory(lambda: 3, 64)
    metrics.loop_lag(lately=0.25, largest=0.5)
    metrics.stranger()
    metrics.model_version(17, 1500.0)
    metrics.quality({"rmse": 0.9, "rmse_low": 0.85})
    metrics.quality({"rmse": 0.875})
    text = metrics.render().decode()
    for line in (
        'secemb_request_seconds_count{method="POST",route="/v1/tasks/{task}/join",status="200"} 1.0',
        'secemb_request_seconds_count{method="other",route="unmatched",status="404"} 1.0',
        'secemb_refusals_total{by="self",problem="busy"} 1.0',
        'secemb_refusals_total{by="peer",problem="round-closed"} 1.0',
        'secemb_refusals_total{by="peer",problem="unknown"} 1.0',
        'secemb_rounds_total{outcome="published",task="abababab"} 1.0',
        'secemb_round_phase_seconds_sum{phase="sealing",task="abababab"} 1.5',
        'secemb_kernel_seconds_count{operation="evaluate"} 1.0',
        'secemb_bytes_total{direction="in"} 10.0',
        'secemb_bytes_total{direction="out"} 20.0',
        'secemb_peer_call_seconds_sum{outcome="ok",route="seal"} 0.25',
        'secemb_joins_total{outcome="admitted",task="abababab"} 1.0',
        'secemb_joins_total{outcome="not-now",task="abababab"} 1.0',
        'secemb_retry_after_seconds_bucket{le="5.0",task="abababab"} 0.0',
        'secemb_retry_after_seconds_bucket{le="10.0",task="abababab"} 1.0',
        'secemb_round_sessions_total{fate="left-out",task="abababab"} 3.0',
        'secemb_round_number{task="abababab"} 4.0',
        'secemb_round_phase{phase="sealing",task="abababab"} 1.0',
        'secemb_round_phase{phase="open",task="abababab"} 0.0',
        'secemb_round_phase_start_timestamp_seconds{task="abababab"} 1000.0',
        'secemb_round_upload_seconds{task="abababab"} 600.0',
        'secemb_expiry_timestamp_seconds{of="relay-key"} 2000.0',
        'secemb_ledger_seconds_count{operation="write",outcome="ok"} 1.0',
        "secemb_message_bytes 3.0",
        "secemb_message_limit_bytes 64.0",
        "secemb_event_loop_lag_seconds 0.25",
        "secemb_event_loop_lag_largest_seconds 0.5",
        "secemb_peer_strangers_total 1.0",
        'secemb_model_version{task="abababab"} 17.0',
        'secemb_model_published_timestamp_seconds{task="abababab"} 1500.0',
        'secemb_quality{figure="rmse",task="abababab"} 0.875',
    ):
        assert line in text.splitlines()
    assert SECRET not in text
    assert "rmse_low" not in text


def test_the_peer_cannot_invent_problems_without_end() -> None:
    """An ended round tells the operator of all of them, in an event of a few thousand characters."""
    metrics = Metrics()
    for number in range(500):
        metrics.refused_by_peer("".join(chr(97 + int(digit)) for digit in f"{number:040d}"))
    assert metrics.refusals() == {"peer: unknown": 500}


def test_a_task_is_in_one_phase_at_a_time() -> None:
    metrics = Metrics()
    for phase in PHASES:
        metrics.task_phase(phase, number=None, since=0.0)
        shown = {labels["phase"]: value for name, labels, value in metrics.figures() if name == "secemb_round_phase"}
        assert shown == {one: float(one == phase) for one in PHASES}
    with pytest.raises(ValueError, match="not a phase"):
        metrics.task_phase("asleep", number=None, since=0.0)


def test_a_call_to_the_database_that_fails_is_counted_as_failed() -> None:
    metrics = Metrics()
    with pytest.raises(OSError, match="full"), metrics.ledger("read"):
        raise OSError("full")
    assert 'secemb_ledger_seconds_count{operation="read",outcome="failed"} 1.0' in metrics.render().decode()


def test_metrics_say_which_build_runs() -> None:
    [labels] = [labels for name, labels, value in Metrics().figures() if name == "secemb_build_info" and value == 1]
    assert labels["version"] == version("secemb")
    assert labels["python"] == platform.python_version()
    assert labels["kernel"] in {"native", "portable"}


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Base units, a suffix that says the unit or the kind, and `_total` for nothing but counters."""
    units = ("seconds", "bytes", "info", "total", "ratio")
    without_unit = {
        "secemb_event_loop_lag", "secemb_round_number", "secemb_round_phase", "secemb_model_version",
        "secemb_message_bytes", "secemb_message_limit_bytes",
        "secemb_quality", "secemb_privacy_epsilon", "secemb_privacy_epsilon_known",
        "secemb_privacy_rounds_left", "secemb_privacy_rounds_ahead", "secemb_ledger_full", "secemb_draining",
        "secemb_drained", "secemb_sum_norm", "secemb_panel_quality", "secemb_panel_worse", "secemb_compute_ready",
        "secemb_conductor",
    }  # fmt: skip
    types = dict(re.findall(r"# TYPE (secemb_\w+) (\w+)", Metrics().render().decode()))
    assert types
    for name, kind in types.items():
        assert name.endswith(units) or name in without_unit, name
        assert name.endswith("_total") == (kind == "counter"), name


@pytest.mark.parametrize("label", ["", "Keys", "9f86d081884c7d65", "round-17", "a b", "x" * 41, SECRET])
def test_a_label_with_an_id_in_it_is_refused(label: str) -> None:
    metrics = Metrics()
    for record in (metrics.refused, metrics.session, metrics.round_ended):
        with pytest.raises(ValueError, match="never an id"):
            record(label)
    assert b"_total{" not in metrics.render()


@pytest.mark.parametrize("path", ["", "v1", "/v1/rounds/9f86d081884c7d65", "/v1/rounds/17/keys", "/v1/Ab", "/a?b=c"])
def test_a_path_is_not_taken_for_a_route(path: str) -> None:
    with pytest.raises(ValueError, match="by route template"):
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
